"""Short texts in which a pattern matches: its metavariables filled from other code, in statements of other code.

They show several places that differ, as people show an example, and hold an action to code that it was not made from.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.frames import BARE, Frame
from graftline.datasets.synthetic.words import Words

_FREE = re.compile(r"\$\$\$[A-Z]+|\$[A-Z]+")
_STATEMENT = re.compile(r"(?:return|raise|throw|assert|const|let|var|if|final|with)\b|.*;$", re.DOTALL)
_BESIDE: Mapping[Language, Sequence[str]] = {
    "python": (" or ", " and ", ", "),
    "javascript": (" || ", " && ", ", "),
    "typescript": (" || ", " && ", ", "),
    "tsx": (" || ", " && ", ", "),
    "java": (" || ", " && "),
}
"""What stands between two places in a statement."""
_ON_ONE_LINE, _IN_LIKE_STATEMENTS = 0.2, 0.5
_SEVERAL = (0, 1, 2, 3)
"""How many nodes a metavariable of any number stands for; there are as many sites at most."""


def filling(
    pattern: str, is_statement: bool, language: Language, sites: int, words: Words, rng: random.Random
) -> str | None:
    """Return a text of so many `sites` of `pattern`, each filled otherwise; None where nothing in it is free."""
    free = sorted(metavariables(pattern))
    if not free:
        return None
    filled = [_filled(pattern, free, counts, words, rng) for counts in _counts(free, sites, rng)]
    if is_statement or _STATEMENT.match(pattern) or not words.frames:
        frames = [BARE] * sites
    elif sites > 1 and rng.random() < _ON_ONE_LINE:
        filled, frames = [rng.choice(_BESIDE[language]).join(filled)], [rng.choice(words.frames)]
    else:
        frames = _frames(words.frames, sites, rng)
    statements = [frame.around(text) for frame, text in zip(frames, filled, strict=True)]
    return _between(statements, rng).join(statements) + "\n"


def metavariables(pattern: str) -> frozenset[str]:
    """Return the metavariables of a pattern or a rewrite, each with its signs."""
    return frozenset(_FREE.findall(pattern))


def _frames(known: Sequence[Frame], sites: int, rng: random.Random) -> list[Frame]:
    if rng.random() < _IN_LIKE_STATEMENTS:
        return [rng.choice(known)] * sites
    return [rng.choice(known) for _ in range(sites)]


def _between(statements: Sequence[str], rng: random.Random) -> str:
    """Return what parts statements: some of those that say themselves where they end stand on one line."""
    are_short = all(one.endswith((";", "}")) and "\n" not in one for one in statements)
    return " " if are_short and rng.random() < _ON_ONE_LINE else "\n"


def _counts(free: Sequence[str], sites: int, rng: random.Random) -> Iterator[Sequence[int]]:
    """Yield how many nodes each metavariable stands for at each site.

    Where one stands for any number, no two sites have as many, or they would look like those of one that stands for a node.
    """
    several = {name: rng.sample(_SEVERAL, sites) for name in free if name.startswith("$$$")}
    for site in range(sites):
        yield [several[name][site] if name in several else 1 for name in free]


def _filled(pattern: str, free: Sequence[str], counts: Sequence[int], words: Words, rng: random.Random) -> str:
    values = {name: _nodes(count, words, rng) for name, count in zip(free, counts, strict=True)}
    return _FREE.sub(lambda found: values[found[0]], pattern)


def _nodes(count: int, words: Words, rng: random.Random) -> str:
    return ", ".join(rng.choice(rng.choice((words.arguments, words.names))) for _ in range(count))
