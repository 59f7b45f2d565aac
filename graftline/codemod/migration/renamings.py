"""Rules that rename: a name in every syntactic place, in its own, or what is put before or behind it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graftline.astgrep.action import RuleAction
from graftline.astgrep.binding import JAVASCRIPT, Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.candidates import rust_regex
from graftline.codemod.canonical import list_required_words
from graftline.codemod.change import Change
from graftline.codemod.diff import Site, apply_sites
from graftline.codemod.migration.imports import IMPORT_KINDS, IMPORT_STATEMENTS, is_importable, read_imports
from graftline.codemod.migration.option import NAME, Option, make_option, transform_rule
from graftline.codemod.migration.surroundings import find_covering_chain, list_contexts
from graftline.core.errors import DataError

_NAMES: Mapping[Language, tuple[str, ...]] = {
    "python": ("identifier",),
    "java": ("identifier", "type_identifier"),
    **dict.fromkeys(
        JAVASCRIPT,
        (
            *("identifier", "property_identifier", "shorthand_property_identifier"),
            *("shorthand_property_identifier_pattern", "type_identifier"),
        ),
    ),
}
_TYPELESS = {"javascript": {"type_identifier"}}
_TEXTS: Mapping[Language, tuple[str, ...]] = {
    "python": ("string_content", "comment"),
    "java": ("string_fragment", "line_comment", "block_comment"),
    **dict.fromkeys(JAVASCRIPT, ("string_fragment", "comment")),
}
_NODE_MODULES = (
    "assert|buffer|child_process|cluster|console|constants|crypto|dgram|diagnostics_channel|dns|domain|events"
    "|fs|http|http2|https|inspector|module|net|os|path|perf_hooks|process|punycode|querystring|readline|repl"
    "|stream|string_decoder|timers|tls|trace_events|tty|url|util|v8|vm|wasi|worker_threads|zlib"
)
"""Modules that are a part of Node.js: a string that is one of them is likely to stand for all."""
_NAMES_OF = re.compile(r"[^\W\d][\w$]*")
_RENAMED = re.compile(r"""([\w$.]*[\w$])(\(\))?[`'"]*\s*(->|=>|→|\bto\b|\bwith\b|\bby\b)\s*[`'"]*([\w$.]*[\w$])""")
_ARROWS = ("->", "=>", "→")
_REPLACES = re.compile(r"\b(renam|replac|chang|migrat|switch|convert|mov)", re.IGNORECASE)
_TELLING = re.compile(r".[_A-Z]")
_LEAST_TELLING = 6
"""Characters of a name that is looked for in strings and comments."""


def list_renamings(change: Change, site: Site, instruction: str) -> Iterator[Option]:
    """Yield the options that rename what stands at a difference."""
    yield from _names(change, site, instruction)
    yield from _affixes(change, site)


def rename_everywhere(old: str, new: str, language: Language) -> Iterator[Option]:
    """Yield the renaming of a name in code, and in strings, comments and compound names as well."""
    identifiers, quoted = _list_identifiers(language), rust_regex(old)
    names = {"any": identifiers, "regex": f"^{quoted}$"} | _outside_imports(new, language)
    yield make_option(names, new, "name", "any", language, old)
    if len(old) < _LEAST_TELLING or not _TELLING.search(old):
        return
    part, by = rf"(^|_){quoted}(_|$)", new.replace("$", "$$")
    compound = {"any": identifiers, "regex": part, "not": {"regex": f"^{quoted}$"}}
    further = (transform_rule(compound, [(part, f"${{1}}{by}${{2}}")]), _rename_in_texts(old, new, language))
    first = make_option(names, new, "name", "text", language, old)
    yield replace(first, actions=(*first.actions, *further), words=frozenset(), parts=frozenset((old,)))


def rename_words(old: str, new: str, language: Language) -> tuple[RuleAction, RuleAction]:
    """Return the renaming of a name in code, and that of the word in strings and comments."""
    names = RuleAction(rule={"any": _list_identifiers(language), "regex": f"^{rust_regex(old)}$"}, fix=new)
    return names, _rename_in_texts(old, new, language)


def _list_identifiers(language: Language) -> list[dict[str, str]]:
    """Return the rules for all kinds of names."""
    return [{"kind": kind} for kind in _NAMES[language] if kind not in _TYPELESS.get(language, ())]


def _rename_in_texts(old: str, new: str, language: Language) -> RuleAction:
    word = rf"\b{rust_regex(old)}\b"
    texts = {"any": [{"kind": kind} for kind in _TEXTS[language]], "regex": word}
    return transform_rule(texts, [(word, new.replace("$", "$$"))])


def drop_qualifiers(before: str, after: str, language: Language) -> Iterator[Option]:
    """Yield what an edit of imports alone shows, if it imports members: that they are written without their owner.

    import static org.mockito.Mockito.mock;   shows   Mockito.mock($$$A) -> mock($$$A)
    """
    try:
        old, new = ([*read_imports(text, language)] for text in (before, after))
    except DataError:
        return
    bound = {name for statement in old for name in statement.names}
    for name, source in ((n, s) for statement in new for n, s in statement.names.items() if n not in bound):
        owner = re.split(r"[./]", source.module)[-1]
        if source.name != name or not NAME.fullmatch(owner) or (language == "java" and not source.is_static):
            continue
        for pattern, fix in ((f"{owner}.{name}($$$A)", f"{name}($$$A)"), (f"{owner}.{name}", name)):
            yield make_option({"pattern": pattern}, fix, "shape", "any", language, f"{owner}.{name}")


def read_renaming(instruction: str) -> tuple[str, str] | None:
    """Return the name that a sentence says is replaced, and the new one; None if it says no such thing.

    `a.old_name -> a.new_name` is the renaming of `old_name`.
    """
    for match in _RENAMED.finditer(instruction):
        old, new = match[1].split("."), match[4].split(".")
        is_name = len(old[-1]) >= _LEAST_TELLING and bool(_TELLING.search(old[-1]))
        is_told = match[3] in _ARROWS or bool(_REPLACES.search(instruction[: match.start()]))
        if old[:-1] == new[:-1] and old != new and is_name and is_told:
            return old[-1], new[-1]
    return None


def _names(change: Change, site: Site, instruction: str) -> Iterator[Option]:
    """Yield the renaming of a name: in every kind of node, in its own, and by its place."""
    node = find_covering_chain(change.before, site)[-1]
    old = change.before.of(node)
    if node.children or site.start < node.start or site.end > node.end or not NAME.fullmatch(old):
        return
    new = apply_sites(change.before.text, [site], node.start, node.end)
    if not new.strip() or "\n" in new:
        return
    rule = {"regex": f"^{rust_regex(old)}$"}
    kinds = [kind for kind in _NAMES[change.language] if kind not in _TYPELESS.get(change.language, ())]
    if NAME.fullmatch(new) and node.kind in kinds:
        is_told = old in _NAMES_OF.findall(instruction)
        yield from list(rename_everywhere(old, new, change.language))[: 2 if is_told else 1]
    package, _, name = new.rpartition(".")
    statement = node.parent.parent if node.parent else None
    if name == old and package and node.parent and statement and change.before.of(node.parent) == old:
        yield from _move_module(old, package, statement.kind)
    if node.is_named:
        for context, condition in list_contexts(change.before, node):
            is_own = {"kind": node.kind, **rule, **_outside_imports(new, change.language), **condition}
            yield make_option(is_own, new, "name", context if context != "any" else "kind", change.language, old)


def _move_module(name: str, package: str, statement: str) -> Iterator[Option]:
    """Yield the move of a module of Python into the package `package`, in both kinds of imports."""
    if statement != "import_from_statement":
        return
    module = {"kind": "dotted_name", "regex": f"^{name}$", "inside": {"kind": statement, "field": "module_name"}}
    whole = {"kind": "import_statement", "regex": rf"^import {name}( as \w+)?$"}
    actions = (
        RuleAction(rule=module, fix=f"{package}.{name}"),
        transform_rule(whole, [("^import", f"from {package} import")]),
    )
    yield Option(actions, "name", "module", frozenset((name, "import")))


def _outside_imports(new: str, language: Language) -> dict[str, Any]:
    """Return the condition that keeps from imports what nothing can be imported by: no name, and what Python has anyway."""
    if is_importable(new, language):
        return {}
    kinds = [{"kind": kind} for kind in IMPORT_KINDS.get(language, ("import_statement",))]
    return {"not": {"inside": {"any": kinds, "stopBy": "end"}}}


def _affixes(change: Change, site: Site) -> Iterator[Option]:
    """Yield what is put before or behind a string or a name, whatever it says, by its place."""
    chain = find_covering_chain(change.before, site)
    node = chain[-1]
    old = change.before.of(node)
    inside = change.inside(node.start, node.end)
    if node.children or not node.is_named or inside is None or not re.fullmatch(r"[\w$./-]+", old):
        return
    if node.kind.endswith("identifier") and any(outer.kind in IMPORT_STATEMENTS for outer in chain):
        return  # what other modules define keeps its name
    new = apply_sites(change.before.text, [site for _, site in inside], node.start, node.end)
    head, middle, tail = new.partition(old)
    if not middle or not (head or tail) or "\n" in new or VARIABLE.search(new):
        return
    form = r"^[A-Za-z][\w$/-]*$" if "." not in old else r"^[\w$./-]+$"
    if re.fullmatch(rf"({_NODE_MODULES})(/\w+)?", old):
        form = rf"^({_NODE_MODULES})(/\w+)?$"
    excluded = {"not": {"regex": f"^{rust_regex(head)}"}} if head else {"not": {"regex": f"{rust_regex(tail)}$"}}
    for context, condition in list_contexts(change.before, node):
        if context in ("second", "aunt"):
            rule = {"pattern": "$WHOLE", "kind": node.kind, "regex": form, **excluded, **condition}
            action = RuleAction(rule=rule, fix=f"{head}$WHOLE{tail}")
            yield Option((action,), "affix", context, list_required_words(action, change.language))
