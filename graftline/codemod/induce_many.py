"""From several examples of one change to one list of ast-grep rules.

A candidate comes from one pair, as in `codemod.induce`, and has to be right on all of them: on every text, as far as the
rules before it have brought it, it may only make right changes, and to a negative none. What it costs is shared among
the places it puts right in all pairs, so that one rule for many is preferred to one for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from graftline.astgrep.binding import Language
from graftline.codemod.candidates import Candidate, generate_candidates
from graftline.codemod.change import Change
from graftline.codemod.equality import Level, normalize_blank_lines
from graftline.codemod.induce import InductionConfig, ScoredAction, Trial, is_too_large, level_of, literal_cost
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.repair import repair
from graftline.core.errors import DataError
from graftline.sandbox.base import Request, Sandbox, SandboxResult, Verdict, ensure_decided
from graftline.sandbox.runner import default_sandbox

_MAX_WEIGHED = 12


@dataclass(frozen=True, slots=True)
class SharedInduction:
    """One list of actions for several pairs of texts."""

    actions: tuple[ScoredAction, ...]
    """In the order in which they are applied; each holds on every pair and leaves every negative as it is."""
    results: tuple[str, ...]
    """The text that all of them lead to, for each pair."""
    levels: tuple[Level, ...]
    """How equal it is to the target."""

    @property
    def is_verified(self) -> bool:
        """Whether every pair is solved."""
        return all(level.is_verified for level in self.levels)


@dataclass
class _Pair:
    """One example, as far as the rules so far have brought it."""

    text: str
    target: str
    change: Change | None
    """None where it cannot be read."""

    def judge(self, result: SandboxResult) -> Judgment:
        if self.change is not None:
            return judge(self.change, result)
        # of a pair that cannot be compared nothing may change
        return Judgment(frozenset(), 0, (), result.matches if _changes(self.text, result) else (), 0)


def induce_many(
    pairs: Sequence[tuple[str, str]],
    language: Language,
    sandbox: Sandbox | None = None,
    negatives: Sequence[str] = (),
    config: InductionConfig | None = None,
) -> SharedInduction:
    """Return one list of actions that leads from the first to the second text of every pair, or as far as it goes.

    No action may change any of `negatives`; `config.max_steps` counts for every pair.
    """
    return _SharedSearch(pairs, language, sandbox or default_sandbox(), negatives, config or InductionConfig()).run()


class _SharedSearch:
    def __init__(
        self,
        pairs: Sequence[tuple[str, str]],
        language: Language,
        sandbox: Sandbox,
        negatives: Sequence[str],
        config: InductionConfig,
    ) -> None:
        self._language, self._sandbox, self._negatives, self._config = language, sandbox, negatives, config
        self._pairs = [_Pair(before, after, self._compare(before, after)) for before, after in pairs]

    def run(self) -> SharedInduction:
        actions: list[ScoredAction] = []
        hopeless: set[int] = set()
        while len(actions) < self._config.max_steps * max(1, len(self._pairs)):
            unsolved = (i for i, pair in enumerate(self._pairs) if pair.text != pair.target and i not in hopeless)
            index = next(unsolved, None)
            if index is None:
                break
            best = self._best_action(index)
            if best is None:
                hopeless.add(index)
                continue
            trial, action = best
            outcomes = zip(self._pairs, trial.results, strict=True)
            texts = [normalize_blank_lines(pair.text, result) for pair, result in outcomes]
            if texts == [pair.text for pair in self._pairs]:
                hopeless.add(index)
                continue
            actions.append(action)
            for pair, text in zip(self._pairs, texts, strict=True):
                pair.text, pair.change = text, self._compare(text, pair.target)
        levels = tuple(level_of(pair.text, pair.target, self._language) for pair in self._pairs)
        return SharedInduction(tuple(actions), tuple(pair.text for pair in self._pairs), levels)

    def _compare(self, before: str, after: str) -> Change | None:
        if is_too_large(before) or is_too_large(after):
            return None
        try:
            change = Change.between(before, after, self._language)
        except DataError:
            return None
        return change if len(change.code_sites) <= self._config.max_sites else None

    def _best_action(self, index: int) -> tuple[Trial, ScoredAction] | None:
        """Return the best candidate for a site of pair `index` that is right everywhere; None where there is none."""
        change = self._pairs[index].change
        if change is None:
            return None
        for site in (change.code_sites or change.sites)[: self._config.max_sites_tried]:
            holding, close = self._try(index, list(generate_candidates(change, site, self._config.forms)))
            if not holding:
                repairs = (fix for candidate, judgment in close for fix in repair(change, candidate, judgment))
                holding, _ = self._try(index, list(islice(repairs, self._config.max_repairs)))
            if holding:
                return self._choose(holding)
        return None

    def _choose(self, holding: Sequence[Trial]) -> tuple[Trial, ScoredAction]:
        ranked = sorted(holding, key=Trial.rank)[:_MAX_WEIGHED]
        hits = [trial.count_hits(self._language) if self._config.uses_background else 0 for trial in ranked]
        best, best_hits = min(zip(ranked, hits, strict=True), key=lambda pair: pair[0].rank(pair[1]))
        return best, best.score(best_hits, literal_cost(holding))

    def _try(self, index: int, candidates: Sequence[Candidate]) -> tuple[list[Trial], list[tuple[Candidate, Judgment]]]:
        """Return the candidates that are right everywhere, and those that make wrong changes in pair `index` itself."""
        [results] = self._apply([self._pairs[index].text], candidates)
        close: list[tuple[Candidate, Judgment]] = []
        remaining: list[tuple[Candidate, SandboxResult, Judgment]] = []
        for candidate, result in zip(candidates, results, strict=True):
            judgment = self._pairs[index].judge(result)
            if judgment.wrong and judgment.right:
                close.append((candidate, judgment))
            elif judgment.holds:
                remaining.append((candidate, result, judgment))
        other_pairs = [pair for i, pair in enumerate(self._pairs) if i != index]
        texts = [*(pair.text for pair in other_pairs), *self._negatives]
        answers = self._apply(texts, [candidate for candidate, _, _ in remaining])
        holding = []
        for number, (candidate, result, judgment) in enumerate(remaining):
            answer = [results[number] for results in answers]
            on_pairs, on_negatives = answer[: len(other_pairs)], answer[len(other_pairs) :]
            if any(map(_is_unknown, answer)) or any(map(_changes, self._negatives, on_negatives)):
                continue
            judgments = [pair.judge(other) for pair, other in zip(other_pairs, on_pairs, strict=True)]
            if any(other.wrong for other in judgments):
                close.append((candidate, judgment))
            else:
                on_pairs.insert(index, result)
                judgments.insert(index, judgment)
                holding.append(Trial(candidate, tuple(on_pairs), tuple(judgments)))
        return holding, sorted(close, key=lambda pair: pair[0].cost)

    def _apply(self, texts: Sequence[str], candidates: Sequence[Candidate]) -> list[list[SandboxResult]]:
        """Return what the candidates do, for every text."""
        if not candidates:
            return [[] for _ in texts]
        actions = tuple(candidate.action for candidate in candidates)
        answers = self._sandbox.apply_each([Request(text, self._language, actions) for text in texts])
        return [list(map(ensure_decided, answer)) for answer in answers]


def _is_unknown(result: SandboxResult) -> bool:
    """Return whether it is not known what an action does to a text, as where it ran out of time."""
    return result.verdict not in (Verdict.OK, Verdict.NO_MATCH, Verdict.ACTION_ERROR)


def _changes(text: str, result: SandboxResult) -> bool:
    return result.verdict is Verdict.OK and result.after != text
