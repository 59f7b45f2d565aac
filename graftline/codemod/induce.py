"""From one example (text before, text after) to ast-grep rules that make the change, without a language model.

    1  the difference of the two trees gives sites                                              (`codemod.diff`)
    2  regions around a site: the nodes that cover it, neighbors, runs of nodes                 (`codemod.change`)
    3  every region under every policy gives a pattern and its rewrite, and special forms       (`codemod.candidates`)
    4  one call of the sandbox applies all of them; a candidate holds if each of its edits is right   (`codemod.judge`)
    5  what changes too much is tried again with constraints, or within a definition            (`codemod.repair`)
    6  what holds and is shortest to say per site it fixes, with a charge for every place it would change in code that
       the example is not about (`codemod.background`), is the step; then again, until nothing is left

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
"""Why the steps do not lead to the target text; empty where they do.

`unreadable`: a side is no valid Unicode or nested too deep; `too_large`: longer, or with a longer line, than is parsed;
`too_different`: more places differ than are looked at; `no_candidate`: not one rule holds; `partial`: some rules hold,
none for what is left; `repeated`: a step led back to an earlier text; `max_steps`: the steps that may be taken did not
do."""

_MAX_SQUARES = 500_000_000
"""Of the lengths of lines together: the binding takes time in the square of each."""
_LAYOUT = re.compile(r"[\s,;]+")
_BLANK_SITE = 0.1
_BACKGROUND_COST, _UNTIDY_COST = 3.0, 15.0
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
class ScoredAction:
    """An action that makes no wrong change, and what it costs to say it."""

    action: PatternAction | RuleAction
    variables: int
    """Metavariables that it leaves free; 0 says that it memorises the example."""
    description_length: float
    """Over that of the shortest literal action for the same places; below 1 is shorter."""
    sites: int
    """Places of the text that it puts right, blanks aside."""
    pairs: int
    """Pairs of texts in which it does so; 1 where there is one."""
    background: int
    """Places it would change in the background corpus of its language."""

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
    line: int
    """Line of the first wrong match, from 1, in the text the step starts from."""


@dataclass(frozen=True, slots=True)
class InductionStep:
    """One induced action and what it does to the text it was induced on."""

    chosen: ScoredAction
    before: str
    written: str
    """What `ast-grep scan --update-all` makes of the text before."""
    after: str
    """The same with blank lines normalized: the text that the next step starts from."""
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
    """How equal it is to the target; `none` where it is not, however near it came."""
    unsolved: Unsolved

    @property
    def is_verified(self) -> bool:
        """Whether the text reached counts as the target."""
        return self.level.is_verified

    @property
    def is_all_general(self) -> bool:
        """Whether every step leaves something free; False without steps."""
        return bool(self.steps) and all(step.chosen.is_general for step in self.steps)


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate, with what it did to the text of every example."""

    candidate: Candidate
    results: tuple[SandboxResult, ...]
    judgments: tuple[Judgment, ...]

    def rank(self, hits: int = 0) -> tuple[bool, float, int, str]:
        """Return what trials are ordered by, the best first: the cost for each site that is put right.

        Blanks alone come last; sites of blanks count little; of two that cost the same the more general policy is better.
        """
        real = sum(judgment.real for judgment in self.judgments)
        blank = sum(len(judgment.fixed) for judgment in self.judgments) - real
        # the more places of the example bear a rule out, the less it matters that it is about much other code as well
        foreign = _BACKGROUND_COST * math.log2(1 + hits) / max(1, real)
        untidy = sum(judgment.untidy for judgment in self.judgments)
        cost = self.candidate.cost + foreign + _UNTIDY_COST * untidy
        key = self.candidate.action.model_dump_json()
        return real == 0, cost / (real + _BLANK_SITE * blank), self.candidate.preference, key

    def count_hits(self, language: Language) -> int:
        """Return the places of the background corpus that the candidate would change."""
        return background.hits(rule_of(self.candidate.action), language, self.candidate.words)

    def score(self, hits: int, literal_cost: float | None) -> ScoredAction:
        """Return the action with its costs; `literal_cost` is that of the shortest literal candidate that holds."""
        return ScoredAction(
            self.candidate.action,
            self.candidate.free,
            round(self.candidate.cost / literal_cost, 4) if literal_cost else 1.0,
            sum(judgment.real for judgment in self.judgments),
            sum(bool(judgment.fixed) for judgment in self.judgments),
            hits,
        )


def induce(
    before: str, after: str, language: Language, sandbox: Sandbox | None = None, config: InductionConfig | None = None
) -> Induction:
    """Return steps that lead from `before` to `after`, or as far as they go.

    Candidates are tried in `sandbox`, or else in that of the configuration.
    """
    config, sandbox = config or InductionConfig(), sandbox or default_sandbox()
    steps: list[InductionStep] = []
    text, visited = before, {before}
    cause: Unsolved = ""
    while text != after and not cause:
        if len(steps) == config.max_steps:
            cause = "max_steps"
            break
        step = induce_step(text, after, language, sandbox, config)
        if isinstance(step, str):
            cause = "partial" if step == "no_candidate" and steps else step
        elif step.after in visited:
            cause = "repeated"
        else:
            steps.append(step)
            text = step.after
            visited.add(text)
    level = level_of(text, after, language)
    return Induction(tuple(steps), text, level, "" if level.is_verified else cause or "partial")


