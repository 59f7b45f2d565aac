"""Families about statements: guards, branches, returns, declarations; and families that hold in one place only."""

from collections.abc import Mapping
from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import (
    JAVA,
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    Action,
    Family,
    Form,
    rule,
    there_and_back,
)


def _first_statement(
    languages: tuple[Language, ...], bodies: tuple[str, ...], definitions: tuple[str, ...], guard: str
) -> Form:
    """Return the form that puts `guard` before the first statement of the function `{name}`, and takes it off."""
    function = {"any": [{"kind": kind} for kind in definitions], "has": {"field": "name", "regex": "^{name}$"}}
    body = {"any": [{"kind": kind} for kind in bodies], "inside": function}
    # a block that is captured and matched at once: the statement is kept, however long it is
    there = rule(f"{guard}\n$S", pattern="$S", kind="{key}", nthChild=1, inside=body)
    back = rule(
        {"template": "$S", "expandEnd": {"pattern": "$S"}}, pattern=guard, inside=body, precedes={"pattern": "$S"}
    )
    return Form(languages, (there,), (back,))


def _invert_if(languages: tuple[Language, ...], alternative: dict[str, Any]) -> Form:
    """Return the form that keeps both blocks as they are written, which a pattern of statements would not."""
    consequence = {"has": {"field": "consequence", "pattern": "$A"}}

    def invert(condition: str, fix: str) -> Action:
        test = {"context": f"if {condition} {{}}", "selector": "parenthesized_expression"}
        parts = [{"has": {"field": "condition", "pattern": test}}, consequence, alternative]
        return rule(fix, kind="if_statement", all=parts)

    there, back = invert("($C)", "if (!($C)) $B else $A"), invert("(!($C))", "if ($C) $B else $A")
    return Form(languages, (there,), (back,))


