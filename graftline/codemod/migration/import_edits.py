"""Import statements follow what rules did to a file: what became unbound is imported, what became unused is dropped.

Only the statements at the top of a file are written, in its own order and style.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence

from graftline.astgrep.binding import Language
from graftline.codemod.migration.imports import JAVA_IMPORT, NameChanges, Source, Statement

_MAX_LINE = 79


def follow_imports(
    names: NameChanges,
    after: str,
    path: str,
    language: Language,
    find_source: Callable[[str], Source | None],
    renamed: Mapping[str, str],
) -> tuple[str, frozenset[str]]:
    """Return `after` with the imports that it needs and without those that it needs no longer, and names it lacks.

    `names` is what `compare_names` says of it, `find_source` says where a name comes from, and `renamed` which names rules
    put in the place of others.
    """
    statements, unused, missing = names.statements, names.unused, names.missing
    swaps: dict[str, str] = {}
    named = {name for s in statements for name, source in s.names.items() if source.name.split(" ")[-1] == name}
    for old, new in renamed.items():
        # what is imported whole is another module, not another of its names
        if old in unused & named and new in missing and find_source(new) is None:
            swaps[old] = new
    from_others = {name: source for name in missing if (source := find_source(name)) is not None}
    added = {
        name: source
        for name, source in from_others.items()
        # what a string says is a name where it takes the place of one that was imported
        if (name in names.of_code or unused) and _is_reachable(source, after, path, language)
    }
    unknown = [name for name in missing if name not in from_others and name not in swaps.values()]
    lacking = names.of_code.intersection(unknown)
    if not unused and not added and not swaps:
        return after, lacking
    return _rewrite(after, language, statements, unused, added, swaps), lacking


def _is_reachable(source: Source, text: str, path: str, language: Language) -> bool:
    """Return whether the statement that imports a name elsewhere would do in this file."""
    if language == "java":
        return not re.search(rf"^package\s+{re.escape(source.module)}\s*;", text, re.MULTILINE) or source.is_static
    if source.module.startswith("."):
        return False
    return language != "python" or not path.removesuffix(".py").replace("/", ".").endswith(source.module)


def _rewrite(
    text: str,
    language: Language,
    statements: Sequence[Statement],
    unused: frozenset[str],
    added: Mapping[str, Source],
    swaps: Mapping[str, str],
) -> str:
    pending = dict(added)
    texts: list[str | None] = []
    for statement in statements:
        new: str | None = statement.text
        own = [name for name in statement.names if name in swaps]
        for name in own:
            new = re.sub(rf"\b{re.escape(name)}\b(?!.*\b{re.escape(name)}\b)", swaps[name], new or "", flags=re.DOTALL)
        gone = [name for name in statement.names if name in unused and name not in swaps]
        come = [name for name, source in pending.items() if _extends(statement, source, language)]
        if gone and len(gone) == len(statement.names) and not come:
            new = None
        elif gone or come or own:
            new = _edit_items(new or "", language, gone, {name: pending.pop(name) for name in come}, bool(own))
        texts.append(new)
    # one statement that goes makes room for one that comes
    for number in range(len(statements)):
        if texts[number] is None and pending:
            name = next(iter(pending))
            if _can_replace(statements, number, pending[name], language):
                texts[number] = _statement(name, pending.pop(name), language)
    for name, source in pending.items():
        _insert(statements, texts, name, source, language)
    return _assemble(text, statements, texts, language, pending)


def _extends(statement: Statement, source: Source, language: Language) -> bool:
    """Return whether a name can be added to a statement."""
    if language == "java" or not statement.names:
        return False
    first = next(iter(statement.names.values()))
    if language == "python":
        return statement.text.startswith("from ") and first.module == source.module and "*" not in source.name
    return (
        first.module == source.module
        and "{" in statement.text
        and "default" not in source.name
        and source.name.startswith("type ") == first.name.startswith("type ")
    )


def _edit_items(text: str, language: Language, gone: Sequence[str], come: Mapping[str, Source], is_new: bool) -> str:
    """Return a statement with items taken out and put in, in its order if it has one."""
    if language == "java":
        return text
    if language == "python":
        match = re.fullmatch(r"((?:from\s+[\w.]+\s+)?import\s+)(\(?)(.*?)(\)?)", text, re.DOTALL)
    else:
        match = re.fullmatch(r"(import[^{]*)(\{)(.*)(\}.*)", text, re.DOTALL)
    if match is None:
        return text
    body = match[3]
    items = [item.strip() for item in body.split(",") if item.strip()]
    before = items[:]
    is_sorted, key = _order(items)
    items = [item for item in items if _bound(item) not in gone]
    for name, source in come.items():
        item = source.name.removeprefix("type ") if source.name.removeprefix("type ") == name else name
        if item not in items:
            items.append(item)
    if is_sorted:
        items.sort(key=key)
    if items == before and not is_new:
        return text
    if language != "python" and not items:
        head = match[1].rstrip().rstrip(",")
        return f"{head} {match[4].lstrip('}').lstrip()}" if head != "import" else text
    if "\n" in body:
        lines = body.split("\n")
        indent = re.match(r"\s*", next(line for line in lines if line.strip()))
        is_one_each = sum(bool(line.strip()) for line in lines) >= len(before) > 0
        space = indent[0] if indent and not lines[0].strip() else "    "
        if is_one_each:
            comma = "," if body.rstrip().endswith(",") else ""
            return f"{match[1]}{match[2]}\n" + ",\n".join(space + item for item in items) + f"{comma}\n{match[4]}"
        return _wrap(match[1], match[2], items, match[4], body)
    padding = " " if body.startswith(" ") and match[2] == "{" else ""
    line = f"{match[1]}{match[2]}{padding}{', '.join(items)}{padding}{match[4]}"
    if language == "python" and len(line) > _MAX_LINE and not match[2] and len(items) > len(before):
        return _wrap(match[1], "(", items, ")", "")
    return line


def _wrap(head: str, opening: str, items: Sequence[str], closing: str, body: str) -> str:
    """Return a statement whose items fill lines, as its own did."""
    hangs = bool(body) and not body.startswith("\n")
    indent = " " * len(head + opening) if hangs else "    "
    lines, line = [], ""
    for number, item in enumerate(items):
        piece = item + ("," if number + 1 < len(items) else "")
        if line and len(indent) + len(line) + 1 + len(piece) + 1 > _MAX_LINE:
            lines.append(line)
            line = piece
        else:
            line = f"{line} {piece}".strip()
    lines.append(line)
    if hangs:
        return f"{head}{opening}" + f"\n{indent}".join(lines) + closing
    tail = "\n" if body.endswith("\n") else ""
    return f"{head}{opening}\n" + "\n".join(indent + line for line in lines) + f"{tail}{closing}"


def _bound(item: str) -> str:
    name, _, alias = item.partition(" as ")
    return (alias or name).removeprefix("type ").strip()


def _order(items: Sequence[str]) -> tuple[bool, Callable[[str], tuple[int, str]]]:
    """Return whether items are sorted, and by what: their texts, these in lower case, or constants and classes first."""

    def by_case(item: str) -> tuple[int, str]:
        return (0 if item.isupper() and len(item) > 1 else 1 if item[:1].isupper() else 2, item)

    keys: list[Callable[[str], tuple[int, str]]] = [lambda item: (0, item), lambda item: (0, item.lower()), by_case]
    for key in keys:
        if list(items) == sorted(items, key=key):
            return True, key
    return False, by_case


def _statement(name: str, source: Source, language: Language) -> str:
    if language == "java":
        return f"import {'static ' if source.is_static else ''}{source.module}.{source.name};"
    if language == "python":
        if source.name == "*":
            return f"import {source.module}"
        if source.name.startswith("*"):
            return f"import {source.module} as {name}"
        return f"from {source.module} import {source.name}{f' as {name}' if source.name != name else ''}"
    kind = "type " if source.name.startswith("type") else ""
    plain = source.name.removeprefix("type").strip()
    clause = (
        f"* as {name}"
        if plain == "*"
        else name
        if plain == "default"
        else f"{{ {name if plain == name else f'{plain} as {name}'} }}"
    )
    return f"import {kind}{clause} from {source.quote}{source.module}{source.quote}{source.end}"


def _sort_key(text: str, language: Language) -> tuple[int, str]:
    if language == "java":
        match = JAVA_IMPORT.fullmatch(text)
        return (1 if match and match[1] else 0, text.removeprefix("import ").removeprefix("static ").rstrip(";"))
    if language == "python":
        return (1 if text.startswith("from") else 0, text.split()[1] if len(text.split()) > 1 else "")
    return (0, "")


def _group_of(text: str, language: Language) -> str:
    """Return what statements that stand together share: the first part of the module, or that it is the standard library's."""
    key = _sort_key(text, language)
    first = key[1].split(".")[0]
    if language == "java":
        return ("static " if key[0] else "") + first
    if language == "python":
        return "standard" if first in sys.stdlib_module_names else (first or ".")
    return ""


