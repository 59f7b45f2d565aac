"""From one example (text before, text after) to ast-grep rules that make the change, without a language model.

    1  the difference of the two trees gives sites                                            (`rules.diff`)
    2  regions round a site: the nodes that cover it, neighbors, runs of nodes               (`rules.change`)
    3  every region under every policy gives a pattern and its rewrite, and special forms      (`rules.candidates`)
    4  one call of the sandbox applies all of them; a candidate holds if every edit it makes is a wanted one
    5  what changes too much is tried again with constraints, or within a definition           (`rules.repair`)
    6  what holds and is shortest to say per site it fixes, with a charge for every place it would change in code that
       the example is not about (`rules.background`), is the step; then again, until nothing is left

Getafix (https://arxiv.org/abs/1902.06111) and Refazer (https://arxiv.org/abs/1608.09000) anti-unify as well; here the
judge of a candidate is ast-grep itself, run on the text, rather than a model of what the pattern would match. No clock
decides anything: the same texts give the same rules on any machine.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from pydantic import Field

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import MAX_LINE_CHARACTERS, MAX_SOURCE_CHARACTERS, Language
from graftline.codemod import background
from graftline.codemod.candidates import Candidate, Forms, generate_candidates
from graftline.codemod.change import Change
from graftline.codemod.equality import Level, compare_texts, normalize_blank_lines
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.repair import repair
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.sandbox.base import Match, Sandbox, SandboxResult, ensure_decided
from graftline.sandbox.runner import default_sandbox

Unsolved = Literal["", "unreadable", "too_large", "too_different", "no_candidate", "partial", "repeated", "max_steps"]
"""Why the steps do not lead to the wanted text; empty where they do.

`unreadable`: a side is no valid Unicode or nested too deep; `too_large`: longer, or with a longer line, than is parsed;
`too_different`: more places differ than are looked at; `no_candidate`: not one rule holds; `partial`: some rules hold,
none for what is left; `repeated`: a step led back to an earlier text; `max_steps`: the steps that may be taken did not
do."""


@dataclass(frozen=True, slots=True)
class ScoredAction:
    """An action that changes nothing but what is wanted, and what it costs to say it."""

    action: PatternAction | RuleAction
    variables: int
    """Metavariables that it leaves free; 0 says that it memorises the example."""
    description_length: float
    """Description length over that of the shortest literal action for the same places; below 1 is shorter."""
    sites: int
    """Places of the text that it puts right, blanks aside."""
    pairs: int
    """Pairs of texts in which it does so; 1 where there is one."""
    background: int
    """Places it would change in the background corpus of its language (`rules.background`)."""

    @property
    def is_general(self) -> bool:
        """Whether it leaves something free."""
        return self.variables > 0


@dataclass(frozen=True, slots=True)
class RejectedAction:
    """A candidate that would also change what must stay."""

    action: PatternAction | RuleAction
    right: int
    """Number of matches that it would change as it should."""
    wrong: int
    """Number of matches that it would change otherwise."""
    line: int
    """Line of the first wrong one, from 1, in the text the step starts from."""


@dataclass(frozen=True, slots=True)
class InductionStep:
    """One induced action and what it does to the text it was induced on."""

    chosen: ScoredAction
    before: str
    written: str
    """What `ast-grep scan --update-all` makes of the text before."""
    after: str
    """The same, tidied (`rules.tidy`): the text that the next step starts from."""
    places: tuple[Match, ...]
    """What it replaces, in the order of the text."""
    sites_left: int
    """Places that still differ afterwards, blanks aside."""
    alternatives: tuple[ScoredAction, ...]
    """Others that hold at this place, the most general last; the literal one, where there is one, first."""
    rejected: tuple[RejectedAction, ...]
    """The cheapest candidates that failed, cheapest first."""

    @property
    def action(self) -> PatternAction | RuleAction:
        """The action of the step."""
        return self.chosen.action

    @property
    def matches(self) -> int:
        """Number of places that it replaces."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Induction:
    """Steps from one text towards another."""

    steps: tuple[InductionStep, ...]
    result: str
    """The text that they lead to."""
    level: Level
    """How equal it is to the wanted one; `none` where it is not, however near it came."""
    unsolved: Unsolved

    @property
    def is_verified(self) -> bool:
        """Whether the text reached counts as the wanted one."""
        return self.level.is_verified

    @property
    def is_all_general(self) -> bool:
        """Whether every step leaves something free; False without steps."""
        return bool(self.steps) and all(step.chosen.is_general for step in self.steps)


