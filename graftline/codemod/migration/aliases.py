"""A name that an edit imports as another one: in every file that changes, the import and the code follow, or neither."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from graftline.astgrep.binding import Language, Node, Tree, outline_once
from graftline.codemod.change import bound_names
from graftline.codemod.migration.imports import IMPORT_STATEMENTS, Statement, list_words, read_imports
from graftline.core.errors import DataError


class Imported(NamedTuple):
    """What is imported, by whatever name: `*` of a module is the module itself."""

    module: str
    name: str


class Alias(NamedTuple):
    """The names of what is imported, before and after."""

    old: str
    new: str


def find_aliases(before: str, after: str, language: Language) -> dict[Imported, Alias]:
    """Return what `before` imports by one name and `after` by another."""
    try:
        old, new = (_names_of(read_imports(text, language), language) for text in (before, after))
    except DataError:
        return {}
    return {
        key: Alias(old[key], name)
        for key, name in new.items()
        if key in old and old[key] != name and old[key] not in new.values()
    }


def follow_aliases(before: str, after: str, aliases: Mapping[Imported, Alias], language: Language) -> str | None:
    """Return `after`, which rules made of `before`, with what both import under the new names alone.

    None where a new name has another meaning in the file, or an old one is bound a second time.
    """
    for key, alias in aliases.items():
        try:
            old_statements = read_imports(before, language)
            if _names_of(old_statements, language).get(key) != alias.old:
                continue
            tree = outline_once(after, language)
            bound = set(bound_names(tree))
            if alias.new in list_words(before, old_statements) | bound or alias.old in bound:
                return None
            statements = read_imports(after, language)
            edits = [*_name_uses(tree, alias)]
        except DataError:
            return None
        if len(statements) == len(old_statements):
            edits += _alias_statements(old_statements, statements, key, alias, language)
        for start, end, text in sorted(edits, reverse=True):
            after = after[:start] + text + after[end:]
    return after


def _names_of(statements: list[Statement], language: Language) -> dict[Imported, str]:
    names = {}
    for statement in statements:
        for name, source in statement.names.items():
            is_whole = source.name.startswith("*")
            # `import a.b` is used as `a.b`
            used = source.module if source.name == "*" and language == "python" else name
            names[Imported(source.module, "*" if is_whole else source.name)] = used
    return names


def _name_uses(tree: Tree, alias: Alias) -> Iterator[tuple[int, int, str]]:
    """Yield where the code, imports aside, uses the old name, and what stands there then."""
    pending = [tree.root]
    while pending:
        node = pending.pop()
        if node.kind in IMPORT_STATEMENTS:
            continue
        if node.is_named and tree.of(node) == alias.old and _is_use(tree, node):
            is_short = node.kind == "shorthand_property_identifier"
            yield node.start, node.end, f"{alias.old}: {alias.new}" if is_short else alias.new
        elif node.end - node.start >= len(alias.old):
            pending += node.children


def _is_use(tree: Tree, node: Node) -> bool:
    if not re.search(r"identifier$|^attribute$", node.kind) or node.kind == "property_identifier":
        return False
    is_keyword = node.parent is not None and node.parent.kind == "keyword_argument" and node.index == 0
    return not is_keyword and not tree.text[: node.start].rstrip().endswith(".")


def _alias_statements(
    old: list[Statement], new: list[Statement], key: Imported, alias: Alias, language: Language
) -> Iterator[tuple[int, int, str]]:
    """Yield the statements that rules changed by renaming alone, as they were but for the alias."""
    for before, after in zip(old, new, strict=True):
        is_importing = _names_of([before], language).get(key) == alias.old
        text = _alias_item(before.text, key, alias, language) if is_importing else before.text
        word = re.compile(rf"\b{re.escape(alias.old)}\b")
        if after.text in (before.text, *(word.sub(alias.new, form) for form in (before.text, text))):
            yield after.start, after.end, text


def _alias_item(text: str, key: Imported, alias: Alias, language: Language) -> str:
    name = key.module if key.name == "*" else key.name
    if language != "python" and (key.name.endswith("*") or key.name.endswith("default")):
        return re.sub(rf"\b{re.escape(alias.old)}\b", alias.new, text, count=1)
    item = name if name == alias.new else f"{name} as {alias.new}"
    return re.sub(rf"(?<![\w.$]){re.escape(name)}(?:\s+as\s+[\w$]+)?(?=\s*(?:[,)}}]|$))", item, text, count=1)
