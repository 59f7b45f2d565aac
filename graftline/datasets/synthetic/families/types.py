"""Families about types, decorators and annotations."""

from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import (
    JAVA,
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    Family,
    Form,
    one_way,
    rule,
    there_and_back,
)

_FUNCTION: dict[str, Any] = {"kind": "function_definition", "has": {"field": "name", "regex": "^{name}$"}}


def _prefixed(languages: tuple[Language, ...], kind: str, prefix: str, taken_off: str) -> Form:
    """Return the form that writes `prefix` before the definition of `{name}`, and takes it off by the regex `taken_off`."""
    own: dict[str, Any] = {"kind": kind, "has": {"field": "name", "regex": "^{name}$"}}
    there = rule(f"{prefix}$D", pattern="$D", **own, **_unless({"regex": taken_off}))
    without = {"REST": {"replace": {"source": "$D", "replace": taken_off, "by": ""}}}
    back = rule("$REST", without, pattern="$D", **own, regex=taken_off)
    return Form(languages, (there,), (back,))


def _unless(condition: dict[str, Any]) -> dict[str, Any]:
    return {"not": condition}


TYPES: tuple[Family, ...] = (
    Family(
        "optional_to_union", "type",
        (
            "Write optional types as unions with None.",
            "`Optional` is not needed: use the bar.",
            "Say in the newer way that a type may be None.",
        ),
        (Form(PYTHON, (rule("$T | None", pattern={"context": "x: Optional[$T]", "selector": "generic_type"}),),
              (rule("Optional[$T]", kind="binary_operator", pattern="$T | None"),)),),
        inverse="union_to_optional",
        inverse_says=(
            "Write unions with None as `Optional`.",
            "Older Python has no bar between types: use `Optional`.",
            "Say in the older way that a type may be None.",
        ),
    ),
    Family(
        "builtin_generic", "type",
        (
            "Use the builtin class in place of the typing alias for lists.",
            "Type lists by the lower-case name.",
            "The alias of `list` in typing is deprecated; write the builtin in annotations.",
        ),
        (Form(PYTHON, (rule("list[$T]", pattern={"context": "x: List[$T]", "selector": "generic_type"}),),
              (rule("List[$T]", pattern={"context": "x: list[$T]", "selector": "generic_type"}),)),),
        inverse="typing_generic",
        inverse_says=(
            "Use the typing alias in place of the builtin class for lists.",
            "Type lists by the name of typing, with a capital.",
            "Older Python cannot subscript the builtin in annotations of lists.",
        ),
    ),
    Family(
        "builtin_dict_generic", "type",
        (
            "Use the builtin class in place of the typing alias for dictionaries.",
            "Type dictionaries by the lower-case name.",
            "The alias of `dict` in typing is deprecated; write the builtin in annotations.",
        ),
        (Form(PYTHON, (rule("dict[$K, $V]", pattern={"context": "x: Dict[$K, $V]", "selector": "generic_type"}),),
              (rule("Dict[$K, $V]", pattern={"context": "x: dict[$K, $V]", "selector": "generic_type"}),)),),
        inverse="typing_dict_generic",
        inverse_says=(
            "Use the typing alias in place of the builtin class for dictionaries.",
            "Type dictionaries by the name of typing, with a capital.",
            "Older Python cannot subscript the builtin in annotations of dictionaries.",
        ),
    ),
    Family(
        "array_shorthand", "type",
        (
            "Write array types with brackets behind them.",
            "Use the short form of array types.",
            "Types of arrays should be the element type with empty brackets.",
        ),
        (Form(TYPESCRIPT, (rule("$T[]", pattern={"context": "let x: Array<$T>", "selector": "generic_type"}),),
              (rule("Array<$T>", pattern={"context": "let x: $T[]", "selector": "array_type"}),)),),
        inverse="array_generic",
        inverse_says=(
            "Write array types as the generic class.",
            "Use the long form of array types.",
            "Types of arrays should not have brackets behind them.",
        ),
    ),
    Family(
        "replace_type", "type",
        (
            "Where the type `{name}` stands, write `{new}`.",
            "Values of type `{name}` are typed `{new}` from now on; constructors and variables of that name stay.",
            "Replace the type `{name}` in declarations by `{new}`.",
        ),
        (
            Form(JAVA, (rule("{new}", kind="type_identifier", regex="^{name}$", **_unless({"inside": {"kind": "object_creation_expression"}})),)),
            Form(TYPESCRIPT, (rule("{new}", kind="type_identifier", regex="^{name}$"),)),
            Form(PYTHON, (rule("{new}", kind="identifier", regex="^{name}$", inside={"kind": "type"}),)),
        ), "type", "class",
    ),
    Family(
        "unknown_for_any", "type",
        (
            "Use the type `unknown` in place of `any`.",
            "`any` turns checks off: write `unknown`.",
            "Annotations should not say `any`.",
        ),
        (Form(TYPESCRIPT, (rule("unknown", kind="predefined_type", regex="^any$"),),
              (rule("any", kind="predefined_type", regex="^unknown$"),)),),
        inverse="any_for_unknown",
        inverse_says=(
            "Use the type `any` in place of `unknown`.",
            "`unknown` asks for too many checks: write `any`.",
            "Annotations should not say `unknown`.",
        ),
    ),
    Family(
        "diamond", "type",
        (
            "Let the compiler infer the type arguments when `{name}` is constructed.",
            "Leave `{key}` out when a `{name}` of it is made.",
            "Use the diamond for new objects of `{name}`.",
        ),
        (there_and_back(JAVA, "new {name}<{key}>($$$A)", "new {name}<>($$$A)"),), "class",
        fits=lambda site: bool(site.key) and site.key != "constructed", inverse="type_arguments",
        inverse_says=(
            "State the type argument `{key}` when `{name}` is constructed.",
            "A new `{name}` should say that it holds `{key}`.",
            "Spell the diamond of `{name}` out: `{key}`.",
        ),
    ),
    Family(
        "add_decorator", "annotation",
        (
            "Decorate `{name}` with `{new}`.",
            "Put the decorator `{new}` on the function `{name}`.",
            "`{name}` is to be run through `{new}` where it is defined.",
        ),
        (
            Form(
                PYTHON, (rule("@{new}\n$D", pattern="$D", **_FUNCTION, **_unless({"inside": {"kind": "decorated_definition"}})),),
                (rule("$D", kind="decorated_definition", all=[
                    {"has": {"kind": "decorator", "regex": "^@{new}$"}},
                    {"has": {"field": "definition", "pattern": "$D", **_FUNCTION}},
                ]),),
            ),
        ), "definition", "decorator", inverse="remove_decorator",
        inverse_says=(
            "Take the decorator `{new}` off the function `{name}`.",
            "`{name}` is no longer decorated with `{new}`.",
            "Define `{name}` without its only decorator, `{new}`.",
        ),
    ),
    Family(
        "rename_decorator", "annotation",
        (
            "Rename the decorator `{name}` to `{new}`.",
            "Decorate by `{new}` what `{name}` decorates.",
            "The annotation `{name}` is called `{new}` now.",
        ),
        (
            Form(PYTHON, (rule("@{new}", kind="decorator", regex="^@{name}$"),)),
            Form(TYPESCRIPT, (rule("@{new}($$$A)", pattern={"context": "class A { @{name}($$$A) f() {} }", "selector": "decorator"}),)),
            Form(JAVA, (rule("@{new}", kind="marker_annotation", regex="^@{name}$"),)),
        ), "decorator", "decorator",
    ),
    Family(
        "add_annotation", "annotation",
        (
            "Annotate the method `{name}` with `{new}`.",
            "Put the annotation `{new}` on the line before `{name}`.",
            "`{name}` is to be marked by `{new}`.",
        ),
        (_prefixed(JAVA, "method_declaration", "@{new}\n", "^@{new}\\s+"),), "definition", "decorator",
        inverse="remove_annotation",
        inverse_says=(
            "Take the annotation `{new}` off the method `{name}`.",
            "The method `{name}` is no longer marked by `{new}`.",
            "`{name}` needs its annotation `{new}` no more.",
        ),
    ),
    Family(
        "make_async", "annotation",
        (
            "Make the function `{name}` asynchronous.",
            "Define `{name}` as a coroutine.",
            "`{name}` is going to wait for things: let its definition say so.",
        ),
        (
            _prefixed(PYTHON, "function_definition", "async ", "^async\\s+"),
            _prefixed(JAVASCRIPT, "function_declaration", "async ", "^async\\s+"),
        ), "definition", inverse="make_synchronous",
        inverse_says=(
            "Make the function `{name}` synchronous.",
            "Define `{name}` as a plain function.",
            "`{name}` waits for nothing: let its definition say so.",
        ),
    ),
    Family(
        "async_method", "annotation",
        (
            "Make the method `{name}` asynchronous.",
            "The method `{name}` is going to wait for things: let its definition say so.",
            "Let `{name}` be a method that is awaited.",
        ),
        (_prefixed(JAVASCRIPT, "method_definition", "async ", "^async\\s+"),), "definition", inverse="synchronous_method",
        inverse_says=(
            "Make the method `{name}` synchronous.",
            "The method `{name}` waits for nothing: let its definition say so.",
            "Let `{name}` be a method that is not awaited.",
        ),
    ),
    Family(
        "export_function", "annotation",
        (
            "Export the function `{name}`.",
            "Make `{name}` visible outside the module.",
            "Other modules need `{name}`: export it where it is defined.",
        ),
        (Form(JAVASCRIPT, (rule("export $D", pattern="$D", kind="function_declaration", has={"field": "name", "regex": "^{name}$"}, inside={"kind": "program"}),),
              (rule("$D", kind="export_statement", has={"field": "declaration", "pattern": "$D", "has": {"field": "name", "regex": "^{name}$"}}),)),),
        "definition", inverse="unexport_function",
        inverse_says=(
            "Do not export the function `{name}`.",
            "Keep `{name}` inside the module.",
            "No other module needs `{name}`: take the export off its definition.",
        ),
    ),
    Family(
        "protected_method", "annotation",
        (
            "Let methods that are private be seen by subclasses.",
            "Private methods should be protected.",
            "Turn `private` into `protected` before methods.",
        ),
        (Form(JAVA, (rule("$REST", {"REST": {"replace": {"source": "$M", "replace": "\\bprivate\\b", "by": "protected"}}},
                          pattern="$M", kind="modifiers", regex="\\bprivate\\b", inside={"kind": "method_declaration"}),),
              (rule("$REST", {"REST": {"replace": {"source": "$M", "replace": "\\bprotected\\b", "by": "private"}}},
                    pattern="$M", kind="modifiers", regex="\\bprotected\\b", inside={"kind": "method_declaration"}),)),),
        inverse="narrow_method",
        inverse_says=(
            "Let methods that subclasses see be private.",
            "Protected methods should be private.",
            "Turn `protected` into `private` before methods.",
        ),
    ),
    Family(
        "cast_type", "type",
        (
            "Cast to `{new}` where the code casts to `{name}`.",
            "Casts to `{name}` become casts to `{new}`; declarations stay.",
            "Take for a `{new}` what was taken for a `{name}`.",
        ),
        (one_way(JAVA, "({name}) $E", "({new}) $E"), one_way(TYPESCRIPT, "$E as {name}", "$E as {new}")),
        "type", "class",
    ),
)  # fmt: skip