def induce_step(
    before: str, after: str, language: Language, sandbox: Sandbox, config: InductionConfig | None = None
) -> InductionStep | Unsolved:
    """Return the best single action on the way from `before` to `after`, or why there is none."""
    if is_too_large(before) or is_too_large(after):
        return "too_large"
    try:
        return _best_step(Change.between(before, after, language), sandbox, config or InductionConfig())
    except DataError:
        return "unreadable"


def is_too_large(text: str) -> bool:
    """Return whether `text` is longer, or has longer lines, than is parsed here."""
    lines = [len(line) for line in text.split("\n")]
    is_long = len(text) > MAX_SOURCE_CHARACTERS or max(lines) > MAX_LINE_CHARACTERS
    return is_long or sum(length * length for length in lines) > _MAX_SQUARES


def level_of(text: str, after: str, language: Language) -> Level:
    """Return how equal `text` is to `after`; `none` where they cannot be compared."""
    if text == after:
        return Level.EXACT
    try:
        return compare_texts(text, after, language)
    except DataError:
        return Level.NONE


def literal_cost(trials: Sequence[Trial]) -> float | None:
    """Return the cost of the cheapest candidate that leaves nothing free; None where there is none."""
    return min((trial.candidate.cost for trial in trials if not trial.candidate.free), default=None)


def _best_step(change: Change, sandbox: Sandbox, config: InductionConfig) -> InductionStep | Unsolved:
    sites = change.code_sites or change.sites
    if len(sites) > config.max_sites:
        return "too_different"
    failed: list[Trial] = []
    for site in sites[: config.max_sites_tried]:
        trials = _try(change, list(generate_candidates(change, site, config.forms)), sandbox)
        failed += [trial for trial in trials if trial.judgments[0].wrong]
        holding = [trial for trial in trials if trial.judgments[0].holds]
        if not holding:
            repairable = sorted((t for t in trials if t.judgments[0].right), key=lambda trial: trial.candidate.cost)
            repairs = (fix for trial in repairable for fix in repair(change, trial.candidate, trial.judgments[0]))
            trials = _try(change, list(islice(repairs, config.max_repairs)), sandbox)
            holding = [trial for trial in trials if trial.judgments[0].holds]
        if holding:
            return _make_step(change, holding, failed, config)
    return "no_candidate"


def _try(change: Change, candidates: Sequence[Candidate], sandbox: Sandbox) -> list[Trial]:
    if not candidates:
        return []
    actions = [candidate.action for candidate in candidates]
    results = map(ensure_decided, sandbox.apply_many(change.before.text, change.language, actions))
    pairs = zip(candidates, results, strict=True)
    return [Trial(candidate, (result,), (judge(change, result),)) for candidate, result in pairs]


def _make_step(
    change: Change, holding: Sequence[Trial], failed: Sequence[Trial], config: InductionConfig
) -> InductionStep:
    ranked = _rank_with_background(sorted(holding, key=Trial.rank), change.language, config)
    chosen, literal, before = ranked[0][0], literal_cost(holding), change.before.text
    [result], [judgment] = chosen.results, chosen.judgments
    alternatives = [trial.score(hits, literal) for trial, hits in ranked[1 : 1 + _MAX_ALTERNATIVES]]
    cheapest = sorted(failed, key=lambda trial: (trial.candidate.cost, trial.candidate.action.model_dump_json()))
    # another way to the same program is no failure
    wrong = (trial for trial in cheapest if not _is_target(change, trial.results[0]))
    return InductionStep(
        chosen=chosen.score(ranked[0][1], literal),
        before=before,
        written=before if result.after is None else result.after,
        after=normalize_blank_lines(before, result),
        places=result.matches,
        sites_left=len(change.code_sites) - judgment.real,
        alternatives=tuple(sorted(alternatives, key=lambda other: other.variables)),
        rejected=tuple(_reject(before, trial) for trial in islice(wrong, _MAX_REJECTED)),
    )


def _rank_with_background(
    ranked: Sequence[Trial], language: Language, config: InductionConfig
) -> list[tuple[Trial, int]]:
    """Return the best of `ranked` with the places they would change in the background, best first."""
    if not config.uses_background:
        return [(trial, 0) for trial in ranked]
    weighed: list[tuple[Trial, int]] = []
    for trial in ranked:
        # a background never makes a rule cheaper: what is dearer without it than another is with it is not looked at
        if len(weighed) > _MAX_ALTERNATIVES and trial.rank() >= min(best.rank(hits) for best, hits in weighed):
            break
        weighed.append((trial, trial.count_hits(language)))
    return sorted(weighed, key=lambda pair: pair[0].rank(pair[1]))


def _is_target(change: Change, result: SandboxResult) -> bool:
    text, target = normalize_blank_lines(change.before.text, result), change.after.text
    has_same_tokens = _strip_whitespace(text) == _strip_whitespace(target)
    return has_same_tokens and level_of(text, target, change.language).is_verified


def _strip_whitespace(text: str) -> str:
    return _LAYOUT.sub("", text)


def _reject(before: str, trial: Trial) -> RejectedAction:
    right, wrong = trial.judgments[0].right, trial.judgments[0].wrong
    return RejectedAction(trial.candidate.action, len(right), len(wrong), before.count("\n", 0, wrong[0].start) + 1)
