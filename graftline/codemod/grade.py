"""What one action achieved, as separate measures; `rollouts.reward` blends them into one number.

A measure that cannot be told is None, never 0. How near a text came:

* `level`: how equal it is to the target (`codemod.equality`). Codemod AI
  (https://codemod.com/blog/codemod-ai-multiple-before-and-after-examples) as well counts what comes out, and nothing less
  than all of it; it knows no degrees.
* `progress`: 1 - cost(diff(text, target)) / cost(diff(before, target)), clipped to [0, 1], the cost of a difference being
  the tokens it removes and adds: the outcome measure that SWE-RL (https://arxiv.org/abs/2502.18449) takes on patches,
  here on trees.

What a rule does elsewhere, for one that memorises its example comes as near as one that says what it is about:

* `false_positives` (`over_in` in files), `negatives_changed` (`neg_fail`): places it changes wrongly, and texts that it
  changes though they must stay; the Example Hit and Example Miss that totem
  (https://github.com/mmnto-ai/totem/issues/1699) demands of a rule.
* `background_matches` (`over_out`): how often it changes foreign code. MELT (https://arxiv.org/abs/2308.14687) counts the
  matches of rules in client code; Cummins et al., "Code the Transforms" (https://arxiv.org/abs/2410.08806), take precision
  on unseen inputs.
* `idempotent`: whether twice is the same as once, as of every tool that is run over the same code again.
* `description_length` (`mdl`; Rissanen, 1978), relative to that of saying the same literally; `support`: how many places
  it explains. Whether it is general is `codemod.cost`'s.

Similarity of the action's own text to a gold action says nothing of right and wrong: see `codemod.canonical`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, parse
from graftline.codemod import background
from graftline.codemod.canonical import list_required_words, words_of
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length
from graftline.codemod.diff import common_length, diff_trees
from graftline.codemod.equality import Level, compare_texts, normalize_blank_lines
from graftline.codemod.judge import judge
from graftline.core.errors import DataError
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, Verdict, ensure_decided

_TOKEN = re.compile(r"\w+|[^\s\w]")
_PER_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Grade:
    """The measures of a text on its way from `before` to its target."""

    level: Level
    progress: float

    @property
    def is_verified(self) -> bool:
        """Whether the text counts as the target."""
        return self.level.is_verified


@dataclass(frozen=True, slots=True)
class Measures:
    """What an action did, and would do, beside coming nearer; all None where it was not applied."""

    false_positives: int | None = None
    """Matches that change something of the text wrongly; 0 where the text after is the target."""
    background_matches: float | None = None
    """Places it changes in the background corpus of the language, per 100,000 characters."""
    idempotent: bool | None = None
    """Whether it changes nothing in the target, nor once more in its own result."""
    negatives_changed: int | None = None
    """Texts that it changes of those that must stay as they are; None where the task has none."""
    description_length: float | None = None
    """Over that of the literal rules for the same places; below 1 is shorter."""
    support: int | None = None
    """Places of the text that it puts right, blanks aside."""


def grade(before: str, text: str, target: str, language: Language, passes_tests: bool = False) -> Grade:
    """Return how far `text` came from `before` towards `target`; `passes_tests` says that the task's own tests pass.

    DataError if one of the three cannot be parsed at all.
    """
    level = compare_texts(text, target, language)
    if level.is_verified:
        return Grade(level, 1.0)
    if passes_tests:
        return Grade(Level.TESTS, 1.0)
    whole = difference_cost(before, target, language)
    progress = 1 - difference_cost(text, target, language) / whole if whole else 0.0
    progress = round(min(1.0, max(0.0, progress)), 6)
    return Grade(Level.PARTIAL if progress > 0 else Level.NONE, progress)


def difference_cost(before: str, after: str, language: Language) -> int:
    """Return the tokens that have to be removed and added to make `after` from `before`."""
    sites = diff_trees(parse(before, language), parse(after, language))
    return sum(len(_TOKEN.findall(before[site.start : site.end])) + len(_TOKEN.findall(site.text)) for site in sites)


def measure(
    action: PatternAction | RuleAction,
    text: str,
    result: SandboxResult,
    target: str,
    language: Language,
    sandbox: Sandbox,
    negatives: Sequence[str] = (),
    own: str = "",
) -> Measures:
    """Return the measures of `action`, whose application to `text` gave `result`.

    `own` is the text that the task starts from, which is not foreign to it.
    """
    if result.verdict is not Verdict.OK:
        return Measures()
    after = normalize_blank_lines(text, result)
    false_positives, support = _count_matches(text, result, after, target, language)
    repeats = [_changes(action, repeat, language, sandbox) for repeat in dict.fromkeys((target, after))]
    failures = [_changes(action, negative, language, sandbox) for negative in negatives]
    return Measures(
        false_positives=false_positives,
        background_matches=count_background_matches(action, language, sandbox, own),
        idempotent=None if None in repeats else not any(repeats),
        negatives_changed=None if None in failures or not failures else sum(map(bool, failures)),
        description_length=_relative_length(action, text, result.matches),
        support=support,
    )


def count_background_matches(
    action: PatternAction | RuleAction, language: Language, sandbox: Sandbox, own: str = ""
) -> float | None:
    """Return the places that `action` changes in the background corpus, per 100,000 characters of it.

    Copies of `own` in the corpus count for nothing. None where the corpus has nothing in `language`, or the action
    cannot be applied to one of its texts.
    """
    words = list_required_words(action, language)
    texts = [text for text in background.texts(language) if words <= words_of(text)]
    requests = [Request(text, language, (action,)) for text in texts]
    results = [ensure_decided(result) for [result] in sandbox.apply_each(requests)]
    own = own.strip()
    foreign = background.size(language) - sum(text.count(own) * len(own) for text in background.texts(language))
    if foreign <= 0 or any(result.verdict not in (Verdict.OK, Verdict.NO_MATCH) for result in results):
        return None
    changed = sum(
        not _is_in_copy(own, text, match)
        for text, result in zip(texts, results, strict=True)
        for match in _changing(text, result.matches)
    )
    return round(changed * _PER_CHARACTERS / foreign, 3)


def parse_ok(verdict: Verdict) -> bool | None:
    """Return whether ast-grep accepts an action; None where it never said."""
    return {Verdict.OK: True, Verdict.NO_MATCH: True, Verdict.ACTION_ERROR: False}.get(verdict)


def _count_matches(
    text: str, result: SandboxResult, after: str, target: str, language: Language
) -> tuple[int | None, int | None]:
    """Return the number of wrong matches, and that of the places put right."""
    try:
        judgment = judge(Change.between(text, target, language), result)
        is_verified = compare_texts(after, target, language).is_verified
    except DataError:
        return None, None
    # differences of trees may be told in other ways than by these sites
    right = sum(is_verified or _is_on_the_way(text, match, target) for match in judgment.wrong)
    return len(judgment.wrong) - right, judgment.real + right


def _is_on_the_way(text: str, match: Match, target: str) -> bool:
    """Return whether `match` alone removes and adds only tokens that have to go and come.

    In tokens, what lies between two texts is as much nearer to the one as it is farther from the other.
    """
    changed = text[: match.start] + match.replacement + text[match.end :]
    before, between, after = (_TOKEN.findall(side) for side in (text, changed, target))
    return _distance(before, between) + _distance(between, after) == _distance(before, after)


def _distance(left: list[str], right: list[str]) -> int:
    """Return the tokens that go and come, at least: those outside a longest common subsequence.

    Hyyrö's bit-parallel algorithm, "Bit-parallel LCS-length computation revisited" (2004).
    """
    start = common_length(left, right)
    left, right = left[start:], right[start:]
    places: dict[str, int] = {}
    for index, token in enumerate(left):
        places[token] = places.get(token, 0) | 1 << index
    full = unmatched = (1 << len(left)) - 1
    for token in right:
        met = unmatched & places.get(token, 0)
        unmatched = (unmatched + met | unmatched - met) & full
    return len(right) - len(left) + 2 * unmatched.bit_count()


def _changes(action: PatternAction | RuleAction, text: str, language: Language, sandbox: Sandbox) -> bool | None:
    """Return whether `action` changes `text`; None where it cannot be applied to it."""
    result = ensure_decided(sandbox.apply_many(text, language, [action])[0])
    if result.verdict is Verdict.OK:
        return normalize_blank_lines(text, result) != text
    return False if result.verdict is Verdict.NO_MATCH else None


def _is_in_copy(own: str, text: str, match: Match) -> bool:
    # a copy of `own` around the match starts no later than it, and ends no earlier
    first = max(0, match.end - len(own))
    return bool(own) and text.find(own, first, match.start + len(own)) >= 0


def _changing(text: str, matches: Sequence[Match]) -> list[Match]:
    return [match for match in matches if text[match.start : match.end] != match.replacement]


def _relative_length(action: PatternAction | RuleAction, text: str, matches: Sequence[Match]) -> float | None:
    pairs = {(text[match.start : match.end], match.replacement) for match in _changing(text, matches)}
    # without validation: the text of a place may be longer than an action may be
    literal = sum(description_length(PatternAction.model_construct(pattern=old, rewrite=new)) for old, new in pairs)
    return round(description_length(action) / literal, 3) if literal else None
