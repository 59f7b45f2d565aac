"""Families about calls: renamed, wrapped, sent elsewhere, with other arguments, and from other modules."""

from typing import Any

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
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
    Family("rename_function", "rename", (one_way(ALL, "{name}($$$A)", "{new}($$$A)"),), "function", "function"),
    Family("rename_method", "rename", (one_way(ALL, "$O.{name}($$$A)", "$O.{new}($$$A)"),), "method", "method"),
    Family("rename_method_of_receiver", "rename", (one_way(ALL, "{owner}.{name}($$$A)", "{owner}.{new}($$$A)"),),
        "method", "method", fits=lambda site: bool(site.owner)),
    Family("replace_receiver", "call", (one_way(ALL, "{owner}.$M($$$A)", "{new}.$M($$$A)"),), "method", "variable",
        fits=lambda site: bool(site.owner) and site.owner not in ("self", "this", "super", "cls")),
    Family("wrap_function", "wrap", (there_and_back(ALL, "{name}($$$A)", "{new}({name}($$$A))"),), "function",
        "function", inverse="unwrap_function"),
    Family("wrap_method", "wrap", (there_and_back(ALL, "$O.{name}($$$A)", "{new}($O.{name}($$$A))"),), "method",
        "function", inverse="unwrap_method"),
    Family("await_function", "wrap", (there_and_back((*PYTHON, *JAVASCRIPT), "{name}($$$A)", "await {name}($$$A)"),),
        "function", inverse="unawait_function"),
    Family("await_method", "wrap",
        (there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}($$$A)", "await $O.{name}($$$A)"),), "method",
        inverse="unawait_method"),
    Family("go_through_attribute", "call", (there_and_back(ALL, "$O.{name}($$$A)", "$O.{new}.{name}($$$A)"),),
        "method", "attribute", inverse="skip_attribute"),
    Family("method_to_function", "call", (there_and_back(ALL, "$O.{name}($A)", "{new}($O, $A)"),), "method",
        "function", fits=lambda site: site.arguments == 1, inverse="function_to_method"),
    Family("property_function", "call", (there_and_back(ALL, "$O.{name}()", "{new}($O)"),), "method", "function",
        fits=lambda site: site.arguments == 0, inverse="function_of_object_to_method"),
    Family("method_to_attribute", "call", (
            there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}()", "$O.{name}"),
            Form(JAVA, (PatternAction(pattern="$O.{name}()", rewrite="$O.{name}"),), (_read_in_java("$O.{name}()"),)),
        ), "method", fits=lambda site: site.arguments == 0, inverse="attribute_to_method"),
    Family("constructor_to_factory", "call", (
            there_and_back(_OBJECTS, "new {name}($$$A)", "{name}.{new}($$$A)"),
            there_and_back(PYTHON, "{name}($$$A)", "{name}.{new}($$$A)"),
        ), "class", "method", fits=lambda site: site.key == "constructed", inverse="factory_to_constructor"),
    Family("replace_thrown", "rename", (
            one_way(_OBJECTS, "throw new {name}($$$A);", "throw new {new}($$$A);"),
            one_way(PYTHON, "raise {name}($$$A)", "raise {new}($$$A)"),
        ), "class", "class", fits=lambda site: site.key == "constructed"),
    Family("rename_attribute", "rename", (
            Form(PYTHON, (rule("$O.{new}", pattern="$O.{name}", **{"not": {"inside": {"kind": "call", "field": "function"}}}),)),
            Form(JAVASCRIPT, (rule("$O.{new}", pattern="$O.{name}", **{"not": {"inside": {"kind": "call_expression", "field": "function"}}}),)),
            Form(JAVA, (_read_in_java("$O.{new}"),)),
        ), "attribute", "attribute"),
    Family("rename_attribute_of_receiver", "rename", (one_way(ALL, "{owner}.{name}", "{owner}.{new}"),), "attribute",
        "attribute", fits=lambda site: bool(site.owner)),
)  # fmt: skip


_PAIRS: dict[str, Any] = {"kind": "property_identifier", "inside": {"kind": "pair", "field": "key"}}

