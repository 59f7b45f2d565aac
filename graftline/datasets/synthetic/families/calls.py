"""Families about calls: renamed, wrapped, sent elsewhere."""

from graftline.astgrep.action import PatternAction
from graftline.datasets.synthetic.family import (
    ALL,
    JAVA,
    JAVASCRIPT,
    PYTHON,
    Action,
    Family,
    Form,
    one_way,
    rule,
    there_and_back,
)

_OBJECTS = (*JAVASCRIPT, *JAVA)


def _read_in_java(fix: str) -> Action:
    """Return the action on reads of the attribute `{name}`: as a pattern, ast-grep takes them for qualified names."""
    of = {"has": {"field": "object", "pattern": "$O"}}
    return rule(fix, kind="field_access", all=[of, {"has": {"field": "field", "regex": "^{name}$"}}])


CALLS: tuple[Family, ...] = (
    Family(
        "rename_function", "rename",
        (
            "Rename calls of `{name}` to `{new}`.",
            "`{name}` is called `{new}` now; follow that in every call.",
            "Call the function `{new}` wherever `{name}` is called.",
            "Replace calls of the function `{name}` by calls of `{new}` with the same arguments.",
        ),
        (one_way(ALL, "{name}($$$A)", "{new}($$$A)"),), "function", "function",
    ),
    Family(
        "rename_method", "rename",
        (
            "Call `{new}` instead of `{name}` on every object.",
            "The method `{name}` was renamed to `{new}`; update the calls.",
            "Replace each call of the method `{name}` by one of `{new}`, arguments as they are.",
        ),
        (one_way(ALL, "$O.{name}($$$A)", "$O.{new}($$$A)"),), "method", "method",
    ),
    Family(
        "rename_method_of_receiver", "rename",
        (
            "On `{owner}`, call `{new}` in place of `{name}`; other objects keep theirs.",
            "Rename the method `{name}` to `{new}` where it is called on `{owner}`, and nowhere else.",
            "`{owner}` no longer has `{name}`: use its `{new}`. Leave calls on other objects alone.",
        ),
        (one_way(ALL, "{owner}.{name}($$$A)", "{owner}.{new}($$$A)"),), "method", "method",
        fits=lambda site: bool(site.owner),
    ),
    Family(
        "replace_receiver", "call",
        (
            "Take what is called on `{owner}` from `{new}` instead.",
            "Call the methods of `{new}` wherever those of `{owner}` are called.",
            "`{owner}` is being replaced by `{new}`: send all its method calls there.",
        ),
        (one_way(ALL, "{owner}.$M($$$A)", "{new}.$M($$$A)"),), "method", "variable",
        fits=lambda site: bool(site.owner) and site.owner not in ("self", "this", "super", "cls"),
    ),
    Family(
        "wrap_function", "wrap",
        (
            "Wrap every call of `{name}` in `{new}`.",
            "Pass the result of `{name}` through `{new}` everywhere.",
            "What `{name}` returns must go through `{new}` before it is used.",
        ),
        (there_and_back(ALL, "{name}($$$A)", "{new}({name}($$$A))"),), "function", "function",
        inverse="unwrap_function",
        inverse_says=(
            "Take off `{new}` around calls of `{name}`.",
            "`{name}` needs no `{new}` around it any more; call it directly.",
            "Unwrap `{name}`: its result is no longer passed to `{new}`.",
        ),
    ),
    Family(
        "wrap_method", "wrap",
        (
            "Wrap every call of the method `{name}` in `{new}`.",
            "Pass what the method `{name}` returns to `{new}`.",
            "Results of `{name}`, whatever it is called on, go through `{new}` from now on.",
        ),
        (there_and_back(ALL, "$O.{name}($$$A)", "{new}($O.{name}($$$A))"),), "method", "function",
        inverse="unwrap_method",
        inverse_says=(
            "Take off `{new}` where it wraps a call of the method `{name}`.",
            "Use what `{name}` returns as it is, without `{new}` around.",
            "Drop the wrapper `{new}` from calls of `{name}`.",
        ),
    ),
    Family(
        "await_function", "wrap",
        (
            "`{name}` is asynchronous now: await it.",
            "Await every call of `{name}`.",
            "Calls of `{name}` return something to be awaited; do so.",
        ),
        (there_and_back((*PYTHON, *JAVASCRIPT), "{name}($$$A)", "await {name}($$$A)"),), "function",
        inverse="unawait_function",
        inverse_says=(
            "`{name}` is synchronous again: do not await it.",
            "Stop awaiting calls of `{name}`.",
            "Calls of `{name}` give their result at once; take the waiting away.",
        ),
    ),
    Family(
        "await_method", "wrap",
        (
            "The method `{name}` is asynchronous now: await it.",
            "Await every call of the method `{name}`.",
            "Wherever `{name}` is called on an object, await what it returns.",
        ),
        (there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}($$$A)", "await $O.{name}($$$A)"),), "method",
        inverse="unawait_method",
        inverse_says=(
            "The method `{name}` is synchronous again: do not await it.",
            "Stop awaiting calls of the method `{name}`.",
            "What `{name}` returns is there at once; take the waiting away.",
        ),
    ),
    Family(
        "go_through_attribute", "call",
        (
            "`{name}` moved to `{new}` of the same object; call it there.",
            "Reach the method `{name}` through the attribute `{new}`.",
            "Put `{new}` between the object and its method `{name}`.",
        ),
        (there_and_back(ALL, "$O.{name}($$$A)", "$O.{new}.{name}($$$A)"),), "method", "attribute",
        inverse="skip_attribute",
        inverse_says=(
            "Call `{name}` on the object itself and not on its `{new}`.",
            "`{name}` no longer lives in `{new}`: leave that step out.",
            "Skip the attribute `{new}` on the way to the method `{name}`.",
        ),
    ),
    Family(
        "method_to_function", "call",
        (
            "Turn the method `{name}` into the function `{new}`, which takes the object first.",
            "Call the function `{new}` with the object and the argument instead of its method `{name}`.",
            "`{name}` with one argument became a free function, `{new}`; the object is its first argument.",
        ),
        (there_and_back(ALL, "$O.{name}($A)", "{new}($O, $A)"),), "method", "function",
        fits=lambda site: site.arguments == 1, inverse="function_to_method",
        inverse_says=(
            "Turn the function `{new}` into the method `{name}` of its first argument.",
            "Call `{name}` on the first argument of `{new}` and pass the second one.",
            "`{new}` became a method, `{name}`, of what was its first argument.",
        ),
    ),
    Family(
        "property_function", "call",
        (
            "Use the function `{new}` of the object in place of its method `{name}`, which takes nothing.",
            "`{name}` without arguments became the free function `{new}`; hand it the object.",
            "Ask `{new}` about the object and not the object for its `{name}`.",
        ),
        (there_and_back(ALL, "$O.{name}()", "{new}($O)"),), "method", "function",
        fits=lambda site: site.arguments == 0, inverse="function_of_object_to_method",
        inverse_says=(
            "Call the method `{name}` of what is passed to `{new}`.",
            "`{new}` of one object became its method `{name}`.",
            "Replace the function `{new}` by the method `{name}` of its only argument.",
        ),
    ),
    Family(
        "method_to_attribute", "call",
        (
            "`{name}` is a property now: read it, do not call it.",
            "Turn calls of `{name}` that pass nothing into plain reads of it.",
            "Drop the empty parentheses after the method `{name}`.",
        ),
        (
            there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}()", "$O.{name}"),
            Form(JAVA, (PatternAction(pattern="$O.{name}()", rewrite="$O.{name}"),), (_read_in_java("$O.{name}()"),)),
        ), "method",
        fits=lambda site: site.arguments == 0, inverse="attribute_to_method",
        inverse_says=(
            "`{name}` is a method now: call it.",
            "Turn plain reads of `{name}` into calls that pass nothing.",
            "What `{name}` holds has to be asked for by a call without arguments.",
        ),
    ),
    Family(
        "constructor_to_factory", "call",
        (
            "Make objects of `{name}` by its factory `{new}`.",
            "Do not construct `{name}` directly; `{name}` has `{new}` for that.",
            "Replace the constructor of `{name}` by a call of its `{new}` with the same arguments.",
        ),
        (
            there_and_back(_OBJECTS, "new {name}($$$A)", "{name}.{new}($$$A)"),
            there_and_back(PYTHON, "{name}($$$A)", "{name}.{new}($$$A)"),
        ), "class", "method", fits=lambda site: site.key == "constructed", inverse="factory_to_constructor",
        inverse_says=(
            "Construct `{name}` directly where its factory `{new}` is called.",
            "The factory `{new}` of `{name}` goes away: use the constructor.",
            "Replace calls of `{new}` on `{name}` by its constructor with the same arguments.",
        ),
    ),
    Family(
        "replace_thrown", "rename",
        (
            "Throw `{new}` in place of `{name}`.",
            "Where `{name}` is thrown, throw `{new}` with the same arguments; leave it elsewhere.",
            "Errors of the class `{name}` become `{new}` where they are raised.",
        ),
        (
            one_way(_OBJECTS, "throw new {name}($$$A);", "throw new {new}($$$A);"),
            one_way(PYTHON, "raise {name}($$$A)", "raise {new}($$$A)"),
        ), "class", "class", fits=lambda site: site.key == "constructed",
    ),
    Family(
        "rename_attribute", "rename",
        (
            "Rename the attribute `{name}` to `{new}`; methods of that name stay.",
            "Read and write `{new}` in place of the attribute `{name}`.",
            "Objects hold in `{new}` what was in `{name}`. Follow that, calls aside.",
        ),
        (
            Form(PYTHON, (rule("$O.{new}", pattern="$O.{name}", **{"not": {"inside": {"kind": "call", "field": "function"}}}),)),
            Form(JAVASCRIPT, (rule("$O.{new}", pattern="$O.{name}", **{"not": {"inside": {"kind": "call_expression", "field": "function"}}}),)),
            Form(JAVA, (_read_in_java("$O.{new}"),)),
        ), "attribute", "attribute",
    ),
    Family(
        "rename_attribute_of_receiver", "rename",
        (
            "Rename the attribute `{name}` of `{owner}` to `{new}`; that of other objects stays.",
            "`{owner}` holds in `{new}` what was in its `{name}`.",
            "Use `{new}` wherever the `{name}` of `{owner}` is used, and only there.",
        ),
        (one_way(ALL, "{owner}.{name}", "{owner}.{new}"),), "attribute", "attribute",
        fits=lambda site: bool(site.owner),
    ),
)  # fmt: skip
