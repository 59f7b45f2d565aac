"""Families that hold in one place only, so that the same call elsewhere must stay; and names that are used everywhere."""

from collections.abc import Mapping
from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import JAVA, JAVASCRIPT, PYTHON, TYPESCRIPT, Action, Family, Form, rule

_LOOPS: Mapping[tuple[Language, ...], tuple[str, ...]] = {
    PYTHON: ("for_statement", "while_statement"),
    JAVASCRIPT: ("for_statement", "for_in_statement", "while_statement", "do_statement"),
    JAVA: ("for_statement", "enhanced_for_statement", "while_statement", "do_statement"),
}
_CLASSES: Mapping[tuple[Language, ...], tuple[str, ...]] = {
    PYTHON: ("class_definition",),
    JAVASCRIPT: ("class_declaration", "class"),
    JAVA: ("class_declaration",),
}
_TRIES = dict.fromkeys((PYTHON, JAVASCRIPT, JAVA), ("try_statement",))
_RETURNS = dict.fromkeys((PYTHON, JAVASCRIPT, JAVA), ("return_statement",))


def _inside(places: Mapping[tuple[Language, ...], tuple[str, ...]], pattern: str, fix: str) -> tuple[Form, ...]:
    return tuple(Form(languages, (_within(kinds, pattern, fix),)) for languages, kinds in places.items())


def _within(kinds: tuple[str, ...], pattern: str, fix: str) -> Action:
    return rule(fix, pattern=pattern, inside={**_one_of(kinds), "stopBy": "end"})


def _one_of(kinds: tuple[str, ...]) -> dict[str, Any]:
    return {"kind": kinds[0]} if len(kinds) == 1 else {"any": [{"kind": kind} for kind in kinds]}


def _names(languages: tuple[Language, ...], *kinds: str, **parts: Any) -> Form:
    return Form(languages, (rule("{new}", **_one_of(kinds), regex="^{name}$", **parts),))


