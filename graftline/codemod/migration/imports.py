"""Imports follow what rules did to a file: what became unbound is imported, what became unused is dropped.

Where a name comes from is told by the other files of the repository, and by the import of the name that it replaces. A
name counts as used while its word stands anywhere outside of imports, strings and comments included, unless behind a
dot. Only the statements at the top of a file are written, in its own order and style.
"""

import builtins
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from graftline.astgrep.binding import Language, find_all, outline_once
from graftline.codemod.grammar import KEYWORDS
from graftline.core.errors import DataError

IMPORT_STATEMENTS = frozenset(
    ("import_statement", "import_from_statement", "import_declaration", "future_import_statement")
)
IMPORT_KINDS: Mapping[Language, tuple[str, ...]] = {
    "python": ("import_statement", "import_from_statement"),
    "java": ("import_declaration",),
}
"""Of other languages it is `import_statement`."""
_FUTURE: Mapping[Language, tuple[str, ...]] = {"python": ("future_import_statement",)}
_NEVER_IMPORTED = re.compile(r"[()\[\]'\"|+&]")
_ROOT_WORD = re.compile(r"(?<![\w.$])[^\W\d][\w$]*")
_JAVA = re.compile(r"import\s+(static\s+)?([\w.]+)\.(\w+|\*)\s*;")
_PYTHON_FROM = re.compile(r"from\s+([\w.]+)\s+import\s+(.*)", re.DOTALL)
_SCRIPT = re.compile(r"import\s+(type\s+)?(.*?)\s*from\s*(['\"])(.*?)\3(;?)$", re.DOTALL)
_BUILTINS = frozenset(dir(builtins))
_MAX_LINE = 79


@dataclass(frozen=True, slots=True)
class Source:
    """Where a name comes from: `name` of `module`, or the module itself (`*`), or its default (`default`)."""

    module: str
    name: str
    is_static: bool = False
    quote: str = "'"
    end: str = ""
    """Semicolon of a JavaScript statement."""


@dataclass
class Statement:
    """An import statement at the top of a file."""

    start: int
    end: int
    text: str
    names: dict[str, Source] = field(default_factory=dict)
    """What it binds, by the name in the file."""

    @property
    def module(self) -> str:
        """The module of its first name."""
        return next((source.module for source in self.names.values()), "")


def is_importable(text: str, language: Language) -> bool:
    """Return whether `text` may stand for a name in an import: no call, string or operator, and no name that Python has anyway."""
    return not _NEVER_IMPORTED.search(text) and not (language == "python" and text in _BUILTINS)


def list_import_lines(text: str, language: Language) -> frozenset[int]:
    """Return the lines, from 0, of the import statements of a file; none where it cannot be parsed."""
    kinds = (*IMPORT_KINDS.get(language, ("import_statement",)), *_FUTURE.get(language, ()))
    try:
        nodes = find_all(outline_once(text, language).root, {"any": [{"kind": kind} for kind in kinds]})
    except DataError:
        return frozenset()
    lines = set[int]()
    for node in nodes:
        span = node.range()
        # a line end behind it may be a part of a statement
        lines |= {*range(span.start.line, span.end.line + (span.end.column > 0 or span.start.line == span.end.line))}
    return frozenset(lines)


@dataclass(frozen=True, slots=True)
class NameChanges:
    """What the names of a file became when rules changed it."""

    statements: list[Statement]
    """The imports of the new text."""
    unused: frozenset[str]
    """What it imports and uses no more."""
    missing: tuple[str, ...]
    """Words that it has now, and neither imports nor defines."""
    of_code: frozenset[str]
    """Those of them that are names of code, and not words of strings alone."""


def compare_names(before: str, after: str, language: Language) -> NameChanges:
    """Return what became of the names of `before`; DataError if one of the texts cannot be parsed."""
    statements, old_statements = read_imports(after, language), read_imports(before, language)
    old_words, words = list_words(before, old_statements), list_words(after, statements)
    bound = {name for statement in statements for name in statement.names}
    unused = frozenset(name for name in bound if name in old_words and name not in words)
    plain = KEYWORDS[language] | (_BUILTINS if language == "python" else frozenset())
    missing = sorted(name for name in words - old_words - bound - plain if not is_defined(name, after))
    of_code = frozenset(name for name in missing if _is_code(name, after, language))
    return NameChanges(statements, unused, tuple(missing), of_code)


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
    added = {name: source for name, source in from_others.items() if _is_reachable(source, after, path, language)}
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


def read_imports(text: str, language: Language) -> list[Statement]:
    """Return the import statements at the top level of `text`; DataError if it cannot be parsed."""
    tree = outline_once(text, language)
    statements = []
    for node in tree.root.children:
        if node.kind in IMPORT_STATEMENTS:
            end = node.end
            while end > node.start and text[end - 1].isspace():
                end -= 1
            statement = Statement(node.start, end, text[node.start : end])
            statement.names.update(_names_of(statement.text, language))
            statements.append(statement)
    return statements


