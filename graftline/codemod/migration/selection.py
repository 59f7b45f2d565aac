"""Which of several rules that explain an edit is the one that was meant.

Every choice has a weight beforehand, from how its rules were made and what they would change; answers about places then
tell the choices apart. A place is asked about whose answer is least certain. What is taken in the end is what is
expected to do most of the change at a precision of 0.9, over all choices as they are then believed; if nothing is
expected to, nothing is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import words_of
from graftline.codemod.change import Change
from graftline.codemod.diff import Site
from graftline.codemod.migration.options import Option
from graftline.codemod.migration.places import Place
from graftline.core.hashing import sha256_text

_YES_INSIDE, _YES_OUTSIDE = 0.9, 0.08
"""How often a place is answered with yes that the choice which is meant has, and one that it has not: rules are not
exactly what is meant."""
_PRECISION = 0.9
_LOSS = 0.35
"""What a change at a lower precision costs, where all of a change is worth 1."""
_MAX_SAMPLED, _LEAST_SAMPLED = 4, 3
"""Questions that are left for trying what was chosen, and places of a folder that are worth one."""
_LEAST_ANSWERS, _LEAST_SHARE = 3, 0.34
"""From so many answers on, what is chosen is left undone if a smaller share of them is yes."""
_TESTS = frozenset(("test", "tests", "__tests__", "testing"))
_CERTAIN = 0.12
"""Bits: an answer that is expected to say less is not asked for."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Options that change the same places."""

    options: tuple[Option, ...]
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Selection:
    """What was chosen."""

    choice: Choice
    confidence: float
    questions: int
    refused: frozenset[Place] = frozenset()
    is_sure: bool = True
    considered: int = 0
    """Places that any of the choices would change."""


Features = dict[str, float]


def select(
    choices: Sequence[Choice],
    change: Change,
    site: Site,
    instruction: str,
    answer: Callable[[Place], bool | None] | None,
    max_questions: int,
) -> Selection:
    """Return the choice that is taken, after at most `max_questions` answers."""
    rows = [weigh(choice, choices, change, site, instruction) for choice in choices]
    scores = [sum(WEIGHTS.get(name, 0.0) * value for name, value in row.items()) for row in rows]
    weights = [math.exp(score - max(scores)) for score in scores]
    beliefs = [weight / sum(weights) * (1 - _NOTHING) for weight in weights] + [_NOTHING]  # the last: none of them
    answers: dict[Place, bool] = {}
    count = 0
    groups = _places_by_choices(choices)
    while answer is not None and count < max_questions:
        pattern, place = _next_place(groups, beliefs)
        if place is None:
            break
        groups[pattern].remove(place)
        is_right = answer(place)
        count += 1
        if is_right is None:
            continue
        yes = [_YES_INSIDE if is_inside else _YES_OUTSIDE for is_inside in (*pattern, False)]
        weights = [belief * (share if is_right else 1 - share) for belief, share in zip(beliefs, yes, strict=True)]
        beliefs = [weight / sum(weights) for weight in weights]
        answers[place] = is_right
    gains = _expected_gains(choices, beliefs)
    best = gains.index(max(gains))
    is_sure = gains[best] > 0
    if answer is not None and is_sure:
        count += _sample(choices[best].places, answers, answer, min(_MAX_SAMPLED, max_questions - count))
    refused = _refuse(choices[best].places, answers)
    results = [is_right for place, is_right in answers.items() if place in choices[best].places - refused]
    results += [False for place in refused if place in answers]
    is_sure = is_sure and (len(results) < _LEAST_ANSWERS or sum(results) >= _LEAST_SHARE * len(results))
    is_sure = is_sure and refused != choices[best].places
    considered = len(frozenset().union(*(choice.places for choice in choices)))
    return Selection(choices[best], round(beliefs[best], 3), count, refused, is_sure, considered)


def _sample(
    places: frozenset[Place], answers: dict[Place, bool], answer: Callable[[Place], bool | None], limit: int
) -> int:
    """Ask for a place of each folder that none was asked of, the largest first, and once more where one is wrong."""
    count = 0
    for own in sorted(_by_folder(places).values(), key=len, reverse=True):
        if len(own) < _LEAST_SAMPLED:
            continue
        results = [answers[place] for place in own if place in answers]
        for place in own:
            if count == limit or (results and (results[-1] or len(results) > 1)):
                break
            if place not in answers and (is_right := answer(place)) is not None:
                answers[place] = is_right
                results.append(is_right)
                count += 1
    return count


def _refuse(places: frozenset[Place], answers: Mapping[Place, bool]) -> frozenset[Place]:
    """Return the places that stay: those answered with no, and folders of which no place was answered with yes."""
    refused: set[Place] = set()
    for own in _by_folder(places).values():
        results = [answers[place] for place in own if place in answers]
        refused |= {place for place in own if answers.get(place) is False}
        if len(results) > 1 and not any(results):
            refused |= set(own)
    return frozenset(refused)