STATEMENTS: tuple[Family, ...] = (
    Family("guard_call", "statement", (
            there_and_back(
                PYTHON, "$O.{name}($$$A)", "if $O is not None:\n    $O.{name}($$$A)", "expression_statement"
            ),
            there_and_back(
                JAVASCRIPT, "$O.{name}($$$A);", "if ($O) {\n  $O.{name}($$$A);\n}"
            ),
            there_and_back(JAVA, "$O.{name}($$$A);", "if ($O != null) {\n    $O.{name}($$$A);\n}"),
        ), "method", fits=lambda site: site.is_statement, inverse="unguard_call"),
    Family("return_early", "statement", (
            _first_statement(PYTHON, ("block",), ("function_definition",), "if {owner} is None:\n    return None"),
            _first_statement(
                JAVASCRIPT, ("statement_block",), ("function_declaration", "method_definition", "function_expression"),
                "if (!{owner}) {\n  return;\n}",
            ),
        ), "definition", fits=lambda site: bool(site.owner and site.key), inverse="drop_early_return"),
    Family("refuse_null", "statement", (
            _first_statement(
                JAVA, ("block",), ("method_declaration",),
                'if ({owner} == null) {\n    throw new IllegalArgumentException("{owner}");\n}',
            ),
        ), "definition", fits=lambda site: bool(site.owner and site.key), inverse="accept_null"),
    Family("invert_if", "statement", (
            there_and_back(
                PYTHON, "if $C:\n    $$$A\nelse:\n    $$$B", "if not ($C):\n    $$$B\nelse:\n    $$$A"
            ),
            _invert_if(JAVASCRIPT, {"has": {"kind": "else_clause", "has": {"kind": "statement_block", "pattern": "$B"}}}),
            _invert_if(JAVA, {"has": {"field": "alternative", "kind": "block", "pattern": "$B"}}),
        ), inverse="uninvert_if"),
    Family("if_to_conditional", "statement", (
            there_and_back(
                PYTHON, "if $C:\n    return $A\nelse:\n    return $B", "return $A if $C else $B"
            ),
            there_and_back(
                (*JAVASCRIPT, *JAVA), "if ($C) {\n    return $A;\n} else {\n    return $B;\n}", "return $C ? $A : $B;"
            ),
        ), inverse="conditional_to_if"),
    Family("invert_conditional", "operator", (
            there_and_back(PYTHON, "$A if $C else $B", "$B if not ($C) else $A"),
            there_and_back((*JAVASCRIPT, *JAVA), "$C ? $A : $B", "!($C) ? $B : $A"),
        ), inverse="uninvert_conditional"),
    Family("bare_return", "statement",
        (there_and_back(PYTHON, "return None", "return"), there_and_back(JAVASCRIPT, "return undefined;", "return;")),
        inverse="explicit_return"),
    Family("let_for_const", "statement", (there_and_back(JAVASCRIPT, "const $A = $B;", "let $A = $B;"),),
        inverse="const_for_let"),
    Family("let_for_var", "statement", (there_and_back(JAVASCRIPT, "var $A = $B;", "let $A = $B;"),),
        inverse="var_for_let"),
    Family("declare_var", "type", (there_and_back(JAVA, "{name} $X = $E;", "var $X = $E;"),), "type",
        fits=lambda site: site.key == "local" and site.name != "var", inverse="declare_type"),
    Family("final_local", "annotation", (there_and_back(JAVA, "{name} $X = $E;", "final {name} $X = $E;"),), "type",
        fits=lambda site: site.key == "local", inverse="plain_local"),
    Family("raise_from_none", "statement",
        (there_and_back(PYTHON, "raise {name}($$$A)", "raise {name}($$$A) from None"),), "class",
        fits=lambda site: site.key == "constructed", inverse="raise_with_context"),
    Family("arrow_function", "statement",
        (there_and_back(JAVASCRIPT, "function ($$$A) { return $E; }", "($$$A) => $E"),), inverse="plain_function"),
    Family("type_assertion", "type", (there_and_back(TYPESCRIPT, "<{name}>$E", "$E as {name}"),), "type",
        inverse="prefix_assertion"),
)  # fmt: skip


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
    Family("rename_method_in_loop", "place", _inside(_LOOPS, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method"),
    Family("rename_function_in_return", "place", _inside(_RETURNS, "{name}($$$A)", "{new}($$$A)"), "function",
        "function"),
    Family("rename_method_in_return", "place", _inside(_RETURNS, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method",
        "method"),
    Family("rename_method_in_try", "place", _inside(_TRIES, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method", "method"),
    Family("rename_method_in_class", "place", _inside(_CLASSES, "$O.{name}($$$A)", "$O.{new}($$$A)"), "method",
        "method"),
    Family("wrap_returned", "place", _inside(_RETURNS, "{name}($$$A)", "{new}({name}($$$A))"), "function", "function"),
    Family("rename_class", "rename", (
            _names(PYTHON, "identifier"),
            _names(("javascript",), "identifier"),
            _names(TYPESCRIPT, "identifier", "type_identifier"),
            _names(JAVA, "identifier", "type_identifier"),
        ), "class", "class"),
    Family("rename_variable", "rename", (
            _names(PYTHON, "identifier", **{"not": {"any": [
                {"inside": {"kind": "attribute", "field": "attribute"}},
                {"inside": {"kind": "keyword_argument", "field": "name"}},
            ]}}),
            _names(JAVASCRIPT, "identifier"),
            _names(JAVA, "identifier", **{"not": {"any": [
                {"inside": {"kind": "field_access", "field": "field"}},
                {"inside": {"kind": "method_invocation", "field": "name"}},
            ]}}),
        ), "variable", "variable"),
    Family("rename_definition", "rename", (
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
        ), "definition", "definition"),
    Family("replace_number", "literal",
        (_names(PYTHON, "integer"), _names(JAVASCRIPT, "number"), _names(JAVA, "decimal_integer_literal")), "number",
        "number"),
    Family("replace_string", "literal", (
            _names(PYTHON, "string_content"),
            _names(JAVASCRIPT, "string_fragment", inside={"kind": "string"}),
            _names(JAVA, "string_fragment"),
        ), "string", "string"),
    Family("number_of_argument", "literal", (
            _names(PYTHON, "integer", inside={"kind": "argument_list"}),
            _names(JAVASCRIPT, "number", inside={"kind": "arguments"}),
            _names(JAVA, "decimal_integer_literal", inside={"kind": "argument_list"}),
        ), "number", "number", fits=lambda site: site.key == "argument"),
)  # fmt: skip
