"""How teachers and critic put things into words: quotations that are short, numbers with their nouns, actions described.

Nothing here knows the target.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import LANGUAGES, Node, Tree
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.grammar import CONTEXTS, KEYWORDS
from graftline.core.hashing import sha256_text

MAX_QUOTED = 80
"""Characters of a quotation."""
_ANYTHING = re.compile(r"\$[A-Z_][A-Z0-9_]*")
_ESCAPED = re.compile(r"\\([^\w\s])")
_MAX_DEPTH = 3
_RELATIONS = {"inside": "inside", "has": "that holds", "precedes": "before", "follows": "after"}


@dataclass(frozen=True, slots=True)
class Voice:
    """Chooses among phrases that say the same: always alike for one seed, differently for different ones."""

    seed: str

    def pick(self, kind: str, phrases: Sequence[str], *values: object) -> str:
        """Return one of `phrases` for a sentence of this `kind`, with `values` in the places of {0}, {1} and so on."""
        return phrases[int(sha256_text(f"{self.seed}\0{kind}")[:8], 16) % len(phrases)].format(*values)


def shorten(text: str, length: int) -> str:
    """Return `text` on one line and of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def quote(text: str, length: int = MAX_QUOTED) -> str:
    """Return `text` as a short quotation."""
    return f"`{shorten(text, length)}`"


def sentence(text: str) -> str:
    """Return `text` with a capital letter at its start, where it starts with a letter."""
    return text[:1].upper() + text[1:]


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun: 1 line, 2 lines, 2 matches."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number} {noun}{ending}"


def join_words(parts: Sequence[str], most: int = 4) -> str:
    """Return `parts` as an enumeration; of more than `most` the rest is counted."""
    shown = list(parts[:most])
    if len(parts) > most:
        shown.append(f"{len(parts) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def name_lines(lines: Sequence[int]) -> str:
    """Return line numbers as words: `line 3`, `lines 3, 7 and 2 more`."""
    return f"line{'' if len(lines) == 1 else 's'} {join_words([str(line) for line in lines])}"


def describe_action(action: PatternAction | RuleAction) -> str:
    """Return what `action` matches, in words that quote its patterns."""
    return shorten(_describe(rule_of(action)["rule"], 0), 2 * MAX_QUOTED)


def texts_of(action: PatternAction | RuleAction) -> list[str]:
    """Return the patterns and the plain regular expressions that a match of `action` must fit."""
    return list(_texts(rule_of(action)["rule"], 0))


def plain(regex: str) -> str:
    """Return the text that an anchored, escaped regular expression stands for, anchors left out."""
    return _ESCAPED.sub(r"\1", regex.removeprefix("^").removesuffix("$"))


def _texts(rule: Any, depth: int) -> Iterator[str]:
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return
    pattern = rule.get("pattern")
    if isinstance(pattern, Mapping):
        pattern = _without_context(str(pattern.get("context", "")), str(pattern.get("selector")))
    if isinstance(pattern, str):
        yield pattern
    if isinstance(rule.get("regex"), str):
        yield plain(rule["regex"])
    yield from _texts(rule.get("has"), depth + 1)
    parts = rule.get("all")
    for part in parts if isinstance(parts, list) else ():
        yield from _texts(part, depth + 1)


def _describe(rule: Any, depth: int) -> str:
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return "…"
    words = list(_describe_node(rule))
    for key, name in _RELATIONS.items():
        if key in rule:
            words.append(_describe_relation(name, rule[key], depth))
    if "not" in rule:
        words.append(f"but not {_describe(rule['not'], depth + 1)}")
    for key, joint in (("all", " "), ("any", " or ")):
        parts = rule.get(key)
        if isinstance(parts, list):
            words.append(joint.join(_describe(part, depth + 1) for part in parts))
    return " ".join(words) or "…"


def _describe_node(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a rule says of the node itself: `f($A)`; `k=$V` as `pair`; every identifier `x`."""
    kind, regex, pattern = rule.get("kind"), rule.get("regex"), rule.get("pattern")
    if isinstance(pattern, Mapping):
        kind = pattern.get("selector") or kind
        pattern = _without_context(str(pattern.get("context", "")), str(kind))
    if isinstance(pattern, str) and not (kind and _ANYTHING.fullmatch(pattern)):
        shown = "anything" if _ANYTHING.fullmatch(pattern) else quote(pattern)
        yield f"{shown} as `{kind}`" if kind else shown
    elif kind:
        yield f"every {kind}"
    if isinstance(regex, str):
        is_whole = regex.startswith("^") and regex.endswith("$")
        yield quote(plain(regex)) if kind and is_whole else f"with {quote(plain(regex))} in it"


def _without_context(context: str, kind: str) -> str:
    """Return the piece that stands in the usual surroundings of its kind; `context` itself where these are others."""
    for language in LANGUAGES:
        head, _, tail = (CONTEXTS[language].get(kind) or "@").partition("@")
        if (head or tail) and len(context) > len(head + tail) and context.startswith(head) and context.endswith(tail):
            return context[len(head) : len(context) - len(tail)]
    return context


def _describe_relation(name: str, rule: Any, depth: int) -> str:
    if isinstance(rule, Mapping) and rule.get("field") == "name" and isinstance(rule.get("regex"), str):
        return f"named {quote(plain(rule['regex']))}"
    return f"{name} {_describe(rule, depth + 1)}"


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


def find_capture(tree: Tree, offset: int, pattern: str, variable: str) -> str:
    """Return what `variable` of a plain `pattern` stands for where it matches at `offset`; empty where that is unknown.

    `pattern` is one of our own: it is matched in this process.
    """
    name = variable.lstrip("$")
    for node in tree.root.handle.find_all(pattern=pattern):
        if node.range().start.index != offset:
            continue
        if variable.startswith("$$$"):
            matches = node.get_multiple_matches(name)
            return tree.text[matches[0].range().start.index : matches[-1].range().end.index] if matches else ""
        single = node.get_match(name)
        return single.text() if single is not None else ""
    return ""


def place_of(tree: Tree, offset: int, end: int) -> tuple[int, str, str]:
    """Return line, quoted code and enclosing definitions of characters `offset` to `end`."""
    line = first_code_line(tree.text, offset, end)
    return line, quote(line_text(tree.text, line)), names_around(tree, offset)
