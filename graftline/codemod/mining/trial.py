"""Candidates tried on the small changes and the newest files of a history: where they do what people did, and where not."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import Field

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import key_of, list_replaced_words, list_required_words, list_written_words, words_of
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length, is_general
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.mining.pairs import KeyedAction, Pair
from graftline.codemod.mining.subjects import is_broad, is_renaming
from graftline.codemod.source_files import SourceFile
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, ensure_decided

_BATCH = 64
_SHORTEST, _LONGEST = 8, 4
"""Candidates that are tried of those that explain the same."""
_WORD = re.compile(r"\w+")
_OF_ONE_COMMIT, _LEAST_DONE = 2, 25
"""Places more that a rule of one commit needs, and places that were changed for each that is still as it was."""
_NORMAL_QUANTILE = 1.645
"""One-sided, of 95 %."""
_CONTRADICTION_COST, _BACKGROUND_COST = 2.0, 3.0


class MiningConfig(Config):
    """Which rules are kept."""

    min_support: int = Field(default=2, ge=1)
    """Small changes in which a rule does something, and nothing but what was done."""
    min_precision: float = Field(default=0.9, ge=0, le=1)
    """Of the places that it would change, the share that was changed just so; of rules that know their places by one word
    at most, the lower limit of that share (`limit_share`)."""
    needs_general: bool = False
    """Leaves out rules without variables."""


@dataclass(frozen=True, slots=True)
class Support:
    """A rule, and where it did what people did."""

    action: PatternAction | RuleAction
    language: Language
    right: frozenset[tuple[int, int]]
    """Pairs in which it did nothing else, and the sites of them that it fixed."""
    distinct: int
    """Places in which it was right; the same text of the same file in another commit is a copy of one."""
    files: int
    """Files that these are in."""
    commits: int
    places: int
    contradictions: int
    """Places that people left as they were, or changed otherwise."""
    remaining: int
    """Of them, those in the files as they are now."""
    alone: int
    """Places whose lines it left as people did; of others, what it makes is a part of what they made."""
    background: int = 0
    """Places it would change in code that the history is not about."""

    @property
    def pairs(self) -> frozenset[int]:
        return frozenset(pair for pair, _ in self.right)

    @property
    def surety(self) -> float:
        """What the share of its places that people changed so is at least (`limit_share`)."""
        return limit_share(self.places, self.contradictions)

    @property
    def rank(self) -> tuple[float, float, str]:
        """The less the better: what it explains, less what speaks against it; then what it takes to say it."""
        breadth = math.log2(1 + self.background)
        explained = len(self.right) - _CONTRADICTION_COST * self.contradictions - breadth
        return -explained, description_length(self.action) + _BACKGROUND_COST * breadth, key_of(self.action)

    def is_enough(self, config: MiningConfig) -> bool:
        share = self.places / max(1, self.places + self.contradictions)
        # of a name that means several things, or of no name at all, a few places say little
        is_checked = self.contradictions > 0 or not list_required_words(self.action, self.language)
        is_doubtful = is_checked and is_broad(self.action)
        if (self.surety if is_doubtful else share) < config.min_precision:
            return False
        # a renaming is of a thing that stays what it is
        is_whole = self.alone > 0 and (2 * self.alone >= self.places or not is_renaming(self.action))
        # twice in one file is a habit of that file, and what one commit alone does may be its only purpose
        is_repeated = self.distinct >= config.min_support + (self.files == 1) + _OF_ONE_COMMIT * (self.commits == 1)
        is_done = _LEAST_DONE * self.remaining <= self.places
        return is_done and is_whole and is_repeated and (is_general(self.action) or not config.needs_general)


def limit_share(right: int, wrong: int) -> float:
    """Return what the share of `right` is at least, with a confidence of 95 % (Wilson 1927, doi:10.1080/01621459.1927.10502953)."""
    count = right + wrong
    if not count:
        return 0.0
    share, square = right / count, _NORMAL_QUANTILE**2 / count
    return (share + square / 2 - math.sqrt(square * (share * (1 - share) + square / 4))) / (1 + square)


class _Tally:
    """What a candidate did so far."""

    def __init__(self, language: Language, action: PatternAction | RuleAction) -> None:
        self.action, self.language = action, language
        self.required, self.written = list_required_words(action, language), list_written_words(action)
        self.lost, self.gained = list_replaced_words(action, language), self.written - self.required
        self.right: set[tuple[int, int]] = set()
        self.spots: Counter[tuple[str, str, str, str]] = Counter()
        """Places in which it was right: commit, path, text and new text."""
        self.places, self.alone, self.oldest = 0, 0, -1
        """Places in which it was right, how many of them it finished, and the age of the oldest."""
        self.wrong: Counter[int] = Counter()
        """Places that it would change otherwise than people did, by their age."""

    @property
    def contradictions(self) -> int:
        """Places that people left, or changed otherwise, after the first of them made the change; before, nobody could know."""
        return sum(count for age, count in self.wrong.items() if age <= self.oldest)

    def is_precise(self, config: MiningConfig) -> bool:
        return self.places >= config.min_precision * (self.places + self.contradictions)

    @property
    def support(self) -> Support:
        most: dict[tuple[str, ...], int] = {}
        for (_, *spot), count in self.spots.items():
            most[*spot] = max(count, most.get((*spot,), 0))
        return Support(
            self.action,
            self.language,
            frozenset(self.right),
            distinct=sum(most.values()),
            files=len({path for path, *_ in most}),
            commits=len({commit for commit, *_ in self.spots}),
            places=self.places,
            contradictions=self.contradictions,
            remaining=self.wrong[-1],
            alone=self.alone,
        )


class _Text(NamedTuple):
    """What candidates are tried on."""

    text: str
    language: Language
    words: frozenset[str]
    age: int = -1
    """The number of its commit, from the newest; -1 of files as they are now."""
    pair: int = -1
    """The number of the small change of which it is the text before; -1 of others, in which nothing was changed."""
    fewer: frozenset[str] = frozenset()
    """Words that a small change leaves fewer of."""
    more: frozenset[str] = frozenset()
    """Words that it leaves more of."""


class Trial:
    """Tries candidates on small changes and files: first where they may be right, and those that are, everywhere."""

    def __init__(
        self, pairs: Sequence[Pair], newest: Sequence[SourceFile], config: MiningConfig, sandbox: Sandbox
    ) -> None:
        self._pairs, self._config, self._sandbox = pairs, config, sandbox
        ages = {commit: age for age, commit in enumerate(dict.fromkeys(pair.commit for pair in pairs))}
        self._before = [_read_before(pair, index, ages[pair.commit]) for index, pair in enumerate(pairs)]
        # what people wrote, and would be written anew, and what they left
        self._after = [_Text(pair.after, pair.language, words_of(pair.after), ages[pair.commit]) for pair in pairs]
        self._newest = [_Text(file.text, file.language, words_of(file.text)) for file in newest]
        self._changes: dict[int, Change | None] = {}

    def run(self, candidates: Sequence[KeyedAction], advance: Callable[[int, int], None]) -> list[Support]:
        """Return the candidates that are right in enough small changes, and seldom wrong."""
        texts = [*self._before, *self._after, *self._newest]
        total = len(self._before) + len(texts)
        tallies = [_Tally(*keyed) for keyed in candidates]
        near = [
            [
                tally
                for tally in _choose(tallies, before)
                if tally.written <= after.words and tally.lost <= before.fewer and tally.gained <= before.more
            ]
            for before, after in zip(self._before, self._after, strict=True)
        ]
        counts = Counter(tally for own in near for tally in own)
        near = [[tally for tally in own if counts[tally] >= self._config.min_support] for own in near]
        for start in range(0, len(near), _BATCH):
            self._try(self._before[start : start + _BATCH], near[start : start + _BATCH])
            advance(min(start + _BATCH, len(near)), total)
        tallies = _leave_out_alike(tally for tally in tallies if tally.support.is_enough(self._config))
        former = [frozenset(own) for own in near]
        for start in range(0, len(texts), _BATCH):
            # what is contradicted too often already is tried no further
            tallies = [tally for tally in tallies if tally.is_precise(self._config)]
            batch = texts[start : start + _BATCH]
            chosen = [
                [
                    tally
                    for tally in _choose(tallies, text)
                    if text.age <= tally.oldest and (text.pair < 0 or tally not in former[text.pair])
                ]
                for text in batch
            ]
            self._try(batch, chosen)
            advance(len(near) + min(start + _BATCH, len(texts)), total)
        return [support for tally in tallies if (support := tally.support).is_enough(self._config)]

    def _try(self, texts: Sequence[_Text], chosen: Sequence[Sequence[_Tally]]) -> None:
        requests = [
            Request(text.text, text.language, tuple(tally.action for tally in own))
            for text, own in zip(texts, chosen, strict=True)
        ]
        for text, own, results in zip(texts, chosen, self._sandbox.apply_each(requests), strict=True):
            for tally, result in zip(own, map(ensure_decided, results), strict=True):
                if text.pair < 0:
                    tally.wrong[text.age] += _count_changed(text.text, result)
                elif result.matches and (change := self._compare(text.pair)) is not None:
                    self._count(tally, text, change, judge(change, result))

    def _count(self, tally: _Tally, text: _Text, change: Change, judgment: Judgment) -> None:
        # a place within code that was rewritten as a whole is neither: nobody knows what would have become of it
        wrong = [match for match in judgment.wrong if change.inside(match.start, match.end) is not None]
        # what takes away something that people moved is half of their edit
        is_half = any(_list_lost(text.text, match) - text.fewer for match in judgment.right)
        if not wrong and not is_half:
            pair = self._pairs[text.pair]
            tally.right |= {(text.pair, site) for site in judgment.fixed if not change.sites[site].is_blank}
            tally.spots.update(
                (pair.commit, pair.path, pair.before[match.start : match.end], match.replacement)
                for match in judgment.right
            )
            tally.oldest = max(tally.oldest, text.age if judgment.right else -1)
        if not is_half:
            tally.places += len(judgment.right)
            tally.alone += sum(_finishes_lines(text.text, match, change, judgment) for match in judgment.right)
        tally.wrong[text.age] += len(wrong)

    def _compare(self, index: int) -> Change | None:
        """Return a small change as two trees; None where a side cannot be read."""
        if index not in self._changes:
            pair = self._pairs[index]
            try:
                self._changes[index] = Change.between(pair.before, pair.after, pair.language)
            except DataError:
                self._changes[index] = None
        return self._changes[index]


def _read_before(pair: Pair, number: int, age: int) -> _Text:
    old, new = (Counter(_WORD.findall(side)) for side in (pair.before, pair.after))
    return _Text(pair.before, pair.language, frozenset(old), age, number, frozenset(old - new), frozenset(new - old))


def _finishes_lines(text: str, match: Match, change: Change, judgment: Judgment) -> bool:
    """Return whether nothing else was changed in the lines of a match."""
    start, end = text.rfind("\n", 0, match.start) + 1, text.find("\n", match.end) % (len(text) + 1)
    sites = [(index, site) for index, site in enumerate(change.sites) if start <= site.start and site.end <= end]
    return all(index in judgment.fixed or site.is_blank for index, site in sites)


def _list_lost(text: str, match: Match) -> frozenset[str]:
    old, new = (Counter(_WORD.findall(side)) for side in (text[match.start : match.end], match.replacement))
    return frozenset(old - new)


def _leave_out_alike(tallies: Iterable[_Tally]) -> list[_Tally]:
    """Return the tallies without most of those that are right in just the same places: of them the shortest stay, and a few long ones."""
    alike = defaultdict[tuple[Language, frozenset[tuple[int, int]]], list[_Tally]](list)
    for tally in tallies:
        alike[tally.language, frozenset(tally.right)].append(tally)
    ranked = [
        sorted(own, key=lambda tally: (description_length(tally.action), key_of(tally.action)))
        for own in alike.values()
    ]
    return [tally for own in ranked for tally in (*own[:_SHORTEST], *own[_SHORTEST:][-_LONGEST:])]


def _choose(tallies: Iterable[_Tally], text: _Text) -> list[_Tally]:
    return [tally for tally in tallies if tally.language == text.language and tally.required <= text.words]


def _count_changed(text: str, result: SandboxResult) -> int:
    return sum(match.replacement != text[match.start : match.end] for match in result.matches)
