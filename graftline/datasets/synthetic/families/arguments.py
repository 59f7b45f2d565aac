"""Families about arguments: added, dropped, swapped, named; and calls told apart by theirs."""

from typing import Any

from graftline.datasets.synthetic.family import (
    ALL,
    JAVA,
    JAVASCRIPT,
    PYTHON,
    Family,
    Form,
    one_way,
    rule,
    there_and_back,
)

_PAIRS: dict[str, Any] = {"kind": "property_identifier", "inside": {"kind": "pair", "field": "key"}}

ARGUMENTS: tuple[Family, ...] = (
    Family(
        "swap_arguments", "argument",
        (
            "Swap the two arguments of `{name}`.",
            "`{name}` takes its two arguments in the other order now.",
            "Exchange first and second argument wherever `{name}` is called with two.",
        ),
        (one_way(ALL, "{name}($A, $B)", "{name}($B, $A)"),), "function", fits=lambda site: site.arguments == 2,
    ),
    Family(
        "swap_method_arguments", "argument",
        (
            "Swap the two arguments of the method `{name}`.",
            "The method `{name}` takes its two arguments in the other order now.",
            "Exchange first and second argument where the method `{name}` is called with two.",
        ),
        (one_way(ALL, "$O.{name}($A, $B)", "$O.{name}($B, $A)"),), "method", fits=lambda site: site.arguments == 2,
    ),
    Family(
        "drop_argument", "argument",
        (
            "Drop the second of two arguments of `{name}`.",
            "`{name}` needs its first argument only; take the second one out.",
            "Call `{name}` without the second argument where it has two.",
        ),
        (one_way(ALL, "{name}($A, $B)", "{name}($A)"),), "function", fits=lambda site: site.arguments == 2,
    ),
    Family(
        "drop_method_argument", "argument",
        (
            "Drop the second argument of the method `{name}`.",
            "The method `{name}` needs its first argument only.",
            "Call the method `{name}` without the second argument where it has two.",
        ),
        (one_way(ALL, "$O.{name}($A, $B)", "$O.{name}($A)"),), "method", fits=lambda site: site.arguments == 2,
    ),
    Family(
        "add_argument", "argument",
        (
            "Pass {value} as the last argument of `{name}`.",
            "`{name}` takes one more argument at its end: {value}.",
            "Add the argument {value} behind those of `{name}`.",
        ),
        (there_and_back(ALL, "$O.{name}($$$A)", "$O.{name}($$$A, {value})"),), "method",
        fits=lambda site: site.arguments > 0, inverse="remove_argument",
        inverse_says=(
            "Take the last argument {value} of `{name}` away.",
            "`{name}` no longer takes {value} at the end of its arguments.",
            "Where {value} is the last argument of `{name}`, leave it out.",
        ),
    ),
    Family(
        "add_first_argument", "argument",
        (
            "Pass `{new}` to `{name}` before all other arguments.",
            "`{name}` takes `{new}` first now.",
            "Put `{new}` in front of the arguments of `{name}`.",
        ),
        (there_and_back(ALL, "{name}($$$A)", "{name}({new}, $$$A)"),), "function", "variable",
        fits=lambda site: site.arguments > 0, inverse="remove_first_argument",
        inverse_says=(
            "Do not pass `{new}` to `{name}` as its first argument any more.",
            "`{name}` no longer takes `{new}` first.",
            "Take `{new}` out in front of the arguments of `{name}`.",
        ),
    ),
    Family(
        "add_keyword", "argument",
        (
            "Pass {value} as `{new}` to `{name}`.",
            "Set the option `{new}` of `{name}` to {value}.",
            "Every call of `{name}` states {value} for `{new}`, after its other arguments.",
        ),
        (
            there_and_back(PYTHON, "{name}($$$A)", "{name}($$$A, {new}={value})"),
            there_and_back(JAVASCRIPT, "{name}($$$A)", "{name}($$$A, { {new}: {value} })"),
        ), "function", "keyword", fits=lambda site: site.arguments > 0, inverse="remove_keyword",
        inverse_says=(
            "Leave `{new}` out where `{name}` is given {value} for it.",
            "{value} is the default of `{new}` now: do not say so in calls of `{name}`.",
            "Take the option `{new}`, which is {value}, out of calls of `{name}`.",
        ),
    ),
    Family(
        "positional_to_keyword", "argument",
        (
            "Pass the second of two arguments of `{name}` by name, as `{new}`.",
            "Say `{new}` in front of the second argument of `{name}`.",
            "`{name}` takes its second argument as the keyword `{new}` only.",
        ),
        (there_and_back(PYTHON, "{name}($A, $B)", "{name}($A, {new}=$B)"),), "function", "keyword",
        fits=lambda site: site.arguments == 2 and not site.keywords, inverse="keyword_to_positional",
        inverse_says=(
            "Pass `{new}` to `{name}` by position, second of two.",
            "The second argument of `{name}` needs no name: drop `{new}`.",
            "Give `{name}` its `{new}` as a plain second argument.",
        ),
    ),
    Family(
        "only_positional_to_keyword", "argument",
        (
            "Pass the one argument of the method `{name}` by name, as `{new}`.",
            "The method `{name}` takes its only argument as the keyword `{new}`.",
            "Say `{new}` in front of the argument where `{name}` is called with one.",
        ),
        (there_and_back(PYTHON, "$O.{name}($A)", "$O.{name}({new}=$A)"),), "method", "keyword",
        fits=lambda site: site.arguments == 1 and not site.keywords, inverse="only_keyword_to_positional",
        inverse_says=(
            "Pass `{new}` to the method `{name}` by position.",
            "The only argument of the method `{name}` needs no name: drop `{new}`.",
            "Give the method `{name}` its `{new}` as a plain argument.",
        ),
    ),
    Family(
        "rename_keyword", "rename",
        (
            "Rename the option `{name}` to `{new}` where it is passed by name.",
            "`{new}` is what the keyword `{name}` is called now.",
            "Pass as `{new}` what is passed as `{name}`; variables of that name stay.",
        ),
        (
            Form(PYTHON, (rule("{new}=$V", pattern={"context": "f({name}=$V)", "selector": "keyword_argument"}),)),
            Form(JAVASCRIPT, (rule("{new}", **_PAIRS, regex="^{name}$"),)),
        ), "keyword", "keyword",
    ),
    Family(
        "rename_keyword_of_function", "rename",
        (
            "Rename the option `{name}` of `{owner}` to `{new}`; other functions keep theirs.",
            "`{owner}` takes as `{new}` what it took as `{name}`.",
            "In calls of `{owner}`, and only there, write `{new}` for the keyword `{name}`.",
        ),
        (
            Form(PYTHON, (rule(
                "{new}=$V", pattern={"context": "f({name}=$V)", "selector": "keyword_argument"},
                inside={"kind": "argument_list", "inside": {"pattern": "{owner}($$$A)"}},
            ),)),
            Form(JAVASCRIPT, (rule(
                "{new}", **{**_PAIRS, "inside": {"kind": "pair", "field": "key", "inside": {
                    "kind": "object", "inside": {"kind": "arguments", "inside": {"pattern": "{owner}($$$A)"}},
                }}}, regex="^{name}$",
            ),)),
        ), "keyword", "keyword", fits=lambda site: bool(site.owner),
    ),
    Family(
        "rename_with_keyword", "place",
        (
            "Call `{new}` for `{owner}` where it is given `{name}` by name; other calls stay.",
            "Calls of `{owner}` that pass the keyword `{name}` go to `{new}`.",
            "Use `{new}` in place of `{owner}`, but only where the option `{name}` is stated.",
        ),
        (
            Form(PYTHON, (rule(
                "{new}($$$A)", pattern="{owner}($$$A)",
                has={"kind": "argument_list", "has": {"kind": "keyword_argument", "has": {"field": "name", "regex": "^{name}$"}}},
            ),)),
        ), "keyword", "function", fits=lambda site: bool(site.owner),
    ),
    Family(
        "rename_called_with_nothing", "place",
        (
            "Rename the method `{name}` to `{new}` where it is called without arguments.",
            "Call `{new}` in place of `{name}` when nothing is passed; other calls stay.",
            "`{name}` without arguments is `{new}` now; with arguments it is what it was.",
        ),
        (one_way(ALL, "$O.{name}()", "$O.{new}()"),), "method", "method", fits=lambda site: site.arguments == 0,
    ),
    Family(
        "rename_called_with_one", "place",
        (
            "Rename the method `{name}` to `{new}` where it is called with one argument.",
            "Call `{new}` in place of `{name}` when exactly one thing is passed; other calls stay.",
            "`{name}` of one argument is `{new}` now; leave those with none or more.",
        ),
        (one_way(ALL, "$O.{name}($A)", "$O.{new}($A)"),), "method", "method", fits=lambda site: site.arguments == 1,
    ),
    Family(
        "rename_called_with_two", "place",
        (
            "Rename the function `{name}` to `{new}` where it is called with two arguments.",
            "Calls of `{name}` with exactly two arguments go to `{new}`; others stay.",
            "`{name}` of two arguments is `{new}` now; leave those with fewer or more.",
        ),
        (one_way(ALL, "{name}($A, $B)", "{new}($A, $B)"),), "function", "function",
        fits=lambda site: site.arguments == 2,
    ),
    Family(
        "repeat_as_options", "argument",
        (
            "Put the second of two arguments of the method `{name}` into an options object, as `{new}`.",
            "The method `{name}` takes its second argument as the option `{new}`.",
            "Name the second argument of `{name}`: an object with the key `{new}`.",
        ),
        (there_and_back(JAVASCRIPT, "$O.{name}($A, $B)", "$O.{name}($A, { {new}: $B })"),), "method", "keyword",
        fits=lambda site: site.arguments == 2, inverse="options_to_argument",
        inverse_says=(
            "Pass the option `{new}` of the method `{name}` as its plain second argument.",
            "`{name}` takes no options object any more: hand it what was under `{new}`.",
            "Unpack the object with the key `{new}` in calls of `{name}`.",
        ),
    ),
    Family(
        "list_of_arguments", "argument",
        (
            "Give `{name}` its two arguments as one list.",
            "`{name}` takes a list of two in place of two arguments.",
            "Put both arguments of the method `{name}` into a list.",
        ),
        (
            there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}($A, $B)", "$O.{name}([$A, $B])"),
            there_and_back(JAVA, "$O.{name}($A, $B)", "$O.{name}(List.of($A, $B))"),
        ), "method", fits=lambda site: site.arguments == 2, inverse="arguments_of_list",
        inverse_says=(
            "Give `{name}` both items of its list as two arguments.",
            "`{name}` takes two arguments in place of a list of two.",
            "Unpack the list of two in calls of the method `{name}`.",
        ),
    ),
)  # fmt: skip
