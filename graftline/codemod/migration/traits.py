"""What a place shares with others, by its text and path alone: its traits.

Where a rule is right at one place, it is likely to be right at those that are like it: called alike, of the same part
of the repository, beside the same words.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_MAX_BACK = 400
"""Characters before a place in which what it is an argument of is looked for."""
_MAX_BLOCK_LINES = 200
_MAX_ROTATED = 40
_TESTS = frozenset(("test", "tests", "__tests__", "testing", "playground"))
_TEST_FILE = re.compile(r"(^|[_.])(test|tests|spec)([_.]|$)|Tests?\.java$", re.IGNORECASE)
_CHAIN = re.compile(r"([\w$][\w$.]*)\s*$")
_WORD = re.compile(r"[^\W\d][\w$]*")
_IN_NAME = re.compile(r"[\w$]")
_IMPORTED = (
    r"^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]*(?:\([^)]{{0,2000}}?|[^\n(]*?)\b{name}\b"
    r"|^import[ \t]+(?:static[ \t]+)?([\w.]+)\.{name};"
    r"""|^import\s+(?:type\s+)?(?:[\w$]+\s*,\s*)?(?:\{{[^}}]{{0,2000}}?\b)?{name}\b[^'"`;]{{0,2000}}?from\s*['"]([^'"\n]+)"""
)
"""Of an import the first 2,000 characters: one that is never closed is not searched to the end of the file."""
_ENDING = re.compile(r"\.[cm]?[jt]sx?$")
_TOKEN = re.compile(r"[\w$]+|[^\w\s]")

TRAITS = (
    "folder",
    "tests",
    "parent",
    "file",
    "callee",
    "receiver",
    "left",
    "right",
    "head",
    "removed",
    "elsewhere",
    "syntax",
    "module",
)


def traits_of(path: str, text: str, start: int, end: int) -> Mapping[str, str]:
    """Return the traits of characters `start` to `end` of the file `path`, by their names (`TRAITS`)."""
    folders = path.split("/")[:-1]
    line_start = text.rfind("\n", 0, start) + 1
    before = text[max(0, start - _MAX_BACK) : start]
    line_end = text.find("\n", end)
    after = text[end : len(text) if line_end < 0 else line_end]
    left, right = _TOKEN.findall(before[-80:]), _TOKEN.findall(after[:80])
    is_test = bool(_TESTS & set(folders) or _TEST_FILE.search(path.rpartition("/")[2]))
    receiver = re.search(r"([\w$.\])]+)\.[\w$]*$", text[line_start:start])
    line = text[line_start : len(text) if line_end < 0 else line_end].strip()
    return {
        "folder": folders[0] if folders else "",
        "tests": str(is_test),
        "parent": "/".join(folders),
        "file": path,
        "callee": _callee(before),
        "receiver": receiver[1] if receiver else "",
        "left": left[-1] if left else "",
        "right": right[0] if right else "",
        "head": (_TOKEN.findall(line) or [""])[0],
        "removed": _rotate(" ".join(text[start:end].split())),
        "syntax": _syntax(text[line_start:start]),
        "elsewhere": str(_is_elsewhere(text, start, end)),
        "module": find_module(text, text, start),
    }


def find_module(imports: str, text: str, start: int) -> str:
    """Return the last part of the module that `imports` imports the name at `start` of `text` from; empty if from none.

    It tells two things of one name apart, and is the same for a module that is written relative here and in full there.
    """
    while start > 0 and _IN_NAME.match(text[start - 1]):
        start -= 1
    name = _WORD.match(text, start)
    return _find_module(imports, name[0]) if name else ""


@lru_cache(maxsize=1 << 10)  # it holds texts; places come sorted by file
def _find_module(text: str, name: str) -> str:
    if name not in text:
        return ""
    match = re.search(_IMPORTED.format(name=re.escape(name)), text, re.MULTILINE)
    module = next(filter(None, match.groups()), "") if match else ""
    return re.split(r"[./]", _ENDING.sub("", module))[-1]


def _rotate(text: str) -> str:
    """Return the first of the rotations of a text in the order of the alphabet; long texts as they are.

    Where `'a', 'r'` becomes `'a'`, a comparison takes away `, 'r'` or `', 'r`: both have the same rotation.
    """
    return min((text[n:] + text[:n] for n in range(len(text))), default="") if len(text) <= _MAX_ROTATED else text


def _syntax(head: str) -> str:
    """Return whether a place stands in code, in a string or in a comment, by the line before it."""
    bare = re.sub(r"""(['"`])(\\.|(?!\1).)*\1""", "", head)
    if re.search(r"#|//|^\s*/?\*", bare):
        return "comment"
    return "string" if re.search(r"""['"`]""", bare) else "code"


def _callee(before: str) -> str:
    """Return the name before the innermost bracket that is open at the end of a text."""
    depth = 0
    for position in range(len(before) - 1, -1, -1):
        sign = before[position]
        if sign in ")]}":
            depth += 1
        elif sign in "([{":
            depth -= 1
            if depth < 0:
                chain = _CHAIN.search(before[:position])
                return (chain[1].rpartition(".")[2] if chain else "") + sign
    return ""


def _is_elsewhere(text: str, start: int, end: int) -> bool:
    """Return whether a name that a place takes away stands in the block below its line as well."""
    words = set(_WORD.findall(text[start:end]))
    if not words:
        return False
    line_start = text.rfind("\n", 0, start) + 1
    indent = len(text[line_start:]) - len(text[line_start:].lstrip(" \t"))
    lines = text[end:].split("\n")[: _MAX_BLOCK_LINES + 1]
    for number, line in enumerate(lines):
        if number and line.strip() and len(line) - len(line.lstrip()) <= indent and line.strip()[0] not in ")]}":
            return False
        if words & set(_WORD.findall(line)):
            return True
    return False
