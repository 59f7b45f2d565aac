"""Short texts in which a pattern matches: its metavariables filled from other code, in statements of its language.

They show several places that differ, as people show an example, and hold an action to code that it was not made from.
"""

import random
import re
from collections.abc import Mapping, Sequence

from graftline.actions.astgrep import Language
from graftline.datasets.synthetic.words import Words

_FREE = re.compile(r"\$\$\$[A-Z]+|\$[A-Z]+")
_STATEMENT = re.compile(r"(?:return|raise|throw|assert|const|let|var|if|final|with)\b|.*;$", re.DOTALL)
_SCRIPT = (
    "{e};", "const {x} = {e};", "{f}({e});", "if ({e}) { {f}() }", "var {x} = {e}", "return {e};", "{e}",
)  # fmt: skip
_PLACES: Mapping[Language, Sequence[str]] = {
    "python": ("{e}", "{x} = {e}", "{f}({e})", "if {e}:\n    {f}()", "{x} = {f}({e}, {y})", "return {e}"),
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "tsx": _SCRIPT,
    "java": (
        "{f}({e});", "int {x} = {e};", "if ({e}) { {f}(); }", "class A { void f() { {f}({e}); } }", "return {e};",
        "class A { boolean f() { return {e}; } }",
    ),
}  # fmt: skip
"""Where an expression stands: `{e}`, beside names and callees of other code."""
_BESIDE: Mapping[Language, Sequence[str]] = {
    "python": (" or ", " and ", ", "),
    "javascript": (" || ", " && ", ", "),
    "typescript": (" || ", " && ", ", "),
    "tsx": (" || ", " && ", ", "),
    "java": (" || ", " && "),
}
"""What stands between two places on a line."""
_ON_ONE_LINE = 0.2


def filling(
    pattern: str, is_statement: bool, language: Language, sites: int, words: Words, rng: random.Random
) -> str | None:
    """Return a text of so many `sites` of `pattern`, each filled otherwise; None where nothing in it is free."""
    free = sorted(metavariables(pattern))
    if not free:
        return None
    place = "{e}" if is_statement or _STATEMENT.match(pattern) else rng.choice(_PLACES[language])
    filled, lines = [_filled(pattern, free, words, rng) for _ in range(sites)], []
    if place != "{e}" and sites > 1 and rng.random() < _ON_ONE_LINE:
        filled = [rng.choice(_BESIDE[language]).join(filled)]
    for text in filled:
        slots = {"{e}": text, "{x}": rng.choice(words.names), "{y}": rng.choice(words.names)}
        slots["{f}"] = rng.choice(words.called)
        lines.append(re.sub(r"\{[exyf]\}", lambda found, slots=slots: slots[found[0]], place))  # type: ignore[misc]
    return "\n".join(lines) + "\n"


def metavariables(pattern: str) -> frozenset[str]:
    """Return the metavariables of a pattern or a rewrite, each with its signs."""
    return frozenset(_FREE.findall(pattern))


def _filled(pattern: str, free: Sequence[str], words: Words, rng: random.Random) -> str:
    values = {name: _value(name, words, rng) for name in free}
    return _FREE.sub(lambda found: values[found[0]], pattern)


def _value(name: str, words: Words, rng: random.Random) -> str:
    count = rng.choice((0, 1, 1, 2, 2, 3)) if name.startswith("$$$") else 1
    return ", ".join(rng.choice(rng.choice((words.arguments, words.names))) for _ in range(count))
