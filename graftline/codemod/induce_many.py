"""From several examples of one change to one list of ast-grep rules.

A candidate comes from one pair, as in `rules.induce`, and has to be right on all of them: on every text, as far as the
rules before it have brought it, it may change only what is wanted there, and of a negative nothing. What it costs is
shared among the places it puts right in all pairs, so that one rule for many is preferred to one for each.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.candidates import Candidate, generate_candidates
from graftline.codemod.change import Change
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.induce import (
    InductionConfig,
    ScoredAction,
    SharedInduction,
    is_too_large,
    level_of,
    rank,
    relative_length,
)
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.repair import repair
from graftline.core.errors import DataError
from graftline.sandbox.base import Request, Sandbox, SandboxResult, Verdict, ensure_decided
from graftline.sandbox.runner import default_sandbox

_MAX_WEIGHED = 12


@dataclass
class _Pair:
    """One example, as far as the rules so far have brought it."""

    text: str
    wanted: str
    change: Change | None
    """None where it cannot be read."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A candidate that is right on every pair."""

    candidate: Candidate
    results: tuple[SandboxResult, ...]
    judgments: tuple[Judgment, ...]

    @property
    def sites(self) -> int:
        """Places that it puts right, blanks aside."""
        return sum(judgment.real for judgment in self.judgments)

    @property
    def pairs(self) -> int:
        """Pairs in which it puts something right."""
        return sum(bool(judgment.fixed) for judgment in self.judgments)

    def rank(self, hits: int = 0) -> tuple[bool, float, int, str]:
        """The less the better."""
        return rank(self.candidate, self.judgments, hits)


def induce_many(
    pairs: Sequence[tuple[str, str]],
    language: Language,
    sandbox: Sandbox | None = None,
    negatives: Sequence[str] = (),
    inducing: InductionConfig | None = None,
) -> SharedInduction:
    """Return one list of actions that leads from the first to the second text of every pair, or as far as it goes.

    Args:
        pairs: Texts before and after, of one change.
        language: The language of all of them.
        sandbox: Where candidates are tried; that of the configuration where it is not given.
        negatives: Texts that no action may change.
        inducing: How rules are looked for; `max_steps` counts for every pair.

    Raises:
        SandboxError: the sandbox failed.
    """
    settings, sandbox = inducing or InductionConfig(), sandbox or default_sandbox()
    state = [_Pair(before, after, _change(before, after, language, settings)) for before, after in pairs]
    actions: list[ScoredAction] = []
    given_up: set[int] = set()
    while len(actions) < settings.max_steps * max(1, len(pairs)):
        at = next((i for i, pair in enumerate(state) if pair.text != pair.wanted and i not in given_up), None)
        if at is None:
            break
        best = _best(state, at, language, sandbox, negatives, settings)
        if best is None:
            given_up.add(at)
            continue
        held, scored = best
        if all(
            normalize_blank_lines(pair.text, result) == pair.text
            for pair, result in zip(state, held.results, strict=True)
        ):
            given_up.add(at)
            continue
        actions.append(scored)
        for pair, result in zip(state, held.results, strict=True):
            pair.text = normalize_blank_lines(pair.text, result)
            pair.change = _change(pair.text, pair.wanted, language, settings)
    levels = tuple(level_of(pair.text, pair.wanted, language) for pair in state)
    return SharedInduction(tuple(actions), tuple(pair.text for pair in state), levels)


def _change(before: str, after: str, language: Language, settings: InductionConfig) -> Change | None:
    if is_too_large(before) or is_too_large(after):
        return None
    try:
        change = Change.between(before, after, language)
    except DataError:
        return None
    return change if len(change.wanted) <= settings.max_sites else None


def _best(
    state: Sequence[_Pair],
    at: int,
    language: Language,
    sandbox: Sandbox,
    negatives: Sequence[str],
    settings: InductionConfig,
) -> tuple[_Held, ScoredAction] | None:
    """Return the best candidate for a site of pair `at` that is right everywhere; None where there is none."""
    change = state[at].change
    if change is None:
        return None
    for site in (change.wanted or change.sites)[: settings.max_sites_tried]:
        tried = list(generate_candidates(change, site, settings.forms))
        held, close = _held(state, at, tried, language, sandbox, negatives)
        if not held:
            again = (better for one, verdict in close for better in repair(change, one, verdict))
            held, _ = _held(state, at, list(islice(again, settings.max_repairs)), language, sandbox, negatives)
        if held:
            return _cheapest(held, language, settings)
    return None