def _by_folder(places: frozenset[Place]) -> dict[str, list[Place]]:
    """Return places by the first folder of their paths, those of tests apart, in an order of their texts alone."""
    folders: dict[str, list[Place]] = {}
    for place in sorted(places, key=lambda place: sha256_text(repr(place))):
        kind = "test" if _TESTS & set(place.path.split("/")[:-1]) else ""
        folders.setdefault(f"{place.path.partition('/')[0]}/{kind}", []).append(place)
    return folders


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
    row["ways"] = math.log(len(choice.options))
    row["background"] = math.log1p(min(_background(option, change.language) for option in choice.options[:2]))
    row["support"] = math.log(max(option.support for option in choice.options))
    row["contradictions"] = float(min(option.contradictions for option in choice.options))
    removed = words_of(change.before.text[site.start : site.end])
    quoted = frozenset.intersection(*(option.words for option in choice.options)) - removed
    instructed = {word.lower() for word in words_of(instruction)}
    row["quoted"] = float(len(quoted))
    row["quoted-said"] = float(sum(word.lower() in instructed for word in quoted))
    row["said"] = float(any(word.lower() in instructed for word in removed)) * row["share"]
    return row


def _background(option: Option, language: Language) -> int:
    return sum(background.hits(rule_of(action), language, option.words) for action in option.actions)


Pattern = tuple[bool, ...]


def _places_by_choices(choices: Sequence[Choice]) -> dict[Pattern, list[Place]]:
    """Return all places by the choices that have them, in an order that depends on their texts alone."""
    groups: dict[Pattern, list[Place]] = {}
    for place in sorted(frozenset().union(*(choice.places for choice in choices))):
        groups.setdefault(tuple(place in choice.places for choice in choices), []).append(place)
    return {pattern: sorted(places, key=lambda place: sha256_text(repr(place))) for pattern, places in groups.items()}


def _next_place(groups: Mapping[Pattern, list[Place]], beliefs: Sequence[float]) -> tuple[Pattern, Place | None]:
    """Return a place whose answer is least certain, and the choices that have it; no place if all are certain enough."""
    best: tuple[float, Pattern, Place | None] = (_CERTAIN, (), None)
    for pattern, places in groups.items():
        if not places:
            continue
        shares = [_YES_INSIDE if is_inside else _YES_OUTSIDE for is_inside in (*pattern, False)]
        yes = sum(belief * share for belief, share in zip(beliefs, shares, strict=True))
        noise = sum(belief * _entropy(share) for belief, share in zip(beliefs, shares, strict=True))
        information = _entropy(yes) - noise
        if information > best[0]:
            best = (information, pattern, places[0])
    return best[1], best[2]


def _entropy(share: float) -> float:
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def _expected_gains(choices: Sequence[Choice], beliefs: Sequence[float]) -> list[float]:
    """Return what taking each choice is expected to be worth."""
    gains = [0.0] * len(choices)
    for number, choice in enumerate(choices):
        size = len(choice.places)
        for other, belief in zip(choices, beliefs, strict=False):
            common = len(choice.places & other.places)
            if size and common >= _PRECISION * size:
                gains[number] += belief * (common / max(1, len(other.places))) * (common / size) ** 2
            elif size:
                gains[number] -= belief * _LOSS
        gains[number] -= _LOSS * beliefs[-1] * bool(size)
    return gains


_NOTHING = 0.08
WEIGHTS: Mapping[str, float] = {
    **{"name-any": 0.4, "name-kind": -0.3, "name-second": 1.3, "name-aunt": -0.8, "name-role": -0.1},
    **{"text-role": 0.6, "text-neighbor": 0.9, "text-aunt": 0.3, "affix-second": -0.1},
    **{"shape-any": 0.7, "shape-role": 0.6, "shape-kind": 0.3, "shape-neighbor": -0.2},
    **{
        "insert-neighbor": 0.6,
        "insert-aunt": -0.3,
        "delete-neighbor": 0.3,
        "modifier-neighbor": 0.3,
        "example-any": -0.2,
    },
    **{"places": 0.1, "none": -2.1, "few": -0.9, "share": -0.2, "larger": -0.9, "smaller": 0.3, "ways": 0.9},
    **{"support": 2.0, "contradictions": -1.0},
    **{"background": -1.3, "quoted": -0.7, "quoted-said": 0.8, "said": 0.1},
}
"""Of the features of `weigh`: those of the expected gain on edits of commits (`benchmarks.migrations`, the half that is
tuned on), kept near values that were set by hand; five-fold, the best choice is then taken for 71 % rather than 53 %."""
