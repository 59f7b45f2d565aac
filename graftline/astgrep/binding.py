"""The door to ast-grep: its parser and matcher in this process, and the command line of its executable.

Only the parser and `matches` are used on text of unknown origin here; rewriting is done behind the sandbox port.
The binding holds the interpreter lock and cannot be interrupted, therefore `parse` bounds what it accepts.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, cast

from ast_grep_py import Config, SgRoot
from ast_grep_py import SgNode as SgNode

from graftline.astgrep.action import Action, rule_of
from graftline.core.errors import ConfigError, DataError

Language = Literal["python", "javascript", "typescript", "tsx", "java"]
JAVASCRIPT: tuple[Language, ...] = ("javascript", "typescript", "tsx")
"""JavaScript, and what adds types or elements to it."""
LANGUAGES: tuple[Language, ...] = ("python", *JAVASCRIPT, "java")

MAX_SOURCE_CHARACTERS = 512 * 1024
MAX_LINE_CHARACTERS = 10_000
"""The binding takes time in the square of a line's length; longer ones are minified or generated."""
_SHORT_CHARACTERS = 12 * 1024
"""Of texts up to this length more trees are kept."""
MAX_DEPTH = 300
"""Levels of nesting; beyond it recursive algorithms, the matcher's own included, may overflow their stack."""


class Node:
    """A node of a syntax tree; `start` and `end` count characters."""

    __slots__ = ("_children", "depth", "end", "handle", "index", "is_named", "kind", "parent", "start")

    def __init__(self, handle: SgNode, parent: "Node | None", index: int, start: int, end: int) -> None:
        self.handle = handle
        self.kind = handle.kind()
        self.is_named = handle.is_named()
        self.start, self.end = start, end
        self.parent = parent
        self.index = index
        """Position among the children of `parent`."""
        self.depth: int = parent.depth + 1 if parent else 1
        self._children: list[Node] | None = None

    @property
    def children(self) -> list["Node"]:
        """The nodes below, made on first use; DataError if they are nested deeper than is safe."""
        if self._children is None:
            handles = self.handle.children()
            if handles and self.depth >= MAX_DEPTH:
                raise DataError(f"source is nested deeper than {MAX_DEPTH} levels")
            self._children = []
            for index, child in enumerate(handles):
                span = child.range()
                self._children.append(Node(child, self, index, span.start.index, span.end.index))
        return self._children

    def walk(self) -> Iterator["Node"]:
        """Yield this node and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A parsed text."""

    text: str
    language: Language
    root: Node

    def of(self, node: Node) -> str:
        """Return the text of `node`."""
        return self.text[node.start : node.end]

    @property
    def is_clean(self) -> bool:
        """Whether the parser understood all of the text; where a token is missing it invents one of no width."""
        return not any(
            node.kind == "ERROR" or (node.start == node.end and not node.children and node.parent is not None)
            for node in self.root.walk()
        )


def is_safe(text: str) -> bool:
    """Return whether the binding may be given `text`: no half surrogate pairs, no length that takes it too long."""
    is_short = len(text) <= MAX_SOURCE_CHARACTERS and max(map(len, text.split("\n"))) <= MAX_LINE_CHARACTERS
    return is_short and is_unicode(text)


def is_unicode(text: str) -> bool:
    """Return whether `text` holds no half surrogate pairs, which can be given to no program."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse(text: str, language: Language) -> Tree:
    """Return the syntax tree of `text`.

    DataError if `text` is longer or nested deeper than is safe, or is not valid Unicode.
    """
    tree = outline(text, language)
    for _ in tree.root.walk():
        pass
    return tree


def outline(text: str, language: Language) -> Tree:
    """Return the tree as `parse` does, for callers that visit parts of it: too deep a nesting is found on the visit.

    DataError if `text` is longer than is safe, or is not valid Unicode.
    """
    if len(text) > MAX_SOURCE_CHARACTERS:
        raise DataError(f"source of {len(text)} characters; at most {MAX_SOURCE_CHARACTERS} are parsed")
    longest = max(map(len, text.split("\n")))
    if longest > MAX_LINE_CHARACTERS:
        raise DataError(f"source with a line of {longest} characters; at most {MAX_LINE_CHARACTERS} are parsed")
    try:
        handle = SgRoot(text, language).root()
    except UnicodeEncodeError:
        raise DataError("source holds a lone surrogate; expected valid Unicode") from None
    return Tree(text, language, Node(handle, None, 0, 0, len(text)))


def outline_once(text: str, language: Language) -> Tree:
    """Return the tree of `outline`: of the last few texts the same one again, for callers that look at one text in turn.

    A tree takes 25 bytes for each character of its text, and five times that once all of its nodes were visited.
    """
    return (_outline_short if len(text) <= _SHORT_CHARACTERS else _outline_long)(text, language)


_outline_short = lru_cache(maxsize=64)(outline)
_outline_long = lru_cache(maxsize=4)(outline)


def matches(node: Node, rule: dict[str, Any]) -> bool:
    """Return whether `rule` (the `rule:` part of an ast-grep rule) matches exactly this node; False if it is invalid."""
    try:
        return bool(node.handle.matches(**rule))
    except Exception:  # the binding raises RuntimeError and ValueError of many texts for an invalid rule
        return False
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # pyo3 derives it from BaseException
            return False
        raise


def find_all(root: Node, rule: dict[str, Any]) -> list[SgNode]:
    """Return the matches of a trusted `rule` below `root`, in the order of the text."""
    return list(root.handle.find_all(**rule))


def span_of(node: SgNode) -> tuple[int, int]:
    """Return where a node starts and ends, in characters."""
    span = node.range()
    return span.start.index, span.end.index


def captures_of(root: Node, rule: dict[str, Any], names: Sequence[str]) -> dict[int, dict[str, tuple[str, str]]]:
    """Return kind and text of what the single variables `names` capture in each match of `rule`, by where it starts.

    Of matches that start at one place it is the outermost, which is the one that is rewritten. `rule` is that of `action.rule_of`; nothing is found by one that is invalid.
    """
    config = {key: rule[key] for key in ("rule", "constraints") if rule.get(key)}
    try:
        nodes = list(root.handle.find_all(cast(Config, config)))
    except (RuntimeError, ValueError, TypeError):
        return {}
    return {
        node.range().start.index: {
            name: (captured.kind(), captured.text()) for name in names if (captured := node.get_match(name)) is not None
        }
        for node in reversed(nodes)
    }


@cache
def executable() -> Path:
    """Return the ast-grep executable that was installed with the library; ConfigError if there is none."""
    beside = Path(sys.executable).with_name("ast-grep")
    path = beside if beside.exists() else shutil.which("ast-grep")
    if not path:
        raise ConfigError("ast-grep: no such executable; pip install ast-grep-cli")
    return Path(path).resolve()


def tool_version() -> str:
    """Return the version of the ast-grep that rewrites; results differ between versions."""
    from importlib.metadata import version  # what it imports takes longer than all else here

    return version("ast-grep-cli")


def rules_document(actions: Sequence[Action], language: Language) -> str:
    """Return `actions` as rules `a0`, `a1`, … in one YAML text (as JSON, which is YAML without its surprises)."""
    rules = ({"id": f"a{number}", "language": language, **rule_of(action)} for number, action in enumerate(actions))
    return "\n---\n".join(json.dumps(rule) for rule in rules)