def _can_replace(statements: Sequence[Statement], number: int, source: Source, language: Language) -> bool:
    """Return whether a new statement may take the place of one that goes."""
    if language == "java":
        return False
    if language != "python":
        return True
    return _group_of(statements[number].text, language) == _group_of(_statement("x", source, language), language)


def _insert(
    statements: Sequence[Statement], texts: list[str | None], name: str, source: Source, language: Language
) -> None:
    """Put a new statement beside the one that it follows, or goes before, in the order of the file."""
    new = _statement(name, source, language)
    if not statements:
        return
    group, key = _group_of(new, language), _sort_key(new, language)
    # nothing of Python may stand before these
    future = [n for n, s in enumerate(statements) if language == "python" and "__future__" in s.text]
    alike = [n for n, s in enumerate(statements) if n not in future and _group_of(s.text, language) == group]
    same_form = [n for n in alike if _sort_key(statements[n].text, language)[0] == key[0]]
    candidates = same_form or alike
    separator = "\n"
    if language in ("python", "java") and candidates:
        later = [n for n in candidates if _sort_key(statements[n].text, language) > key]
        number, is_before = (later[0], True) if later else (candidates[-1], False)
    elif language == "java":
        static = [n for n, s in enumerate(statements) if _sort_key(s.text, language)[0] == key[0]]
        later = [n for n in static if _sort_key(statements[n].text, language) > key]
        number, is_before = (later[0], True) if later else (len(statements) - 1, False)
        separator = "\n\n"
    elif language == "python" and group == "standard":
        number, is_before, separator = (future[-1], False, "\n\n") if future else (0, True, "\n\n")
    else:
        number, is_before = len(statements) - 1, False
        separator = "\n\n" if number in future else "\n"
    current = texts[number]
    if current is None:  # what goes leaves its line, and no blank ones
        texts[number] = new
    else:
        texts[number] = separator.join((new, current) if is_before else (current, new))


def _assemble(
    text: str,
    statements: Sequence[Statement],
    texts: Sequence[str | None],
    language: Language,
    pending: Mapping[str, Source],
) -> str:
    pieces: list[str] = []
    position = 0
    for statement, new in zip(statements, texts, strict=True):
        start, end = statement.start, statement.end
        if new is None:
            # the line goes, and with it an empty one where two would meet
            line_end = text.find("\n", end)
            end = len(text) if line_end < 0 else line_end + 1
            before = "".join(pieces) + text[position:start]
            is_alone = (before.endswith("\n\n") or not before) and text[end : end + 1] == "\n"
            while is_alone and text[end : end + 1] == "\n":
                end += 1
                is_alone = not before  # at the top, all of them
        pieces += [text[position:start], new or ""]
        position = end
    result = "".join([*pieces, text[position:]])
    if not statements and pending:
        lines = "".join(_statement(name, source, language) + "\n" for name, source in pending.items())
        return lines + "\n" + result
    return result