PLACES: tuple[Family, ...] = (
    Family(
        "rename_method_in_loop", "place",
        (
            "Inside loops, call `{new}` in place of the method `{name}`; elsewhere it stays.",
            "Rename the method `{name}` to `{new}` in the bodies and heads of loops only.",
            "Use `{new}` where `{name}` is called on an object within a loop.",
        ),
        _inside(_LOOPS, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method",
    ),
    Family(
        "rename_function_in_return", "place",
        (
            "Call `{new}` for `{name}` in what is returned, and leave other calls as they are.",
            "Returned values are made by `{new}` where `{name}` made them.",
            "Rename `{name}` to `{new}` inside return statements only.",
        ),
        _inside(_RETURNS, "{name}($$$A)", "{new}($$$A)"), "function", "function",
    ),
    Family(
        "rename_method_in_return", "place",
        (
            "Call the method `{new}` for `{name}` in what is returned; leave other calls.",
            "Where the method `{name}` is part of a returned value, use `{new}`.",
            "Rename the method `{name}` to `{new}` inside return statements only.",
        ),
        _inside(_RETURNS, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method",
    ),
    Family(
        "rename_method_in_try", "place",
        (
            "Within try statements, call `{new}` in place of the method `{name}`.",
            "Rename the method `{name}` to `{new}` where errors are handled around it, and only there.",
            "Use `{new}` for the method `{name}` inside every try, its handlers included.",
        ),
        _inside(_TRIES, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method",
    ),
    Family(
        "rename_method_in_class", "place",
        (
            "Within classes, call `{new}` in place of the method `{name}`; plain functions keep it.",
            "Rename the method `{name}` to `{new}` where it is called from the body of a class.",
            "Inside class bodies only, the method to call is `{new}` and not `{name}`.",
        ),
        _inside(_CLASSES, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method",
    ),
    Family(
        "wrap_returned", "place",
        (
            "Pass what `{name}` gives through `{new}` before it is returned.",
            "Wrap calls of `{name}` in `{new}` inside return statements; leave the others.",
            "A returned result of `{name}` has to go through `{new}`.",
        ),
        _inside(_RETURNS, "{name}($$$A)", "{new}({name}($$$A))"), "function", "function",
    ),
    Family(
        "rename_class", "rename",
        (
            "Rename the class `{name}` to `{new}` wherever it is used.",
            "The class `{name}` is called `{new}` now.",
            "Use `{new}` in place of the class `{name}`, in types and constructors too.",
        ),
        (
            _names(PYTHON, "identifier"),
            _names(("javascript",), "identifier"),
            _names(TYPESCRIPT, "identifier", "type_identifier"),
            _names(JAVA, "identifier", "type_identifier"),
        ), "class", "class",
    ),
    Family(
        "rename_variable", "rename",
        (
            "Rename the variable `{name}` to `{new}`; attributes of that name stay.",
            "Call the variable `{name}` `{new}` from now on.",
            "Give `{name}` a better name: `{new}`. Only the variable is meant.",
        ),
        (
            _names(PYTHON, "identifier", **{"not": {"any": [
                {"inside": {"kind": "attribute", "field": "attribute"}},
                {"inside": {"kind": "keyword_argument", "field": "name"}},
            ]}}),
            _names(JAVASCRIPT, "identifier"),
            _names(JAVA, "identifier", **{"not": {"any": [
                {"inside": {"kind": "field_access", "field": "field"}},
                {"inside": {"kind": "method_invocation", "field": "name"}},
            ]}}),
        ), "variable", "variable",
    ),
    Family(
        "rename_definition", "rename",
        (
            "Rename the function `{name}` to `{new}`, where it is defined and where it is called by its plain name.",
            "Call the function `{new}` that is defined here as `{name}`.",
            "The definition of `{name}` gets the name `{new}`, and its calls follow.",
        ),
        (
            _names(PYTHON, "identifier", **{"all": [{"any": [
                {"inside": {"kind": "function_definition", "field": "name"}},
                {"inside": {"kind": "call", "field": "function"}},
            ]}]}),
            _names(JAVASCRIPT, "identifier", "property_identifier", **{"all": [{"any": [
                {"inside": {"kind": "function_declaration", "field": "name"}},
                {"inside": {"kind": "method_definition", "field": "name"}},
                {"inside": {"kind": "call_expression", "field": "function"}},
            ]}]}),
            _names(JAVA, "identifier", **{"all": [{"any": [
                {"inside": {"kind": "method_declaration", "field": "name"}},
                {"all": [
                    {"inside": {"kind": "method_invocation", "field": "name"}},
                    {"not": {"inside": {"kind": "method_invocation", "has": {"field": "object", "regex": ".", "stopBy": "neighbor"}}}},
                ]},
            ]}]}),
        ), "definition", "definition",
    ),
    Family(
        "replace_number", "literal",
        (
            "Change the number {name} to {new} everywhere.",
            "Wherever the code says {name}, it should say {new}; numbers that only contain it stay.",
            "The limit moves from {name} to {new}.",
        ),
        (_names(PYTHON, "integer"), _names(JAVASCRIPT, "number"), _names(JAVA, "decimal_integer_literal")),
        "number", "number",
    ),
    Family(
        "replace_string", "literal",
        (
            "Write the text `{new}` where the code has `{name}`.",
            "The literal `{name}` becomes `{new}`, quotes as they are.",
            "Replace each string that is exactly `{name}` by `{new}`; longer ones stay.",
        ),
        (
            _names(PYTHON, "string_content"),
            _names(JAVASCRIPT, "string_fragment", inside={"kind": "string"}),
            _names(JAVA, "string_fragment"),
        ), "string", "string",
    ),
    Family(
        "number_of_argument", "literal",
        (
            "Pass {new} where {name} is an argument; the number stays elsewhere.",
            "As an argument, {name} becomes {new}.",
            "Calls that are given the number {name} are given {new} from now on.",
        ),
        (
            _names(PYTHON, "integer", inside={"kind": "argument_list"}),
            _names(JAVASCRIPT, "number", inside={"kind": "arguments"}),
            _names(JAVA, "decimal_integer_literal", inside={"kind": "argument_list"}),
        ), "number", "number", fits=lambda site: site.key == "argument",
    ),
)  # fmt: skip
