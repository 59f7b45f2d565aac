"""How teachers and critic put things into words: quotations that are short, numbers with their nouns, actions described.

Nothing here knows the wanted text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import LANGUAGES
from graftline.codemod.contexts import context_of
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

    def pick(self, kind: str, phrases: Sequence[str]) -> str:
        """Return one of `phrases` for a sentence of this `kind`."""
        return phrases[int(sha256_text(f"{self.seed}\0{kind}")[:8], 16) % len(phrases)]


def shortened(text: str, length: int) -> str:
    """Return `text` on one line and of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"


def quoted(text: str, length: int = MAX_QUOTED) -> str:
    """Return `text` as a short quotation."""
    return f"`{shortened(text, length)}`"


def sentence(text: str) -> str:
    """Return `text` with a capital letter at its start, where it starts with a letter."""
    return text[:1].upper() + text[1:]


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 line, 2 lines, 2 matches."""
    ending = "" if number == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number} {noun}{ending}"


def listed(parts: Sequence[str], most: int = 4) -> str:
    """Return `parts` as an enumeration; of more than `most` the rest is counted."""
    shown = list(parts[:most])
    if len(parts) > most:
        shown.append(f"{len(parts) - most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def lines_named(lines: Sequence[int], most: int = 4) -> str:
    """Return line numbers as words: `line 3`, `lines 3, 7 and 2 more`."""
    return f"line{'' if len(lines) == 1 else 's'} {listed([str(line) for line in lines], most)}"


def described(action: PatternAction | RuleAction) -> str:
    """Return what `action` matches, in words that quote its patterns."""
    return shortened(_described(rule_of(action)["rule"], 0), 2 * MAX_QUOTED)


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


def _described(rule: Any, depth: int) -> str:
    if not isinstance(rule, Mapping) or depth > _MAX_DEPTH:
        return "…"
    words = list(_node_described(rule))
    for key, name in _RELATIONS.items():
        if key in rule:
            words.append(_related(name, rule[key], depth))
    if "not" in rule:
        words.append(f"but not {_described(rule['not'], depth + 1)}")
    for key, joint in (("all", " "), ("any", " or ")):
        parts = rule.get(key)
        if isinstance(parts, list):
            words.append(joint.join(_described(part, depth + 1) for part in parts))
    return " ".join(words) or "…"


def _node_described(rule: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a rule says of the node itself: `f($A)`; `k=$V` as `pair`; every identifier `x`."""
    kind, regex, pattern = rule.get("kind"), rule.get("regex"), rule.get("pattern")
    if isinstance(pattern, Mapping):
        kind = pattern.get("selector") or kind
        pattern = _without_context(str(pattern.get("context", "")), str(kind))
    if isinstance(pattern, str) and not (kind and _ANYTHING.fullmatch(pattern)):
        shown = "anything" if _ANYTHING.fullmatch(pattern) else quoted(pattern)
        yield f"{shown} as `{kind}`" if kind else shown
    elif kind:
        yield f"every {kind}"
    if isinstance(regex, str):
        is_whole = regex.startswith("^") and regex.endswith("$")
        yield quoted(plain(regex)) if kind and is_whole else f"with {quoted(plain(regex))} in it"


def _without_context(context: str, kind: str) -> str:
    """Return the piece that stands in the usual surroundings of its kind; `context` itself where these are others."""
    for language in LANGUAGES:
        head, _, tail = (context_of(kind, language) or "@").partition("@")
        if (head or tail) and len(context) > len(head + tail) and context.startswith(head) and context.endswith(tail):
            return context[len(head) : len(context) - len(tail)]
    return context


def _related(name: str, rule: Any, depth: int) -> str:
    if isinstance(rule, Mapping) and rule.get("field") == "name" and isinstance(rule.get("regex"), str):
        return f"named {quoted(plain(rule['regex']))}"
    return f"{name} {_described(rule, depth + 1)}"
