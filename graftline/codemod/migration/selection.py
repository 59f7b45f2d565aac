"""Which of several rules that explain an edit is the one that was meant, and at which of its places.

Every choice has a weight beforehand, from how its rules were made, what they would change, and which of the edits shown
they make. An answer counts for a choice by what was to be expected after those before it. Places that the same choices
have and whose traits are alike (`migration.traits`) are a group: an answer about one speaks for all, and for groups that
share what sets it apart from places that are right. The question that promises most is asked. The choice that is
expected to do most of the change at a precision of 0.9 is taken, without the groups that answers speak against. If none
is expected to, nothing is done.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import words_of
from graftline.codemod.change import Change
from graftline.codemod.diff import Site
from graftline.codemod.migration.option import Option
from graftline.codemod.migration.places import Place
from graftline.codemod.migration.renamings import read_renaming
from graftline.codemod.migration.traits import TRAITS
from graftline.core.hashing import sha256_text

_REFUSAL, _LEAST_UNLIKE = 0.5, 0.5
"""How much an answer of no speaks against all places of a choice where the place is so unlike those that are right."""
_YES_INSIDE, _YES_OUTSIDE = 0.85, 0.06
"""How often a place is answered with yes that the choice which is meant has, and one that it has not: rules are not
exactly what is meant."""
_RIGHT, _WRONG, _OUTSIDE = 4.0, 0.2, -4.0
"""Answers of yes and no that a choice has beforehand, and the logarithm of the odds of places that it has not."""
_AGAINST = {
    **{"folder": 0.9, "tests": 0.6, "parent": 0.3, "file": 0.6, "callee": 0.9, "receiver": 0.6, "left": 0.9},
    **{"right": 1.5, "head": 1.5, "removed": 0.9, "elsewhere": 1.8, "syntax": 1.8, "module": 1.8},
}
"""What the odds lose where a place shares a trait with one that was refused, and with none that is right."""
_UNLIKE = {"folder": 0.3, "tests": 0.2, "callee": 0.2, "receiver": 0.2, "elsewhere": 1.2, "syntax": 0.7, "module": 1.5}
"""What they lose where none that is right has the trait."""
_UNASKED = 2.5
"""How much more they lose where nobody answers; of traits, the module alone counts then: another thing has the same name."""
_DISTINCTIVE, _UNLIKE_SHARE = ("removed", "callee", "receiver"), 0.15
"""How much a no counts for places that share one of these traits with a right one, if the refused place does not."""
_LEAST_LIKELY = 0.5
NOTHING = 0.08
"""How likely no place but the one that is shown is meant."""
_PRECISION, _WIDTH = 0.85, 0.04
"""Expected precision at which a choice is as likely as not to reach 0.9, and how fast that changes."""
_LOSS = 0.35
"""What a change at a lower precision costs, where all of a change is worth 1."""
_MORE_LOSS, _FEW_PLACES = 0.25, 30
"""How much more it costs for each time that e times as many places are changed, beyond so many, where nobody answers."""
_LEAST_BELIEF, _LEAST_GAIN, _LEAST_DOUBT = 0.01, 0.01, 0.003
_SHARED = 0.5
"""How much the gain of a question counts about a place that all likely choices have, as those that repeat the line of the edit:
what somebody is asked should tell the choices apart."""
_MAX_QUESTIONS_TRIED, _MAX_TRIED_ALIKE = 10, 4
_LEAST_ANSWERS, _LEAST_PLACES = 3, 4
"""Answers about places of what is taken, one for so many places at most."""
_SIZE = 0.7
"""Power of the number of places by which a group counts."""
_TEMPER = 0.7
"""Power of the weights beforehand where answers are to come: they are as likely wrong as right for a new repository."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Options that change the same places."""

    options: tuple[Option, ...]
    places: frozenset[Place]
    broken: frozenset[Place] = frozenset()
    """Places that they match and that stay, for their files would not parse."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen."""

    choice: Choice
    confidence: float
    refused: frozenset[Place] = frozenset()
    """Places of the choice that stay as they are."""
    is_sure: bool = True
    considered: int = 0
    """Places that any of the choices would change."""
    follows_shown: bool = False
    """Whether what is not edited beside the edits shown may change as well."""
    broader: Option | None = None
    """What makes places that were answered with yes, and that the choice has not."""


Traits = Mapping[str, str]