def _cheapest(held: Sequence[_Held], language: Language, settings: InductionConfig) -> tuple[_Held, ScoredAction]:
    ranked = sorted(held, key=_Held.rank)[:_MAX_WEIGHED]
    hits = [_hits(one.candidate, language) if settings.uses_background else 0 for one in ranked]
    best, foreign = min(zip(ranked, hits, strict=True), key=lambda pair: pair[0].rank(pair[1]))
    literal = min((one.candidate.cost for one in held if not one.candidate.free), default=None)
    candidate = best.candidate
    mdl = relative_length(candidate, literal)
    return best, ScoredAction(candidate.action, candidate.free, mdl, best.sites, best.pairs, foreign)


def _held(
    state: Sequence[_Pair],
    at: int,
    tried: Sequence[Candidate],
    language: Language,
    sandbox: Sandbox,
    negatives: Sequence[str],
) -> tuple[list[_Held], list[tuple[Candidate, Judgment]]]:
    """Return the candidates that are right everywhere, and those that change something wrongly in pair `at` itself."""
    close = []
    remaining: list[tuple[Candidate, SandboxResult, Judgment]] = []
    for candidate, result in zip(tried, _applied(state[at].text, language, tried, sandbox), strict=True):
        judgment = _judged(state[at], result)
        if judgment.wrong and judgment.right:
            close.append((candidate, judgment))
        elif judgment.holds:
            remaining.append((candidate, result, judgment))
    others = [i for i in range(len(state)) if i != at]
    kept = [candidate for candidate, _, _ in remaining]
    texts = [*(state[i].text for i in others), *negatives]
    answers = [[ensure_decided(one) for one in answer] for answer in _on_all(texts, language, kept, sandbox)]
    held = []
    for number, (candidate, result, judgment) in enumerate(remaining):
        results = {i: answer[number] for i, answer in zip(others, answers, strict=False)} | {at: result}
        judgments = {i: _judged(state[i], results[i]) for i in others} | {at: judgment}
        changes_negative = any(
            _changes(text, answer[number]) for text, answer in zip(negatives, answers[len(others) :], strict=True)
        ) or any(_is_unknown(answer[number]) for answer in answers)
        if not changes_negative and not any(one.wrong for one in judgments.values()):
            order = range(len(state))
            held.append(_Held(candidate, tuple(results[i] for i in order), tuple(judgments[i] for i in order)))
        elif not changes_negative:
            close.append((candidate, judgment))
    return held, sorted(close, key=lambda pair: pair[0].cost)


def _applied(text: str, language: Language, tried: Sequence[Candidate], sandbox: Sandbox) -> list[SandboxResult]:
    return list(map(ensure_decided, sandbox.apply_many(text, language, [one.action for one in tried]))) if tried else []


def _on_all(
    texts: Sequence[str], language: Language, tried: Sequence[Candidate], sandbox: Sandbox
) -> list[list[SandboxResult]]:
    if not tried:
        return [[] for _ in texts]
    return sandbox.apply_each([Request(text, language, tuple(one.action for one in tried)) for text in texts])


def _judged(pair: _Pair, result: SandboxResult) -> Judgment:
    if pair.change is not None:
        return judge(pair.change, result)
    # of a pair that cannot be compared nothing may change
    wrong = result.matches if _changes(pair.text, result) else ()
    return Judgment(frozenset(), 0, (), wrong, 0)


def _is_unknown(result: SandboxResult) -> bool:
    """Return whether it is not known what an action does to a text, as where it ran out of time."""
    return result.verdict not in (Verdict.OK, Verdict.NO_MATCH, Verdict.ACTION_ERROR)


def _changes(text: str, result: SandboxResult) -> bool:
    return result.verdict is Verdict.OK and result.after != text


def _hits(candidate: Candidate, language: Language) -> int:
    return background.hits(rule_of(candidate.action), language, candidate.words)
