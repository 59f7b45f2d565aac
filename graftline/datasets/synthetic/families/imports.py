"""Families about imports: modules that move, and what takes the place of something together with its import."""

from typing import Any

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import JAVA, JAVASCRIPT, PYTHON, Action, Family, Form, one_way, rule


def _then(languages: tuple[Language, ...], *steps: tuple[str, str]) -> Form:
    return Form(languages, tuple(PatternAction(pattern=pattern, rewrite=rewrite) for pattern, rewrite in steps))


_OF_IMPORT: dict[str, Any] = {"kind": "import_statement"}
_OF_REQUIRE: dict[str, Any] = {"kind": "arguments", "inside": {"pattern": "require($A)"}}


def _from_javascript(name: Action, place: dict[str, Any], use: str, after: str) -> Form:
    """Return the form of three steps: the name, its module and its uses, so that quotes stay as they are."""
    module = rule("{other}", kind="string_fragment", regex="^{owner}$", inside={"kind": "string", "inside": place})
    return Form(JAVASCRIPT, (name, module, PatternAction(pattern=use, rewrite=after)))


IMPORTS: tuple[Family, ...] = (
    Family(
        "move_module", "rename",
        (
            "Import from `{new}` what is imported from `{name}`.",
            "The module `{name}` moved to `{new}`.",
            "Follow the new name of `{name}` in imports: `{new}`.",
        ),
        (
            one_way(PYTHON, "from {name} import $$$N", "from {new} import $$$N"),
            Form(JAVASCRIPT, (rule(
                "{new}", kind="string_fragment", regex="^{name}$",
                inside={"kind": "string", "inside": {"any": [
                    {"kind": "import_statement"}, {"kind": "export_statement"},
                    {"kind": "arguments", "inside": {"pattern": "require($A)"}},
                ]}},
            ),)),
            one_way(JAVA, "import {name};", "import {new};"),
        ), "module", "module",
    ),
    Family(
        "replace_module", "import",
        (
            "Use the module `{new}` in place of `{name}`, whose functions it has too.",
            "Import `{new}` and call there what is called in `{name}`.",
            "Replace `{name}` by `{new}`: the import first, then every call.",
        ),
        (
            _then(PYTHON, ("import {name}", "import {new}"), ("{name}.$F($$$A)", "{new}.$F($$$A)")),
        ), "module", "module", fits=lambda site: site.key == "whole" and "." not in site.name,
    ),
    Family(
        "replace_imported", "import",
        (
            "Use `{new}` of `{other}` in place of `{name}`: change the import and the calls.",
            "`{name}` gives way to `{new}`, which comes from `{other}`.",
            "Import `{new}` from `{other}` and call it where `{name}` was called.",
        ),
        (
            _then(
                PYTHON, ("from {owner} import {name}", "from {other} import {new}"), ("{name}($$$A)", "{new}($$$A)")
            ),
            _from_javascript(
                rule("{new}", kind="import_specifier", regex="^{name}$"), _OF_IMPORT, "{name}($$$A)", "{new}($$$A)"
            ),
        ), "imported", "imported", "module", fits=lambda site: not site.key and not site.name[:1].isupper(),
    ),
    Family(
        "replace_default_import", "import",
        (
            "Import `{new}` from `{other}` in place of `{name}`, and call its functions.",
            "Everything that is called in `{name}` comes from `{new}` now, the default of `{other}`.",
            "Replace `{name}` by `{new}`, which `{other}` exports: the import first, then every call.",
        ),
        (
            _from_javascript(
                rule("{new}", kind="identifier", regex="^{name}$", inside={"kind": "import_clause"}), _OF_IMPORT,
                "{name}.$F($$$A)", "{new}.$F($$$A)",
            ),
        ), "imported", "imported", "module", fits=lambda site: site.key == "default",
    ),
    Family(
        "replace_required", "import",
        (
            "Require `{other}` for `{new}` and call that in place of `{name}`.",
            "`{name}` is replaced by `{new}`, which is the module `{other}`.",
            "Change what is required from `{owner}` to `{other}`, name it `{new}` and adapt the calls.",
        ),
        (
            _from_javascript(
                PatternAction(
                    pattern="const {name} = require($M)", rewrite="{new} = require($M)", selector="variable_declarator"
                ), _OF_REQUIRE, "{name}($$$A)", "{new}($$$A)",
            ),
        ), "imported", "function", "module", fits=lambda site: site.key == "required",
    ),
    Family(
        "replace_imported_class", "import",
        (
            "Replace the class `{name}` by `{new}`, import included.",
            "Use `{new}` of `{other}` where `{name}` is used.",
            "`{name}` gives way to `{new}`: import that, and use it as the type and in constructors.",
        ),
        (
            Form(JAVA, (
                PatternAction(pattern="import {owner}.{name};", rewrite="import {other}.{new};"),
                rule("{new}", kind="type_identifier", regex="^{name}$"),
            )),
            Form(PYTHON, (
                PatternAction(pattern="from {owner} import {name}", rewrite="from {other} import {new}"),
                rule("{new}", kind="identifier", regex="^{name}$", **{"not": {"inside": {"kind": "attribute", "field": "attribute"}}}),
            )),
        ), "imported", "imported", "module", fits=lambda site: site.name[:1].isupper(),
    ),
    Family(
        "call_through_path", "import",
        (
            "Open files by path objects: `open` becomes a method of `Path`, which is imported from pathlib.",
            "Use pathlib for opening files with one argument, and import what that needs beside `{name}`.",
            "Import `Path` after `{name}` and open files through it.",
        ),
        (
            Form(PYTHON, (
                PatternAction(pattern="open($A)", rewrite="Path($A).open()"),
                PatternAction(pattern="import {name}", rewrite="import {name}\nfrom pathlib import Path"),
            )),
        ), "module", fits=lambda site: site.key == "whole",
    ),
    Family(
        "null_check_with_import", "import",
        (
            "Test for null by `Objects` and import that beside `{name}`.",
            "Comparisons with null become calls of `Objects`; add the import after that of `{name}`.",
            "Use `Objects` for null checks, import included.",
        ),
        (
            Form(JAVA, (
                PatternAction(pattern="$A == null", rewrite="Objects.isNull($A)"),
                PatternAction(pattern="import {name};", rewrite="import {name};\nimport java.util.Objects;"),
            )),
        ), "module",
    ),
)  # fmt: skip
