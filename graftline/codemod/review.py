"""What rules would change, in groups that a person can accept or reject: those that look alike together, the rare ones first.

What is taken away and put in at a place, with names that are not the rule's, numbers and strings taken for any other, is its
edit; its code, seen so as a whole, its form. Places of one rule with one edit are a group, and those among them whose form is like
hardly another's are one beside it. Whoever looks at three places of each and at the rare groups has seen what there is.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.codemod.canonical import words_of
from graftline.codemod.rule_file import FileRule
from graftline.codemod.token_changes import list_token_changes

RARE_SHARE = 0.1
"""A group with a smaller share of its rule's places is rare, unless an example of the rule has its shape; so are places in a group of one edit."""
TYPICAL_PLACES = 3
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|\s+"""
)
_REPEATED = re.compile(r'(\b\w+\b|"")(?:, ?\1(?![\w.(\[]))+')
_MAX_SHAPE = 120
_IN = " in "


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
    """Its edit and its form (`shape_of`)."""

    @property
    def edit(self) -> str:
        """What becomes of its text."""
        return self.shape.partition(_IN)[0]


@dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Places of one rule that look alike."""

    id: str
    """The rule and the number of the group, as `get-to-fetch/2`; groups are numbered as they are shown."""
    rule: str
    edit: str
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


def list_words(action: PatternAction | RuleAction) -> frozenset[str]:
    """Return the words that a rule says."""
    rule = rule_of(action)
    return words_of(str([rule[key] for key in ("rule", "fix", "transform") if rule.get(key)]))


def shape_of(before: str, after: str, words: frozenset[str]) -> str:
    """Return edit and form of a place, where `words` are those that the rule takes away or writes.

    "a.get(b)", "a.fetch(b)", {"get", "fetch"}  ->  "get → fetch in x.x(x)"
    """
    sides = ([_generalize(side, words) or "nothing" for side in kind] for kind in list_token_changes(before, after))
    edit = "; ".join(dict.fromkeys(map(" → ".join, sides))) or "layout"
    form = _REPEATED.sub(r"\1, …", _generalize(before.strip()))
    return f"{edit[:_MAX_SHAPE]}{_IN}{form[:_MAX_SHAPE]}"


def _generalize(text: str, words: frozenset[str] = frozenset()) -> str:
    def replace(match: re.Match[str]) -> str:
        if match.lastgroup == "name" and match[0] in words:
            return match[0]
        return {"string": '""', "name": "x", "number": "0"}.get(match.lastgroup or "", " ")

    return _TOKEN.sub(replace, text)


def group_places(places: Iterable[Place], rules: Sequence[FileRule]) -> list[PlaceGroup]:
    """Return the groups of `places`: rule by rule, of each the rare ones first, then the largest; last, those of no rule."""
    by_edit = defaultdict[str, dict[str, list[Place]]](dict)
    for place in places:
        by_edit[place.rule].setdefault(place.edit, []).append(place)
    groups, by_id = [], {rule.id: rule for rule in rules}
    for name in [*by_id, *(name for name in by_edit if name not in by_id)]:
        total = sum(map(len, by_edit[name].values()))
        examples = by_id[name].examples if name in by_id else ()
        words = list_words(by_id[name].action) if name in by_id else frozenset[str]()
        shapes = {shape_of(example.before, example.after, words) for example in examples}
        own = list[tuple[bool, str, list[Place]]]()
        for edit, alike in by_edit[name].items():
            counts = Counter(place.shape for place in alike)
            unlike = {shape for shape in counts.keys() - shapes if counts[shape] < RARE_SHARE * len(alike)}
            is_rare = len(alike) < RARE_SHARE * total and not any(shape.startswith(edit + _IN) for shape in shapes)
            own.append((True, edit, [place for place in alike if place.shape in unlike]))
            own.append((is_rare, edit, [place for place in alike if place.shape not in unlike]))
        own.sort(key=lambda entry: (not entry[0], -len(entry[2]), entry[1]))
        shown = [entry for entry in own if entry[2]]
        groups += [
            PlaceGroup(f"{name}/{number}", name, edit, tuple(alike), is_rare)
            for number, (is_rare, edit, alike) in enumerate(shown, 1)
        ]
    return groups


def reject(groups: Sequence[PlaceGroup], names: Iterable[str]) -> Accepts:
    """Return what accepts the places of all groups but those named, by their ids or by those of their rules.

    A place of another shape, that a rule finds only where one before it was held back, nobody has seen, and it is not accepted.

    KeyError with the name that is no group and no rule.
    """
    rejected = set[tuple[str, str]]()
    for name in names:
        named = [
            (place.rule, place.shape) for group in groups if name in (group.id, group.rule) for place in group.places
        ]
        if not named:
            raise KeyError(name)
        rejected.update(named)
    accepted = {(place.rule, place.shape) for group in groups for place in group.places} - rejected
    return lambda rule, shape: (rule, shape) in accepted
