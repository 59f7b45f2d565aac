"""What a change of several texts comes to, token by token, and how mechanical it is.

A token change is a run of tokens that is removed, added, or replaced by others, within lines that differ; its kind is the tokens
of both sides. A change is mechanical when few kinds, each in several files, are most of it:

    score = (token changes of the `MAX_KINDS` most frequent kinds that several files share) / (all token changes)

White space is no token, and changes of commas, semicolons, quotes and single parentheses alone, as formatters make them, do not
count. Of the 66 mechanical commits that the threshold was chosen on, 62 have a score of 0.6 or more; of 335 commits by coding agents
with three or more source files, 18, all but three of which are such changes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

MAX_KINDS = 8
_TOKEN = re.compile(r"\w+|[^\w\s]")
_STRING = re.compile(r"""(['"`])(?:\\.|(?!\1)[^\\\n])*\1""")
_LAYOUT = frozenset(",;()'\"`")
_WHOLE_LINES = 1_000
"""Of longer texts, lines that are frequent are aligned by their neighbors."""
_MAX_HUNK_TOKENS = 4_000
_MAX_WORK = 40_000_000
"""Pairs of tokens that are compared in one change; what comes after them counts as rewritten."""


class Kind(NamedTuple):
    """What a token change removes and adds, tokens between blanks."""

    removed: str
    added: str


@dataclass(frozen=True, slots=True)
class SharedKind:
    """A kind that several files share."""

    kind: Kind
    places: int
    files: int


@dataclass(frozen=True, slots=True)
class Mechanics:
    """How mechanical a change is."""

    score: float
    """Share of the token changes that the main kinds make, from 0 to 1; 0 where there are none."""
    places: int
    """Token changes; none where the change is formatting."""
    kinds: int
    """Different ones among them."""
    main: tuple[SharedKind, ...]
    """At most `MAX_KINDS`, the most frequent first."""


def measure_mechanics(texts: Iterable[tuple[str, str]], min_files: int) -> Mechanics:
    """Return how mechanical the change of `texts`, before and after by file, is; kinds count that `min_files` of them share."""
    places: Counter[Kind] = Counter()
    files: dict[Kind, set[int]] = defaultdict(set)
    budget = [_MAX_WORK]
    for number, (before, after) in enumerate(texts):
        for kind in list_token_changes(before, after, budget):
            places[kind] += 1
            files[kind].add(number)
    shared = [SharedKind(kind, places[kind], len(files[kind])) for kind in places if len(files[kind]) >= min_files]
    main = tuple(sorted(shared, key=lambda shared: (-shared.places, -shared.files, shared.kind))[:MAX_KINDS])
    total = places.total()
    return Mechanics(sum(kind.places for kind in main) / total if total else 0.0, total, len(places), main)


def list_token_changes(before: str, after: str, budget: list[int] | None = None) -> Iterator[Kind]:
    """Yield the token changes between two texts, those of layout left out.

    "self.assertEquals(a, b)", "self.assertEqual(a, b)"  ->  ("assertEquals", "assertEqual")

    `budget` holds how many pairs of tokens may still be compared, and is drawn on; without it there is one for these texts.
    """
    budget = [_MAX_WORK] if budget is None else budget
    old, new = before.split("\n"), after.split("\n")
    lines = SequenceMatcher(None, old, new, autojunk=max(len(old), len(new)) > _WHOLE_LINES)
    for tag, start, end, new_start, new_end in lines.get_opcodes():
        if tag == "equal":
            continue
        removed = _TOKEN.findall("\n".join(old[start:end]))
        added = _TOKEN.findall("\n".join(new[new_start:new_end]))
        budget[0] -= len(removed) * len(added)
        if len(removed) + len(added) > _MAX_HUNK_TOKENS or budget[0] < 0:
            yield Kind(" ".join(removed), " ".join(added))
            continue
        tokens = SequenceMatcher(None, removed, added, autojunk=False)
        for token_tag, first, last, new_first, new_last in tokens.get_opcodes():
            if token_tag != "equal" and not _is_layout((*removed[first:last], *added[new_first:new_last])):
                yield Kind(" ".join(removed[first:last]), " ".join(added[new_first:new_last]))


def _is_layout(tokens: Sequence[str]) -> bool:
    # `()` where there was nothing makes a call
    return _LAYOUT.issuperset(tokens) and "()" not in "".join(tokens)


def find_contradictions(edits: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return, as sentences, the names that become one name here and another there.

    `edits` are file, text before and after. What strings hold is no name: a module may be called otherwise than what is
    imported from it.
    """
    places: dict[str, dict[str, str]] = defaultdict(dict)
    for path, before, after in edits:
        for kind in list_token_changes(_STRING.sub("''", before), _STRING.sub("''", after)):
            if kind.removed.isidentifier() and kind.added.isidentifier():
                places[kind.removed].setdefault(kind.added, path)
    return [
        f"{old} becomes {' and '.join(f'{new} in {path}' for new, path in sorted(names.items()))}"
        for old, names in sorted(places.items())
        if len(names) > 1
    ]
