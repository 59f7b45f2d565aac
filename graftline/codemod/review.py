"""What rules would change, in groups that a person can accept or reject: those that look alike together, the rare ones first.

The code of a place before and after, with names that are not the rule's, numbers and strings taken for any other, is its shape.
Places of one rule are a group, and those among them whose shapes are like hardly another's are one beside it. Whoever looks at
three places of each and at the rare ones has seen what there is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.codemod.canonical import words_of
from graftline.codemod.diff import common_ends
from graftline.codemod.rule_file import FileRule
from graftline.core.text_diff import pluralize, unified_diff

RARE_SHARE = 0.1
"""A shape with a smaller share of its rule's places is rare, unless an example of the rule has it."""
MAX_RARE_SHARE = 0.25
"""Where rare shapes have more of the places than that together, most places are unlike others, and none is rare."""
TYPICAL_PLACES = 3
MAX_PARTS = 20
"""Of a group; the last has the places of all shapes that are left."""
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|\s+"""
)
_REPEATED = re.compile(r'(\b\w+\b|"")(?:, ?\1(?![\w.(\[]))+')
_PIECE = re.compile(r"\w+|\s+|[^\w\s]")
_MAX_SHAPE, _MAX_EDIT = 120, 40


@dataclass(frozen=True, slots=True)
class ChangedPlace:
    """A place that a rule changes."""

    rule: str
    path: Path
    line: int
    """From 1, of the text as the rules before it left it."""
    before: str
    """The whole lines in which the place is."""
    after: str
    """What becomes of them; empty where they go."""
    shape: str
    """What it looks like (`shape_of`)."""

    @property
    def edit(self) -> str:
        """What goes, and what comes in its place, in short.

        "x: Optional[int] = 1", "x: int | None = 1"  ->  "Optional[int] → int | None"
        """
        old, new = _PIECE.findall(self.before), _PIECE.findall(self.after)
        front, back = common_ends(old, new)
        return " → ".join(_shorten("".join(side[front : len(side) - back])) for side in (old, new))

    @property
    def diff(self) -> list[str]:
        """Its lines, each with its end, after `-`, `+` or a blank."""
        before, after = (f"{side}\n" if side else "" for side in (self.before, self.after))
        return [*unified_diff(before, after, "", "")][3:]


@dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Places of one rule that look alike."""

    id: str
    """The rule and the number of the group, as `get-to-fetch/2`; a part of it is `get-to-fetch/2.1`. Numbers are as shown."""
    rule: str
    places: tuple[ChangedPlace, ...]
    is_rare: bool
    parts: "tuple[PlaceGroup, ...]" = ()
    """The places of each shape by themselves, the most frequent first; none where all have one shape."""
    noun: str = "place"
    """What they are: a place is lines that stand together and change; what a rule makes by itself is counted by match."""

    @property
    def count(self) -> str:
        """How many places it has, in words."""
        return pluralize(len(self.places), self.noun)

    @property
    def edit(self) -> str:
        """The edit of a typical place, the one that is said in the fewest characters."""
        return min((place.edit for place in self.typical), key=lambda edit: (len(edit), edit))

    @property
    def typical(self) -> tuple[ChangedPlace, ...]:
        """A few places of different files, where there are some."""
        by_file = {place.path: place for place in reversed(self.places)}
        repeated = [place for place in self.places if by_file[place.path] is not place]
        return tuple([*reversed(by_file.values()), *repeated][:TYPICAL_PLACES])


Accepts = Callable[[str, str], bool]
"""Whether a rule, by its id, may change a place of this shape."""


def accept_all(rule: str, shape: str) -> bool:
    """Accept every place."""
    return True


def list_words(action: PatternAction | RuleAction) -> frozenset[str]:
    """Return the words that a rule says."""
    rule = rule_of(action)
    return words_of(str([rule[key] for key in ("rule", "fix", "transform") if rule.get(key)]))


def shape_of(before: str, after: str, words: frozenset[str]) -> str:
    """Return how a place looks, where `words` are those that the rule takes away or writes.

    "a.get(b)", "a.fetch(b)", {"get", "fetch"}  ->  "x.get(x) → x.fetch(x)"
    """
    sides = (_REPEATED.sub(r"\1, …", _generalize(side.strip(), words))[:_MAX_SHAPE] for side in (before, after))
    return " → ".join(sides)


