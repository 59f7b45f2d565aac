"""Where in a text something stands, for those who talk about it: lines, the definitions round them, look-alikes."""

import re
from collections import Counter
from collections.abc import Sequence

from graftline.astgrep.binding import Node, Tree
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.keywords import KEYWORDS
from graftline.rollouts.teachers.wording import quoted

_DEFINITION = re.compile(
    r"^(async_)?(function|generator_function|class|method|constructor|interface|enum|record|abstract_class)"
    r"_(definition|declaration|expression)$|^(method_definition|class|function)$"
)
_WORD = re.compile(r"[^\W\d]\w*")
_PROSE = re.compile(r"\"[^\"]*\"|'[^']*'|`[^`]*`")
_KEYWORDS = frozenset().union(*KEYWORDS.values())


def line_of(text: str, offset: int) -> int:
    """Return the line, from 1, of the character at `offset`."""
    return text.count("\n", 0, offset) + 1


def line_text(text: str, line: int) -> str:
    """Return a line of `text` without the blanks round it; empty where there is no such line."""
    lines = text.split("\n")
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def first_code_line(text: str, start: int, end: int) -> int:
    """Return the line of the first character from `start` to `end` that is not blank."""
    piece = text[start:end]
    return line_of(text, start + len(piece) - len(piece.lstrip()))


def names_around(tree: Tree, offset: int) -> str:
    """Return the names of the definitions round the character at `offset`, outermost first; empty at the top level."""
    names, node = list[str](), tree.root
    while (inner := _child_at(node, offset)) is not None:
        node = inner
        if _DEFINITION.match(node.kind):
            name = node.handle.field("name")
            if name is not None:
                names.append(name.text())
    return ".".join(names)


def _child_at(node: Node, offset: int) -> Node | None:
    return next((child for child in node.children if child.start <= offset < child.end), None)


def telling_word(text: str, patterns: Sequence[str]) -> str:
    """Return the rarest name in `patterns` that `text` holds, by which look-alikes are found; empty without one."""
    counts = Counter(_WORD.findall(text))
    bare = [VARIABLE.sub(" ", pattern) for pattern in patterns]
    # prose tells less than names do
    for pieces in ([_PROSE.sub(" ", pattern) for pattern in bare], bare):
        names = dict.fromkeys(name for piece in pieces for name in _WORD.findall(piece))
        telling: list[str] = [name for name in names if len(name) > 1 and name not in _KEYWORDS and counts[name]]
        if telling:
            return min(telling, key=lambda name: (counts[name], -len(name)))
    return ""


def lines_with(text: str, word: str) -> list[int]:
    """Return the lines that hold `word` as a whole word."""
    whole = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    return [number for number, line in enumerate(text.split("\n"), 1) if whole.search(line)]


def captured(tree: Tree, offset: int, pattern: str, variable: str) -> str:
    """Return what `variable` of a plain `pattern` stands for where it matches at `offset`; empty where that is unknown.

    `pattern` is one of our own: it is matched in this process.
    """
    name = variable.lstrip("$")
    for node in tree.root.handle.find_all(pattern=pattern):
        if node.range().start.index != offset:
            continue
        if variable.startswith("$$$"):
            found = node.get_multiple_matches(name)
            return tree.text[found[0].range().start.index : found[-1].range().end.index] if found else ""
        single = node.get_match(name)
        return single.text() if single is not None else ""
    return ""


def place_of(tree: Tree, offset: int, end: int) -> tuple[int, str, str]:
    """Return line, quoted code and enclosing definitions of characters `offset` to `end`."""
    line = first_code_line(tree.text, offset, end)
    return line, quoted(line_text(tree.text, line)), names_around(tree, offset)