@dataclass(eq=False)
class _Group:
    """Places that the same choices have and that are alike."""

    choices: frozenset[int]
    parts: frozenset[int]
    """Choices that make a part of the change."""
    traits: Traits
    places: list[Place]

    @cached_property
    def weight(self) -> float:
        return float(len(self.places) ** _SIZE)


@dataclass
class _State:
    """What is believed after some answers."""

    groups: Sequence[_Group]
    beliefs: Sequence[float]
    """How likely each choice is the one that is meant; the last: none is."""
    shown: Sequence[Traits]
    """Of the places that were shown."""
    answers: tuple[tuple[_Group, bool], ...] = ()
    more_loss: float = 0.0
    """How much more a change costs for each time that it is e times as large (`_MORE_LOSS`)."""

    def after(self, group: _Group, is_right: bool) -> "_State":
        """Return the state with one more answer."""
        shares = self._expect(group, is_right)
        weights = [
            belief * (share if is_right else 1 - share) for belief, share in zip(self.beliefs, shares, strict=True)
        ]
        answers = (*self.answers, (group, is_right))
        beliefs = [weight / sum(weights) for weight in weights]
        return _State(self.groups, beliefs, self.shown, answers, self.more_loss)

    def _expect(self, group: _Group, is_right: bool) -> list[float]:
        """Return how likely a yes is at a place of `group`, by the choice that is meant."""
        number_of = self.groups.index(group)
        # a place unlike those that are right, or like those that are not, is refused more easily
        first = min(_YES_INSIDE, _share(math.log(_RIGHT / _WRONG) - self.unlike(group)))
        shares = list[float]()
        for number in range(len(self.beliefs)):
            if number in group.choices:
                shares.append(min(_YES_INSIDE, self.odds[number][number_of]) if number in self.odds else first)
            else:
                shares.append(first if is_right and number in group.parts else _YES_OUTSIDE)
        return shares

    @cached_property
    def good(self) -> dict[str, set[str]]:
        """The traits of places that are right, by name."""
        rows = [*self.shown, *(group.traits for group, is_right in self.answers if is_right)]
        return {name: {row[name] for row in rows if name in row} for name in TRAITS}

    def unlike(self, group: _Group) -> float:
        """Return what a group loses for traits that no place has which is right."""
        good = self.good
        unlike = [name for name in _UNLIKE if good[name] and group.traits[name] not in good[name]]
        # a name that is defined in the same file has no module
        is_unknown = not group.traits["module"] or "" in good["module"]
        weight = sum(_UNLIKE[name] for name in unlike if name != "module" or not is_unknown)
        return weight * (_UNASKED if self.more_loss else 1.0)

    @cached_property
    def likely(self) -> list[int]:
        """The choices that are not ruled out."""
        return [number for number, belief in enumerate(self.beliefs[:-1]) if belief >= _LEAST_BELIEF]

    @cached_property
    def odds(self) -> dict[int, list[float]]:
        """How likely a place of each group is right if a choice is the one that is meant, by choice."""
        good, unlike = self.good, [self.unlike(group) for group in self.groups]
        refused = [group for group, is_right in self.answers if not is_right]
        agreed = [sum(is_right and group is no for group, is_right in self.answers) for no in refused]
        against = [
            [
                sum(w for n, w in _AGAINST.items() if g.traits[n] == no.traits[n] not in good[n])
                + (g is no) / (1 + yes)
                for g in self.groups
            ]
            for no, yes in zip(refused, agreed, strict=True)
        ]
        refusals = [_REFUSAL if self.unlike(no) >= _LEAST_UNLIKE else 1.0 for no in refused]
        apart = [[n for n in _DISTINCTIVE if no.traits[n] not in good[n]] for no in refused]
        weighed = [
            [w * (_UNLIKE_SHARE if any(g.traits[n] in good[n] for n in names) else 1.0) for g in self.groups]
            for w, names in zip(refusals, apart, strict=True)
        ]
        odds: dict[int, list[float]] = {}
        outside = _share(_OUTSIDE)
        by_answers: dict[tuple[int, ...], list[float]] = {}
        for number in self.likely:
            # that a place is refused which the choice has not says nothing against those that it has
            own: tuple[int, ...] = tuple(number in no.choices for no in refused)
            own += (sum(is_right and number in group.choices for group, is_right in self.answers),)
            if own not in by_answers:
                used = [number for number, is_own in enumerate(own[:-1]) if is_own]
                right = math.log(_RIGHT + max(0, len(self.shown) - 1) + own[-1])
                wrong = [math.log(_WRONG + sum(weighed[n][g] for n in used)) for g in range(len(self.groups))]
                by_answers[own] = [
                    _share(right - wrong[g] - u - sum(against[n][g] for n in used)) for g, u in enumerate(unlike)
                ]
            inside = by_answers[own]
            odds[number] = [i if number in g.choices else outside for g, i in zip(self.groups, inside, strict=True)]
        return odds

    @cached_property
    def yes(self) -> list[float]:
        """How likely a place of each group is right."""
        shares = [self.beliefs[-1] * _share(_OUTSIDE)] * len(self.groups)
        total = self.beliefs[-1] + sum(self.beliefs[number] for number in self.likely)
        for number in self.likely:
            shares = [s + self.beliefs[number] * o for s, o in zip(shares, self.odds[number], strict=True)]
        return [share / total for share in shares]

    def choose(self) -> tuple[float, int | None, list[int]]:
        """Return what is best taken: what it is expected to be worth, the choice, and which groups of it."""
        sizes = [len(group.places) for group in self.groups]
        expected = {
            number: [size * odds for size, odds in zip(sizes, self.odds[number], strict=True)] for number in self.likely
        }
        best: tuple[float, int | None, list[int]] = (0.0, None, [])
        for number in self.likely:
            odds = self.odds[number]
            own = [g for g, group in enumerate(self.groups) if number in group.choices and odds[g] >= _LEAST_LIKELY]
            size = sum(sizes[g] for g in own)
            if not own:
                continue
            loss = _LOSS * (1 + self.more_loss * max(0.0, math.log(size / _FEW_PLACES)))
            worth = -loss * self.beliefs[-1]
            for other in self.likely:
                right = sum(expected[other][g] for g in own)
                is_precise = _share((right / size - _PRECISION) / _WIDTH)
                recall = right / (sum(expected[other]) + 0.3)
                worth += self.beliefs[other] * (is_precise * recall - loss * (1 - is_precise))
            if worth > best[0]:
                best = worth, number, own
        return best