class Sources:
    """Where names come from in most of some texts; each is looked up when it is first asked for, and never most of them."""

    def __init__(
        self,
        texts: Sequence[tuple[str, Language]],
        statements: Mapping[tuple[str, Language], Sequence[Statement]] = MappingProxyType({}),
    ) -> None:
        """`statements` are the imports of those texts that were read already."""
        self._texts, self._statements = texts, dict(statements)
        self._by_name: dict[str, Source | None] = {}

    def find(self, name: str) -> Source | None:
        """Return where `name` comes from; None where no text tells, or several places are told alike often."""
        if name not in self._by_name:
            counts = Counter(source for text, language in self._texts for source in self._list(name, text, language))
            ranked = counts.most_common(2)
            is_clear = len(ranked) == 1 or (len(ranked) == 2 and ranked[0][1] > ranked[1][1])
            self._by_name[name] = ranked[0][0] if is_clear else None
        return self._by_name[name]

    def _list(self, name: str, text: str, language: Language) -> Iterator[Source]:
        if name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            with suppress(DataError):
                if (text, language) not in self._statements:
                    self._statements[text, language] = read_imports(text, language)
                for statement in self._statements[text, language]:
                    if name in statement.names:
                        yield statement.names[name]


def _names_of(text: str, language: Language) -> Iterator[tuple[str, Source]]:
    if language == "java":
        if match := _JAVA.fullmatch(text):
            yield match[3], Source(match[2], match[3], bool(match[1]))
    elif language == "python":
        if match := _PYTHON_FROM.fullmatch(text):
            if "#" not in match[2]:
                for item in match[2].strip("() \n").split(","):
                    name, _, alias = item.strip().partition(" as ")
                    if name.strip():
                        yield (alias or name).strip(), Source(match[1], name.strip())
        elif text.startswith("import "):
            for item in text.removeprefix("import ").split(","):
                name, _, alias = item.strip().partition(" as ")
                yield (alias or name.partition(".")[0]).strip(), Source(name.strip(), "*" if not alias else f"*{alias}")
    elif match := _SCRIPT.fullmatch(text):
        clause, end = match[2], match[5]
        head, _, inner = clause.partition("{")
        default = head.strip().rstrip(",").strip()
        kind = (match[1] or "").strip()
        if default.startswith("*"):
            yield default.rpartition(" ")[2], Source(match[4], f"{kind}*", False, match[3], end)
        elif default:
            yield default, Source(match[4], f"{kind}default", False, match[3], end)
        for item in inner.partition("}")[0].split(","):
            name, _, alias = item.strip().partition(" as ")
            if name.strip():
                yield (
                    (alias or name).removeprefix("type ").strip(),
                    Source(match[4], f"{kind} {name.strip()}".strip(), False, match[3], end),
                )


def list_words(text: str, statements: Sequence[Statement]) -> set[str]:
    """Return the words of `text` outside of its imports, those behind a dot aside."""
    pieces: list[str] = []
    position = 0
    for statement in statements:
        pieces.append(text[position : statement.start])
        position = statement.end
    return set(_ROOT_WORD.findall("".join([*pieces, text[position:]])))


def _is_code(name: str, text: str, language: Language) -> bool:
    """Return whether a name of code is `name`, and not a word of a string alone."""
    nodes = find_all(outline_once(text, language).root, {"regex": f"^{re.escape(name)}$"})
    return any(node.kind().endswith("identifier") for node in nodes)


def is_defined(name: str, text: str) -> bool:
    """Return whether `text` may give something the name `name`, by its words alone."""
    quoted = re.escape(name)
    return bool(
        re.search(
            rf"\b(def|class|function|const|let|var|interface|enum|type)\s+{quoted}\b|\b{quoted}\s*[:=](?!=)"
            rf"|\bfor\s+{quoted}\b|\bas\s+{quoted}\b",
            text,
        )
    )


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
            if _is_at_home(statements, number, pending[name], language):
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
        match = _JAVA.fullmatch(text)
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


def _is_at_home(statements: Sequence[Statement], number: int, source: Source, language: Language) -> bool:
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
    alike = [n for n, s in enumerate(statements) if _group_of(s.text, language) == group]
    same_form = [n for n in alike if _sort_key(statements[n].text, language)[0] == key[0]]
    candidates = same_form or alike
    if language in ("python", "java") and candidates:
        later = [n for n in candidates if _sort_key(statements[n].text, language) > key]
        if later:
            number, is_before = later[0], True
        else:
            number, is_before = candidates[-1], False
    elif language == "java":
        static = [n for n, s in enumerate(statements) if _sort_key(s.text, language)[0] == key[0]]
        later = [n for n in static if _sort_key(statements[n].text, language) > key]
        number, is_before = (later[0], True) if later else (len(statements) - 1, False)
        separator = "\n\n"
        current = texts[number]
        texts[number] = f"{new}{separator}{current or ''}" if is_before else f"{current or ''}{separator}{new}"
        return
    elif language == "python":
        is_standard = group == "standard"
        future = [n for n, s in enumerate(statements) if "__future__" in s.text]
        number, is_before = (future[-1] + 1 if future else 0, True) if is_standard else (len(statements) - 1, False)
        number = min(number, len(statements) - 1)
        current = texts[number]
        separator = "\n\n" if not (future and number == future[-1]) else "\n"
        texts[number] = f"{new}{separator}{current or ''}" if is_before else f"{current or ''}\n{new}"
        return
    else:
        number, is_before = len(statements) - 1, False
    current = texts[number]
    if current is None:
        texts[number] = new
    else:
        texts[number] = f"{new}\n{current}" if is_before else f"{current}\n{new}"


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
