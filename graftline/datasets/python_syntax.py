"""Whether texts are Python by the grammar of the interpreter that runs, and what an excerpt of a file needs round it to be.

tree-sitter takes more than Python does: `print x` of Python 2, a block without statements, lines that are indented for no reason.
Which Python judged stands in the record of the normalized dataset.
"""

import ast
import re
import warnings
from collections.abc import Iterator
from itertools import product
from symtable import symtable

_AFTER = {"else": "if", "elif": "if", "except": "try", "finally": "try"}
"""Words that only follow a block, and the statement whose block that may be."""
_OPENERS = {"if": "if enclosing:", "try": "try:", "": "def enclosing():"}
_WORD = re.compile(r"[a-z]+")
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError)
"""The last two of what is nested too deeply."""


def parses(text: str) -> bool:
    """Return whether `text` is Python."""
    text = text.removeprefix("\ufeff")
    with warnings.catch_warnings(action="ignore"):  # of invalid escapes
        try:
            # the parser of `ast.parse`, without the objects of its tree; what it refuses beyond that, an excerpt may hold
            symtable(text, "", "exec")
        except SyntaxError:
            try:
                ast.parse(text)
            except _FAULTS:
                return False
        except _FAULTS:
            return False
    return True


def enclose_excerpt(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield both texts as parts of a whole, with the same lines above them and the same below, in ways that may be Python.

    An excerpt may begin deeper than it goes on, begin with what follows a block, and end where a block begins:

        return 1          def enclosing():
    except KeyError:  →       return 1
        try:              …
    """
    above = dict.fromkeys(map(_lines_above, (before, after)))
    below = dict.fromkeys(map(_lines_below, (before, after)))
    for start, end in product(above, below):
        if start or end:
            yield _join(start, before, end), _join(start, after, end)


def _join(start: str, text: str, end: str) -> str:
    return start + (f"{text}\n" if end and not text.endswith("\n") else text) + end


def _code_lines(text: str) -> list[tuple[str, str]]:
    """Return the lines that hold more than a comment: how each is indented, and what it holds."""
    lines = [(line, line.strip()) for line in text.split("\n")]
    return [(line[: len(line) - len(line.lstrip())], code) for line, code in lines if code and code[0] != "#"]


def _word(code: str) -> str:
    match = _WORD.match(code)
    return match[0] if match else ""


def _lines_above(text: str) -> str:
    """Return the beginnings of the blocks that end within `text`, and of that which its first line follows."""
    lines = _code_lines(text)
    if not lines:
        return ""
    (indentation, code), *following = lines
    openers = []
    if opener := _AFTER.get(_word(code)):
        openers.append(f"{indentation}{_OPENERS[opener]}\n{_deeper(indentation)}pass\n")
    for outer, code in following:
        if len(outer) < len(indentation):
            indentation = outer
            openers.append(f"{outer}{_OPENERS[_AFTER.get(_word(code), '')]}\n")
    if indentation:
        openers.append(f"{_OPENERS['']}\n")
    return "".join(reversed(openers))


def _lines_below(text: str) -> str:
    """Return what the blocks lack that `text` ends in: a statement, and the end of each `try`."""
    lines = _code_lines(text)
    if not lines:
        return ""
    indentation, code = lines[-1]
    tries = list[str]()
    for outer, line in lines:
        while tries and len(outer) < len(tries[-1]):
            tries.pop()
        if tries and outer == tries[-1] and _word(line) in ("except", "finally"):
            tries.pop()
        if line == "try:":
            tries.append(outer)
    statement = f"{_deeper(indentation)}pass\n" if code.endswith(":") else ""
    return statement + "".join(f"{outer}finally:\n{_deeper(outer)}pass\n" for outer in reversed(tries))


def _deeper(indentation: str) -> str:
    return indentation + ("\t" if indentation.endswith("\t") else "    ")