def select(
    choices: Sequence[Choice],
    priors: Sequence[float],
    traits: Mapping[Place, Traits],
    shown: Sequence[Traits],
    answer: Callable[[Place], bool | None] | None,
    max_questions: int,
    incidental: float = NOTHING,
    memory: Mapping[Place, bool] = MappingProxyType({}),
    is_last: bool = True,
) -> Selection:
    """Return the choice that is taken, after at most `max_questions` answers.

    `priors` are how likely choices are beforehand (`weigh_choices`), `traits` those of every place, `shown` of those
    shown. `incidental` is how likely no place but those shown is meant, `memory` has answers that came before. Where it
    `is_last`, doubts are asked about that hardly change what is taken; else those questions are for other edits.
    """
    tempered = [prior ** (_TEMPER if answer else 1) for prior in priors]
    prior = [weight / sum(tempered) * (1 - incidental) for weight in tempered] + [incidental]
    similar = shown if answer else [{"module": row["module"]} for row in shown if "module" in row]
    state = _State(_group_places(choices, traits), prior, similar, (), 0.0 if answer else _MORE_LOSS)
    answers: dict[Place, bool | None] = {**memory}
    for place, own in [(place, group) for group in state.groups for place in group.places if place in memory]:
        state = state.after(own, memory[place])
    while answer is not None and len(answers) - len(memory) < max_questions:
        group = _next_group(state, answers, is_last)
        if group is None:
            break
        place = next(place for place in group.places if place not in answers)
        is_right = answers[place] = answer(place)
        if is_right is not None:
            state = state.after(group, is_right)
    _, number, members = state.choose()
    considered = len(frozenset().union(*(choice.places for choice in choices)))
    if number is None:
        best = max(range(len(choices)), key=lambda n: state.beliefs[n])
        return Selection(choices[best], round(state.beliefs[best], 3), frozenset(), False, considered)
    # a name that a file imports is one thing in all of the file; its import alone may be refused, for imports follow
    right, wrong = (
        {(place.path, m) for place, own in answers.items() if own is is_right and (m := traits[place]["module"])}
        for is_right in (True, False)
    )
    names = wrong - right
    places = {
        place
        for g in members
        for place in state.groups[g].places
        if answers.get(place) is not False and (place.path, traits[place]["module"]) not in names
    }
    refused, confidence = choices[number].places - places, round(state.beliefs[number], 3)
    demanded = {place for place, is_right in answers.items() if is_right} - places
    broader = max(choices, key=lambda choice: (len(choice.places & demanded), -len(choice.places)))
    option = broader.options[0] if broader.places & demanded else None
    return Selection(choices[number], confidence, refused, bool(places), considered, broader=option)