ARGUMENTS: tuple[Family, ...] = (
    Family("swap_arguments", "argument", (one_way(ALL, "{name}($A, $B)", "{name}($B, $A)"),), "function",
        fits=lambda site: site.arguments == 2),
    Family("swap_method_arguments", "argument", (one_way(ALL, "$O.{name}($A, $B)", "$O.{name}($B, $A)"),), "method",
        fits=lambda site: site.arguments == 2),
    Family("drop_argument", "argument", (one_way(ALL, "{name}($A, $B)", "{name}($A)"),), "function",
        fits=lambda site: site.arguments == 2),
    Family("drop_method_argument", "argument", (one_way(ALL, "$O.{name}($A, $B)", "$O.{name}($A)"),), "method",
        fits=lambda site: site.arguments == 2),
    Family("add_argument", "argument", (there_and_back(ALL, "$O.{name}($$$A)", "$O.{name}($$$A, {value})"),),
        "method", fits=lambda site: site.arguments > 0, inverse="remove_argument"),
    Family("add_first_argument", "argument", (there_and_back(ALL, "{name}($$$A)", "{name}({new}, $$$A)"),),
        "function", "variable", fits=lambda site: site.arguments > 0, inverse="remove_first_argument"),
    Family("add_keyword", "argument", (
            there_and_back(PYTHON, "{name}($$$A)", "{name}($$$A, {new}={value})"),
            there_and_back(JAVASCRIPT, "{name}($$$A)", "{name}($$$A, { {new}: {value} })"),
        ), "function", "keyword", fits=lambda site: site.arguments > 0, inverse="remove_keyword"),
    Family("positional_to_keyword", "argument", (there_and_back(PYTHON, "{name}($A, $B)", "{name}($A, {new}=$B)"),),
        "function", "keyword", fits=lambda site: site.arguments == 2 and not site.keywords,
        inverse="keyword_to_positional"),
    Family("only_positional_to_keyword", "argument",
        (there_and_back(PYTHON, "$O.{name}($A)", "$O.{name}({new}=$A)"),), "method", "keyword",
        fits=lambda site: site.arguments == 1 and not site.keywords, inverse="only_keyword_to_positional"),
    Family("rename_keyword", "rename", (
            Form(PYTHON, (rule("{new}=$V", pattern={"context": "f({name}=$V)", "selector": "keyword_argument"}),)),
            Form(JAVASCRIPT, (rule("{new}", **_PAIRS, regex="^{name}$"),)),
        ), "keyword", "keyword"),
    Family("rename_keyword_of_function", "rename", (
            Form(PYTHON, (rule(
                "{new}=$V", pattern={"context": "f({name}=$V)", "selector": "keyword_argument"},
                inside={"kind": "argument_list", "inside": {"pattern": "{owner}($$$A)"}},
            ),)),
            Form(JAVASCRIPT, (rule(
                "{new}", **{**_PAIRS, "inside": {"kind": "pair", "field": "key", "inside": {
                    "kind": "object", "inside": {"kind": "arguments", "inside": {"pattern": "{owner}($$$A)"}},
                }}}, regex="^{name}$",
            ),)),
        ), "keyword", "keyword", fits=lambda site: bool(site.owner)),
    Family("rename_with_keyword", "place", (
            Form(PYTHON, (rule(
                "{new}($$$A)", pattern="{owner}($$$A)",
                has={"kind": "argument_list", "has": {"kind": "keyword_argument", "has": {"field": "name", "regex": "^{name}$"}}},
            ),)),
        ), "keyword", "function", fits=lambda site: bool(site.owner)),
    Family("rename_called_with_nothing", "place", (one_way(ALL, "$O.{name}()", "$O.{new}()"),), "method", "method",
        fits=lambda site: site.arguments == 0),
    Family("rename_called_with_one", "place", (one_way(ALL, "$O.{name}($A)", "$O.{new}($A)"),), "method", "method",
        fits=lambda site: site.arguments == 1),
    Family("rename_called_with_two", "place", (one_way(ALL, "{name}($A, $B)", "{new}($A, $B)"),), "function",
        "function", fits=lambda site: site.arguments == 2),
    Family("repeat_as_options", "argument",
        (there_and_back(JAVASCRIPT, "$O.{name}($A, $B)", "$O.{name}($A, { {new}: $B })"),), "method", "keyword",
        fits=lambda site: site.arguments == 2, inverse="options_to_argument"),
    Family("list_of_arguments", "argument", (
            there_and_back((*PYTHON, *JAVASCRIPT), "$O.{name}($A, $B)", "$O.{name}([$A, $B])"),
            there_and_back(JAVA, "$O.{name}($A, $B)", "$O.{name}(List.of($A, $B))"),
        ), "method", fits=lambda site: site.arguments == 2, inverse="arguments_of_list"),
)  # fmt: skip