@dataclass(frozen=True, slots=True)
class SharedInduction:
    """One list of actions for several pairs of texts."""

    actions: tuple[ScoredAction, ...]
    """In the order in which they are applied; each holds on every pair and leaves every negative as it is."""
    results: tuple[str, ...]
    """The text that all of them lead to, for each pair."""
    levels: tuple[Level, ...]
    """How equal it is to the wanted one."""

    @property
    def is_verified(self) -> bool:
        """Whether every pair is solved."""
        return all(level.is_verified for level in self.levels)


_MAX_SQUARES = 500_000_000
"""Of the lengths of lines together: the binding takes time in the square of each."""
_LAYOUT = re.compile(r"[\s,;]+")
_BLANK_SITE = 0.1
_BACKGROUND_COST = 3.0
_UNTIDY_COST = 15.0
_MAX_REJECTED, _MAX_ALTERNATIVES = 2, 4


class InductionConfig(Config):
    """How rules are looked for."""

    max_steps: int = Field(default=16, ge=1, le=64)
    max_sites: int = Field(default=400, ge=1)
    """Differences beyond which two texts are not one edit."""
    max_sites_tried: int = Field(default=6, ge=1)
    """Sites tried before a step is given up."""
    max_repairs: int = Field(default=40, ge=0)
    """Candidates tried with constraints."""
    forms: Forms = "all"
    """`plain` leaves patterns with a rewrite, `literal` what has no variables."""
    uses_background: bool = True


@dataclass(frozen=True, slots=True)
class _Tried:
    candidate: Candidate
    result: SandboxResult
    judgment: Judgment

    def rank(self, hits: int = 0) -> tuple[bool, float, int, str]:
        """The less the better."""
        return rank(self.candidate, [self.judgment], hits)


def induce(
    before: str, after: str, language: Language, sandbox: Sandbox | None = None, inducing: InductionConfig | None = None
) -> Induction:
    """Return steps that lead from `before` to `after`, or as far as they go.

    Args:
        before: The text to be changed.
        after: The wanted text.
        language: The language of both.
        sandbox: Where candidates are tried; that of the configuration where it is not given.
        inducing: How rules are looked for.

    Raises:
        SandboxError: the sandbox failed.
    """
    settings, sandbox = inducing or InductionConfig(), sandbox or default_sandbox()
    steps: list[InductionStep] = []
    text, seen = before, {before}
    cause: Unsolved = ""
    while text != after and not cause:
        if len(steps) == settings.max_steps:
            cause = "max_steps"
            break
        step = _tried_step(text, after, language, sandbox, settings)
        if isinstance(step, str):
            cause = "partial" if step == "no_candidate" and steps else step
        elif step.after in seen:
            cause = "repeated"
        else:
            steps.append(step)
            text = step.after
            seen.add(text)
    level = level_of(text, after, language)
    return Induction(tuple(steps), text, level, "" if level.is_verified else cause or "partial")


def induce_step(
    before: str, after: str, language: Language, sandbox: Sandbox, inducing: InductionConfig | None = None
) -> InductionStep | Unsolved:
    """Return the best single action on the way from `before` to `after`, or why there is none.

    Raises:
        SandboxError: the sandbox failed.
    """
    return _tried_step(before, after, language, sandbox, inducing or InductionConfig())


def rank(candidate: Candidate, judgments: Sequence[Judgment], hits: int) -> tuple[bool, float, int, str]:
    """Return what candidates are ordered by, the best first: its cost for each site it puts right.

    Blanks alone come last; sites of blanks count little; of two that cost the same the more general policy is better.
    """
    real = sum(judgment.real for judgment in judgments)
    blank = sum(len(judgment.fixed) for judgment in judgments) - real
    untidy = sum(judgment.untidy for judgment in judgments)
    # the more places of the example bear a rule out, the less it matters that it is about much other code as well
    foreign = _BACKGROUND_COST * math.log2(1 + hits) / max(1, real)
    cost = candidate.cost + foreign + _UNTIDY_COST * untidy
    return real == 0, cost / (real + _BLANK_SITE * blank), candidate.preference, candidate.action.model_dump_json()


def relative_length(candidate: Candidate, literal: float | None) -> float:
    """Return the cost of `candidate` over that of the shortest literal one that holds; 1 where none does."""
    return round(candidate.cost / literal, 4) if literal else 1.0


def is_too_large(text: str) -> bool:
    """Return whether `text` is longer, or has longer lines, than is parsed here."""
    lines = [len(line) for line in text.split("\n")]
    is_long = len(text) > MAX_SOURCE_CHARACTERS or max(lines) > MAX_LINE_CHARACTERS
    return is_long or sum(length * length for length in lines) > _MAX_SQUARES