def _group_places(choices: Sequence[Choice], traits: Mapping[Place, Traits]) -> list[_Group]:
    """Return the places in groups, those of most places first, all in an order that depends on their texts alone."""
    owners: dict[Place, set[int]] = {}
    for number, choice in enumerate(choices):
        for place in choice.places:
            owners.setdefault(place, set()).add(number)
    parts = _find_parts(owners)
    groups: dict[tuple[frozenset[int], frozenset[int], tuple[str, ...]], _Group] = {}
    for place in sorted(owners, key=lambda place: sha256_text(repr(place))):
        numbers = frozenset(owners[place])
        own_parts = parts.get(place, frozenset()) - numbers
        key = numbers, own_parts, tuple(v for name, v in traits[place].items() if name not in ("file", "parent"))
        groups.setdefault(key, _Group(numbers, own_parts, traits[place], [])).places.append(place)
    return list(groups.values())


def _find_parts(owners: Mapping[Place, set[int]]) -> dict[Place, frozenset[int]]:
    """Return the choices that change something within a place, for the places that have others within."""
    parts: dict[Place, frozenset[int]] = {}
    ordered = sorted(owners, key=lambda place: (place.path, place.start, -place.end))
    outer: list[Place] = []
    for place in ordered:
        outer = [other for other in outer if other.path == place.path and place.start < other.end]
        for other in outer:
            if place.end <= other.end:
                parts[other] = parts.get(other, frozenset()) | owners[place]
        outer.append(place)
    return parts