def _then(languages: tuple[Language, ...], *steps: tuple[str, str]) -> Form:
    return Form(languages, tuple(PatternAction(pattern=pattern, rewrite=rewrite) for pattern, rewrite in steps))


_OF_IMPORT: dict[str, Any] = {"kind": "import_statement"}
_OF_REQUIRE: dict[str, Any] = {"kind": "arguments", "inside": {"pattern": "require($A)"}}


def _from_javascript(name: Action, place: dict[str, Any], use: str, after: str) -> Form:
    """Return the form of three steps: the name, its module and its uses, so that quotes stay as they are."""
    module = rule("{other}", kind="string_fragment", regex="^{owner}$", inside={"kind": "string", "inside": place})
    return Form(JAVASCRIPT, (name, module, PatternAction(pattern=use, rewrite=after)))


IMPORTS: tuple[Family, ...] = (
    Family("move_module", "rename", (
            one_way(PYTHON, "from {name} import $$$N", "from {new} import $$$N"),
            Form(JAVASCRIPT, (rule(
                "{new}", kind="string_fragment", regex="^{name}$",
                inside={"kind": "string", "inside": {"any": [
                    {"kind": "import_statement"}, {"kind": "export_statement"},
                    {"kind": "arguments", "inside": {"pattern": "require($A)"}},
                ]}},
            ),)),
            one_way(JAVA, "import {name};", "import {new};"),
        ), "module", "module"),
    Family("replace_module", "import",
        (_then(PYTHON, ("import {name}", "import {new}"), ("{name}.$F($$$A)", "{new}.$F($$$A)")),), "module",
        "module", fits=lambda site: site.key == "whole" and "." not in site.name),
    Family("replace_imported", "import", (
            _then(
                PYTHON, ("from {owner} import {name}", "from {other} import {new}"), ("{name}($$$A)", "{new}($$$A)")
            ),
            _from_javascript(
                rule("{new}", kind="import_specifier", regex="^{name}$"), _OF_IMPORT, "{name}($$$A)", "{new}($$$A)"
            ),
        ), "imported", "imported", "module", fits=lambda site: not site.key and not site.name[:1].isupper()),
    Family("replace_default_import", "import", (
            _from_javascript(
                rule("{new}", kind="identifier", regex="^{name}$", inside={"kind": "import_clause"}), _OF_IMPORT,
                "{name}.$F($$$A)", "{new}.$F($$$A)",
            ),
        ), "imported", "imported", "module", fits=lambda site: site.key == "default"),
    Family("replace_required", "import", (
            _from_javascript(
                PatternAction(
                    pattern="const {name} = require($M)", rewrite="{new} = require($M)", selector="variable_declarator"
                ), _OF_REQUIRE, "{name}($$$A)", "{new}($$$A)",
            ),
        ), "imported", "function", "module", fits=lambda site: site.key == "required"),
    Family("replace_imported_class", "import", (
            Form(JAVA, (
                PatternAction(pattern="import {owner}.{name};", rewrite="import {other}.{new};"),
                rule("{new}", kind="type_identifier", regex="^{name}$"),
            )),
            Form(PYTHON, (
                PatternAction(pattern="from {owner} import {name}", rewrite="from {other} import {new}"),
                rule("{new}", kind="identifier", regex="^{name}$", **{"not": {"inside": {"kind": "attribute", "field": "attribute"}}}),
            )),
        ), "imported", "imported", "module", fits=lambda site: site.name[:1].isupper()),
    Family("call_through_path", "import", (
            Form(PYTHON, (
                PatternAction(pattern="open($A)", rewrite="Path($A).open()"),
                PatternAction(pattern="import {name}", rewrite="import {name}\nfrom pathlib import Path"),
            )),
        ), "module", fits=lambda site: site.key == "whole"),
    Family("null_check_with_import", "import", (
            Form(JAVA, (
                PatternAction(pattern="$A == null", rewrite="Objects.isNull($A)"),
                PatternAction(pattern="import {name};", rewrite="import {name};\nimport java.util.Objects;"),
            )),
        ), "module"),
)  # fmt: skip