def level_of(text: str, after: str, language: Language) -> Level:
    """Return how equal `text` is to `after`: exact, blanks, tree or none; none where they cannot be compared."""
    if text == after:
        return Level.EXACT
    try:
        return compare_texts(text, after, language)
    except DataError:
        return Level.NONE


def _tried_step(
    before: str, after: str, language: Language, sandbox: Sandbox, settings: InductionConfig
) -> InductionStep | Unsolved:
    if is_too_large(before) or is_too_large(after):
        return "too_large"
    try:
        return _best_step(Change.between(before, after, language), sandbox, settings)
    except DataError:
        return "unreadable"


def _best_step(change: Change, sandbox: Sandbox, settings: InductionConfig) -> InductionStep | Unsolved:
    wanted = change.wanted or change.sites
    if len(wanted) > settings.max_sites:
        return "too_different"
    failed: list[_Tried] = []
    for site in wanted[: settings.max_sites_tried]:
        tried = _judged(change, list(generate_candidates(change, site, settings.forms)), sandbox)
        failed += [one for one in tried if one.judgment.wrong]
        holding = [one for one in tried if one.judgment.holds]
        if not holding:
            fixable = sorted((one for one in tried if one.judgment.right), key=lambda one: one.candidate.cost)
            again = (better for one in fixable for better in repair(change, one.candidate, one.judgment))
            tried = _judged(change, list(islice(again, settings.max_repairs)), sandbox)
            holding = [one for one in tried if one.judgment.holds]
        if holding:
            return _step(change, holding, failed, settings)
    return "no_candidate"


def _judged(change: Change, tried: Sequence[Candidate], sandbox: Sandbox) -> list[_Tried]:
    if not tried:
        return []
    actions = [candidate.action for candidate in tried]
    results = map(ensure_decided, sandbox.apply_many(change.before.text, change.language, actions))
    return [_Tried(candidate, result, judge(change, result)) for candidate, result in zip(tried, results, strict=True)]


def _step(
    change: Change, holding: Sequence[_Tried], failed: Sequence[_Tried], settings: InductionConfig
) -> InductionStep:
    ranked = _weighed(sorted(holding, key=_Tried.rank), change.language, settings)
    best, _ = ranked[0]
    literal = min((one.candidate.cost for one in holding if not one.candidate.free), default=None)
    before = change.before.text
    others = [_scored(one, hits, literal) for one, hits in ranked[1:]][:_MAX_ALTERNATIVES]
    cheapest = sorted(failed, key=lambda one: (one.candidate.cost, one.candidate.action.model_dump_json()))
    # another way to the same program is no failure
    wrong = (one for one in cheapest if not _is_wanted(change, normalize_blank_lines(before, one.result)))
    return InductionStep(
        chosen=_scored(*ranked[0], literal),
        before=before,
        written=before if best.result.after is None else best.result.after,
        after=normalize_blank_lines(before, best.result),
        places=best.result.matches,
        sites_left=len(change.wanted) - best.judgment.real,
        alternatives=tuple(sorted(others, key=lambda one: one.variables)),
        rejected=tuple(_rejected(before, one) for one in islice(wrong, _MAX_REJECTED)),
    )


def _is_wanted(change: Change, text: str) -> bool:
    after = change.after.text
    return _squeezed(text) == _squeezed(after) and level_of(text, after, change.language).is_verified


def _squeezed(text: str) -> str:
    return _LAYOUT.sub("", text)


def _weighed(ranked: Sequence[_Tried], language: Language, settings: InductionConfig) -> list[tuple[_Tried, int]]:
    """Return the best of `ranked` with the places they would change in the background, best first."""
    if not settings.uses_background:
        return [(one, 0) for one in ranked]
    weighed: list[tuple[_Tried, int]] = []
    for one in ranked:
        # a background never makes a rule cheaper: what is dearer without it than another is with it is not looked at
        if len(weighed) > _MAX_ALTERNATIVES and one.rank() >= min(other.rank(hits) for other, hits in weighed):
            break
        weighed.append((one, background.hits(rule_of(one.candidate.action), language, one.candidate.words)))
    return sorted(weighed, key=lambda pair: pair[0].rank(pair[1]))


def _scored(tried: _Tried, hits: int, literal: float | None) -> ScoredAction:
    candidate = tried.candidate
    mdl = relative_length(candidate, literal)
    return ScoredAction(candidate.action, candidate.free, mdl, tried.judgment.real, 1, hits)


def _rejected(before: str, tried: _Tried) -> RejectedAction:
    wrong = tried.judgment.wrong
    line = before.count("\n", 0, wrong[0].start) + 1
    return RejectedAction(tried.candidate.action, len(tried.judgment.right), len(wrong), line)