def _next_group(state: _State, answers: Mapping[Place, bool | None], is_last: bool) -> _Group | None:
    """Return the group of which a place is best asked about; None if no answer is likely to say anything."""
    doubts = sorted(
        (
            (-group.weight * share * (1 - share), number)
            for number, (group, share) in enumerate(zip(state.groups, state.yes, strict=True))
            if any(place not in answers for place in group.places)
        ),
    )
    trials: list[int] = []
    for _, number in doubts:
        alike = sum(state.groups[other].choices == state.groups[number].choices for other in trials)
        if alike < _MAX_TRIED_ALIKE and len(trials) < _MAX_QUESTIONS_TRIED:
            trials.append(number)
    worth, _, members = state.choose()
    gains: list[tuple[float, _Group]] = []
    for number in trials:
        group, share = state.groups[number], state.yes[number]
        after = share * state.after(group, True).choose()[0] + (1 - share) * state.after(group, False).choose()[0]
        gains.append((after - worth, group))
    best: _Group | None = None
    if max((gain for gain, _ in gains), default=0.0) > _LEAST_GAIN:
        likely = frozenset(state.likely)
        _, best = max(gains, key=lambda pair: pair[0] * (_SHARED if likely <= pair[1].choices else 1.0))
    if best is None:  # what is taken is tried where it is least like what is right
        own = [group for group in (state.groups[g] for g in members) if any(p not in answers for p in group.places)]
        size = sum(len(state.groups[g].places) for g in members)
        # places that were shown are as good as answers
        count = sum(any(g is state.groups[m] for m in members) for g, _ in state.answers) + len(state.shown) - 1
        if own and count < min(_LEAST_ANSWERS, size // _LEAST_PLACES):
            return max(own, key=lambda group: group.weight * (1 + state.unlike(group)))
    return best or (_most_doubtful_group(state, [number for _, number in doubts]) if is_last else None)


def _most_doubtful_group(state: _State, open_groups: Sequence[int]) -> _Group | None:
    """Return a group of the choices with most doubt: that whose traits most of their places share, and no right one has."""
    regions: dict[frozenset[int], list[int]] = {}
    for number in open_groups:
        regions.setdefault(state.groups[number].choices, []).append(number)

    def doubt(numbers: Sequence[int]) -> float:
        # what none of the choices has is as likely right whatever is answered
        shares = [(n, max(0.0, state.yes[n] - _share(_OUTSIDE))) for n in numbers]
        return sum(len(state.groups[n].places) * share * (1 - share) for n, share in shares)

    answered = Counter(group.choices for group, _ in state.answers)

    def gain(numbers: Sequence[int]) -> float:
        return doubt(numbers) / float((1 + answered[state.groups[numbers[0]].choices]) ** 2)

    region = max(regions.values(), key=gain, default=[])
    total = sum(len(group.places) * share for group, share in zip(state.groups, state.yes, strict=True))
    if not region or doubt(region) < _LEAST_DOUBT * total:
        return None
    counts = Counter(
        (name, state.groups[n].traits[name]) for n in region for name in _AGAINST for _ in state.groups[n].places
    )

    def novelty(group: _Group) -> float:
        new = [name for name in _AGAINST if group.traits[name] not in state.good[name]]
        return sum(_AGAINST[name] * math.log(counts[name, group.traits[name]]) for name in new)

    return max((state.groups[n] for n in region), key=novelty)


def _share(odds: float) -> float:
    """Return the probability whose odds have a logarithm."""
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


def weigh_choices(choices: Sequence[Choice], change: Change, site: Site, instruction: str) -> list[float]:
    """Return how likely each choice is the one that is meant, before anything is asked."""
    rows = [weigh(choice, choices, change, site, instruction) for choice in choices]
    scores = [sum(WEIGHTS.get(name, 0.0) * value for name, value in row.items()) for row in rows]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


Features = dict[str, float]


def weigh(choice: Choice, choices: Sequence[Choice], change: Change, site: Site, instruction: str) -> Features:
    """Return what speaks for a choice and against it, before anything is asked."""
    row: Features = {}
    for option in choice.options:
        row[f"{option.kind}-{option.context}"] = 1.0
    count = len(choice.places)
    most = max(len(other.places) for other in choices)
    larger = [len(other.places) for other in choices if other.places > choice.places]
    smaller = [len(other.places) for other in choices if other.places < choice.places]
    row["places"] = math.log1p(count)
    row["none"] = float(count == 0)
    row["few"] = float(count <= 2)
    row["share"] = math.log1p(most) - math.log1p(count)
    row["larger"] = math.log1p(min(larger, default=count)) - math.log1p(count)
    row["smaller"] = math.log1p(count) - math.log1p(max(smaller, default=0))
    renaming = read_renaming(instruction)
    row["told"] = float(
        renaming is not None
        and any(o.renamed == renaming and o.kind == "name" and o.context in ("any", "text") for o in choice.options)
    )
    row["ways"] = math.log(len(choice.options))
    row["background"] = math.log1p(min(_background(option, change.language) for option in choice.options[:2]))
    row["support"] = math.log(max(option.support for option in choice.options))
    row["contradictions"] = float(min(option.contradictions for option in choice.options))
    row["missed"] = float(min(option.missed for option in choice.options))
    removed = words_of(change.before.text[site.start : site.end])
    quoted = frozenset.intersection(*(option.words for option in choice.options)) - removed
    instructed = {word.lower() for word in words_of(instruction)}
    row["quoted"] = float(len(quoted))
    row["quoted-said"] = float(sum(word.lower() in instructed for word in quoted))
    row["said"] = float(any(word.lower() in instructed for word in removed)) * row["share"]
    return row


def _background(option: Option, language: Language) -> int:
    return sum(background.hits(rule_of(action), language, option.words) for action in option.actions)


WEIGHTS: Mapping[str, float] = {
    **{
        "name-any": 0.4,
        "name-kind": -0.3,
        "name-second": 1.3,
        "name-text": -1.0,
        "name-aunt": -0.8,
        "name-role": -0.1,
        "name-module": 3.0,
    },
    **{"text-role": 0.6, "text-neighbor": 0.9, "text-aunt": 0.3, "affix-second": -0.1},
    **{f"condition-{context}": 1.5 for context in ("any", "role", "kind", "neighbor", "last", "form")},
    **{"shape-any": 0.7, "shape-role": 0.6, "shape-kind": 0.3, "shape-neighbor": -0.2},
    **{
        "insert-neighbor": 0.6,
        "insert-aunt": -0.3,
        "delete-neighbor": 0.3,
        "modifier-neighbor": 0.3,
        "modifier-role": 0.7,
        "example-any": -0.2,
    },
    **{"places": 0.1, "none": -2.1, "few": -0.9, "share": -0.2, "larger": -0.9, "smaller": 0.3, "ways": 0.9},
    **{"support": 3.5, "contradictions": -1.0, "missed": -3.5},
    **{"background": -1.3, "quoted": -0.7, "quoted-said": 0.8, "said": 0.1, "told": 2.0},
}
"""Of the features of `weigh`: those of the expected gain on edits of commits (`benchmarks.migrations`, the half that is
tuned on), kept near values that were set by hand; five-fold, the best choice is then taken for 71 % rather than 53 %."""