def _shorten(code: str) -> str:
    """Return code as one short line; `nothing` where there is none."""
    line = " ".join(code.split())
    return f"{line[:_MAX_EDIT]}…" if len(line) > _MAX_EDIT else line or "nothing"


def _generalize(text: str, words: frozenset[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        if match.lastgroup == "name" and match[0] in words:
            return match[0]
        return {"string": '""', "name": "x", "number": "0"}.get(match.lastgroup or "", " ")

    return _TOKEN.sub(replace, text)


def group_places(places: Iterable[ChangedPlace], rules: Sequence[FileRule], noun: str = "place") -> list[PlaceGroup]:
    """Return the groups of `places`, each of which is a `noun`: rule by rule, of each the rare places first; last, those of
    no rule.
    """
    by_rule = defaultdict[str, list[ChangedPlace]](list)
    for place in places:
        by_rule[place.rule].append(place)
    groups, by_id = [], {rule.id: rule for rule in rules}
    for name in [*by_id, *(name for name in by_rule if name not in by_id)]:
        own = by_rule[name]
        rare = _find_rare_shapes(own, by_id.get(name))
        divided = [[place for place in own if (place.shape in rare) is is_rare] for is_rare in (True, False)]
        shown = [(alike, alike[0].shape in rare) for alike in divided if alike]
        groups += [
            PlaceGroup(
                f"{name}/{number}", name, tuple(alike), is_rare, _divide(f"{name}/{number}", alike, is_rare, noun), noun
            )
            for number, (alike, is_rare) in enumerate(shown, 1)
        ]
    return groups


def _divide(group: str, places: Sequence[ChangedPlace], is_rare: bool, noun: str) -> tuple[PlaceGroup, ...]:
    """Return the parts of a group."""
    by_shape = defaultdict[str, list[ChangedPlace]](list)
    for place in places:
        by_shape[place.shape].append(place)
    if len(by_shape) == 1:
        return ()
    ordered = sorted(by_shape.values(), key=lambda own: (-len(own), own[0].shape))
    last = [place for own in ordered[MAX_PARTS - 1 :] for place in own]
    ordered = [*ordered[: MAX_PARTS - 1], *([last] if last else [])]
    return tuple(
        PlaceGroup(f"{group}.{number}", own[0].rule, tuple(own), is_rare, noun=noun)
        for number, own in enumerate(ordered, 1)
    )


def _find_rare_shapes(places: Sequence[ChangedPlace], rule: FileRule | None) -> set[str]:
    counts = Counter(place.shape for place in places)
    words = list_words(rule.action) if rule else frozenset[str]()
    shown = {shape_of(example.before, example.after, words) for example in rule.examples} if rule else set[str]()
    rare = {shape for shape, count in counts.items() if count < RARE_SHARE * len(places)} - shown
    return rare if sum(counts[shape] for shape in rare) <= MAX_RARE_SHARE * len(places) else set()


def keep_accepted(groups: Iterable[PlaceGroup], accepts: Accepts) -> list[PlaceGroup]:
    """Return the groups with the places alone that are accepted, and without those that have none."""
    reduced = (
        replace(
            group,
            places=tuple(place for place in group.places if accepts(place.rule, place.shape)),
            parts=tuple(keep_accepted(group.parts, accepts)),
        )
        for group in groups
    )
    return [group for group in reduced if group.places]


def reject(groups: Sequence[PlaceGroup], names: Iterable[str]) -> Accepts:
    """Return what accepts the places of all groups but those named, by their ids, those of their rules, or of their parts.

    A place of another shape, that a rule finds only where one before it was held back, nobody has seen, and it is not accepted.

    KeyError with the name that is no group, no part of one and no rule.
    """
    rejected = set[tuple[str, str]]()
    for name in names:
        named = [
            (place.rule, place.shape)
            for group in groups
            for part in (group, *group.parts)
            if name in (part.id, part.rule)
            for place in part.places
        ]
        if not named:
            raise KeyError(name)
        rejected.update(named)
    accepted = {(place.rule, place.shape) for group in groups for place in group.places} - rejected
    return lambda rule, shape: (rule, shape) in accepted
