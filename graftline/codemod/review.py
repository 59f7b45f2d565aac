"""What rules would change, in groups that a person can accept or reject: those that look alike together, the rare ones first.

The shape of a place is its text with every name, number and string taken for any other, and repeated items of a list for one.
Places of one rule that have one shape are a group. Whoever looks at three of them and at the rare groups has seen what there is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.codemod.rule_file import Example

RARE_SHARE = 0.1
"""A group with a smaller share of its rule's places is rare, unless an example of the rule has its shape."""
TYPICAL_PLACES = 3
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|\s+"""
)
_REPEATED = re.compile(r'(\b\w+\b|"")(?:, ?\1(?![\w.(\[]))+')
_MAX_SHAPE = 120


@dataclass(frozen=True, slots=True)
class Place:
    """A place that a rule changes."""

    rule: str
    path: Path
    line: int
    """From 1, of the text as the rules before it left it."""
    before: str
    """The whole lines in which the place is."""
    after: str
    shape: str


@dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Places of one rule that look alike."""

    id: str
    """The rule and the number of the group, as `get-to-fetch/2`; groups are numbered as they are shown."""
    rule: str
    shape: str
    places: tuple[Place, ...]
    is_rare: bool

    @property
    def typical(self) -> tuple[Place, ...]:
        """A few places of different files, where there are some."""
        by_file = {place.path: place for place in reversed(self.places)}
        repeated = [place for place in self.places if by_file[place.path] is not place]
        return tuple([*reversed(by_file.values()), *repeated][:TYPICAL_PLACES])


Accepts = Callable[[str, str], bool]
"""Whether a rule, by its id, may change a place of this shape."""


def accept_all(rule: str, shape: str) -> bool:
    """Accept every place."""
    return True


def shape_of(text: str) -> str:
    """Return `text` with every name as `x`, every number as `0`, every string as `""`, and a repeated item once."""

    def replace(match: re.Match[str]) -> str:
        return {"string": '""', "name": "x", "number": "0"}.get(match.lastgroup or "", " ")

    return _REPEATED.sub(r"\1, …", _TOKEN.sub(replace, text.strip()))[:_MAX_SHAPE]


def group_places(places: Iterable[Place], examples: Mapping[str, Sequence[Example]]) -> list[PlaceGroup]:
    """Return the groups of `places`: rule by rule in the order of `examples`, of each the rare ones first, then the largest."""
    by_shape = defaultdict[tuple[str, str], list[Place]](list)
    for place in places:
        by_shape[place.rule, place.shape].append(place)
    totals = Counter[str]()
    for (name, _), alike in by_shape.items():
        totals[name] += len(alike)
    groups = []
    for rule, shown in examples.items():
        known_shapes = " ".join(shape_of(example.before) for example in shown)
        own = [(shape, alike) for (name, shape), alike in by_shape.items() if name == rule]
        is_rare = {shape: len(alike) < RARE_SHARE * totals[rule] and shape not in known_shapes for shape, alike in own}
        own.sort(key=lambda entry: (not is_rare[entry[0]], -len(entry[1]), entry[0]))
        groups += [
            PlaceGroup(f"{rule}/{number}", rule, shape, tuple(alike), is_rare[shape])
            for number, (shape, alike) in enumerate(own, 1)
        ]
    return groups


def reject(groups: Sequence[PlaceGroup], names: Iterable[str]) -> Accepts:
    """Return what accepts the places of all groups but those named, by their ids or by those of their rules.

    A place of another shape, that a rule finds only where one before it was held back, nobody has seen, and it is not accepted.

    KeyError with the name that is no group and no rule.
    """
    rejected = set[tuple[str, str]]()
    for name in names:
        named = [(group.rule, group.shape) for group in groups if name in (group.id, group.rule)]
        if not named:
            raise KeyError(name)
        rejected.update(named)
    accepted = {(group.rule, group.shape) for group in groups} - rejected
    return lambda rule, shape: (rule, shape) in accepted
