"""What files import, where names come from, and what rules did to the names of a file.

Where a name comes from is told by the other files of the repository. A name counts as used while its word stands anywhere
outside of imports, strings and comments included, unless behind a dot.
"""

import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
JAVA_IMPORT = re.compile(r"import\s+(static\s+)?([\w.]+)\.(\w+|\*)\s*;")
_PYTHON_FROM = re.compile(r"from\s+([\w.]+)\s+import\s+(.*)", re.DOTALL)
_SCRIPT = re.compile(r"import\s+(type\s+)?(.*?)\s*from\s*(['\"])(.*?)\3(;?)$", re.DOTALL)
_BUILTINS = frozenset(dir(builtins))


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
    old_lines, lines = _leave_out(before, old_statements).split("\n"), _leave_out(after, statements).split("\n")
    shared = frozenset(old_lines).intersection(lines)
    # mostly few lines differ, and few words of theirs have to be looked for in the others
    gone, come = (
        set(_ROOT_WORD.findall("\n".join(line for line in side if line not in shared))) for side in (old_lines, lines)
    )
    same_lines = "\n".join(line for line in lines if line in shared)

    def is_elsewhere(name: str) -> bool:
        return name in same_lines and bool(re.search(rf"(?<![\w.$]){re.escape(name)}(?![\w$])", same_lines))

    bound = {name for statement in statements for name in statement.names}
    unused = frozenset(name for name in bound & gone - come if not is_elsewhere(name))
    plain = KEYWORDS[language] | (_BUILTINS if language == "python" else frozenset())
    new = (name for name in come - gone - bound - plain if not is_elsewhere(name))
    missing = sorted(name for name in new if not is_defined(name, after))
    of_code = frozenset(name for name in missing if _is_code(name, after, language))
    return NameChanges(statements, unused, tuple(missing), of_code)


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
        if match := JAVA_IMPORT.fullmatch(text):
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
    return set(_ROOT_WORD.findall(_leave_out(text, statements)))


def _leave_out(text: str, statements: Sequence[Statement]) -> str:
    pieces: list[str] = []
    position = 0
    for statement in statements:
        pieces.append(text[position : statement.start])
        position = statement.end
    return "".join([*pieces, text[position:]])


def _is_code(name: str, text: str, language: Language) -> bool:
    """Return whether a name of code is `name`, and not a word of a string, or what is behind a dot, alone."""
    nodes = find_all(outline_once(text, language).root, {"regex": f"^{re.escape(name)}$"})
    names = (node.range().start.index for node in nodes if node.kind().endswith("identifier"))
    return any(text[max(0, start - 1) : start] != "." for start in names)


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
