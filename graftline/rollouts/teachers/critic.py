"""The critic: what is wrong with an action of any teacher, said so that the next one can be better.

It holds what the sandbox answered against the wanted text, where there is one. Its feedback quotes the text before, the
action and what the action wrote, and nothing else: what only the wanted text has is said where `is_revealing` asks for
it, and then the feedback is no longer fit for training. Whether a rule holds anywhere else is for `rules.grade`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, Tree, parse
from graftline.codemod.change import Change
from graftline.codemod.diff import Site
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.judge import Judgment, judge
from graftline.core.errors import DataError, SandboxError
from graftline.rollouts.teachers.hints import (
    broken_hint,
    empty_match_hint,
    invalid_hint,
    left_out_hint,
    more_matches_hint,
)
from graftline.rollouts.teachers.wording import (
    count_noun,
    first_code_line,
    join_words,
    line_of,
    line_text,
    name_lines,
    quote,
)
from graftline.sandbox.base import Match, Sandbox, SandboxResult, Verdict, ensure_decided

_MAX_MISSED = 3


class Finding(StrEnum):
    """What the critic says became of an action, worst first."""

    INVALID = "invalid"
    """ast-grep refuses it."""
    FAILED = "failed"
    """It ran out of time, memory or bounds, or did what no action needs."""
    NO_MATCH = "no_match"
    NO_CHANGE = "no_change"
    """All that it matches stays as it was."""
    BROKEN = "broken"
    """The text parsed before it, and does not after it."""
    TOO_BROAD = "too_broad"
    """It changes a place that must stay as it is."""
    WRONG_TEXT = "wrong_text"
    """It changes a place that has to change, but into something else."""
    INCOMPLETE = "incomplete"
    """All that it changes is right, and more has to change."""
    RIGHT = "right"
    """It makes the wanted text, blanks aside."""
    APPLIED = "applied"
    """It changes something; without a wanted text no more can be said."""


@dataclass(frozen=True, slots=True)
class Criticism:
    """What the critic says of one action."""

    finding: Finding
    feedback: str
    line: int | None = None
    """Line of the text before, from 1, that the feedback is about."""
    right: int = 0
    """Matches whose change is wanted."""
    wrong: int = 0
    """Matches whose change is not."""
    missed: tuple[int, ...] = ()
    """Lines that have to change and do not; known only where the critic is revealing."""


def criticize(
    action: PatternAction | RuleAction,
    before: str,
    language: Language,
    sandbox: Sandbox,
    target: str | None = None,
    is_revealing: bool = False,
) -> Criticism:
    """Return what is to be said of `action` on the text `before`.

    Args:
        action: What was proposed.
        before: The text it was proposed for.
        language: The language of the text.
        sandbox: Where the action is tried; more is tried there to find out why nothing matches.
        target: The text that counts as done, where it is known.
        is_revealing: Whether the feedback may say where something is missed and what should stand there.

    Raises:
        DataError: a text cannot be read.
    """
    [result] = sandbox.apply_many(before, language, [action])
    match ensure_decided(result).verdict:
        case Verdict.OK:
            return _of_change(action, before, language, result, sandbox, target, is_revealing)
        case Verdict.NO_MATCH:
            hint = empty_match_hint(action, parse(before, language), sandbox)
            return Criticism(Finding.NO_MATCH, f"Nothing in the text matches. {hint}".strip())
        case Verdict.ACTION_ERROR:
            hint = invalid_hint(action, result.error, parse(before, language))
            return Criticism(Finding.INVALID, f"ast-grep refuses it: {_reason(result.error)} {hint}".strip())
        case Verdict.NEEDS_CLI | Verdict.RUNNER_ERROR:
            raise SandboxError(f"the critic got no answer about an action ({result.verdict}): use the `warm` sandbox")
        case verdict:
            what = str(verdict).replace("_", " ")
            return Criticism(Finding.FAILED, f"It was stopped ({what}): make it match less, or write less.")


def over_application(before: str, target: str, line: int, right: int, wrong: int) -> str:
    """Return the feedback to an action that makes `wrong` changes too many, the first of them on `line`."""
    where = f"line {line}, {quote(line_text(before, line))}"
    what = f"It also rewrites {where}, which must stay as it is"
    if not stays(before, target, line):
        what = f"On {where}, it writes something else than is asked for"
    if wrong > 1:
        what += f"; {count_noun(wrong - 1, 'match')} more {'is' if wrong == 2 else 'are'} wrong as well"
    return f"{what}. {count_noun(right, 'match')} {'was' if right == 1 else 'were'} right." if right else f"{what}."


def stays(before: str, target: str, line: int) -> bool:
    """Return whether the code on `line` is in the wanted text too."""
    code = line_text(before, line)
    return any(code == other.strip() for other in target.split("\n"))


def _of_change(
    action: PatternAction | RuleAction,
    before: str,
    language: Language,
    result: SandboxResult,
    sandbox: Sandbox,
    target: str | None,
    is_revealing: bool,
) -> Criticism:
    changing = [match for match in result.matches if match.replacement != before[match.start : match.end]]
    if not changing:
        line = _line(before, result.matches[0])
        found = f"It matches {count_noun(len(result.matches), 'place')}, the first on line {line}"
        where = "" if target is None else _of_same(Change.between(before, target, language), result.matches)
        return Criticism(Finding.NO_CHANGE, f"{found}, but writes what stands there already{where}.", line)
    after = result.after or ""
    if target is not None and normalize_whitespace(after) == normalize_whitespace(target):
        return _right(len(changing))
    held = None if target is None else _held_against(Change.between(before, target, language), result, is_revealing)
    # what is right may be out of order on the way
    if (held is None or held.wrong) and _breaks(before, after, language):
        line, written = _line(before, changing[0]), quote(changing[0].replacement)
        feedback = f"After it the text is no valid {language}: on line {line} it writes {written}. {broken_hint(action, language)}"
        return Criticism(Finding.BROKEN, feedback.strip(), line)
    if held is not None and not is_revealing:
        return _hinted(held, action, parse(before, language), result.matches, sandbox)
    lines = list(dict.fromkeys(_line(before, match) for match in changing))
    places = f"It changes {count_noun(len(changing), 'place')}, on {name_lines(lines)}."
    return held or Criticism(Finding.APPLIED, places)


def _of_same(change: Change, matches: Sequence[Match]) -> str:
    """Return whether what was matched, and left as it was, is the place to look at."""
    if any(_touches(change, match) for match in matches):
        return ", where something else has to stand"
    return ", and that is right as it is: other places have to change"


def _hinted(
    held: Criticism,
    action: PatternAction | RuleAction,
    tree: Tree,
    matches: Sequence[Match],
    sandbox: Sandbox,
) -> Criticism:
    """Return `held` with what the action and the text before it let one say."""
    hint = ""
    if held.finding is Finding.INCOMPLETE:
        hint = more_matches_hint(action, matches, tree, sandbox)
    elif held.finding is Finding.WRONG_TEXT:
        hint = left_out_hint(action, tree.language)
    return replace(held, feedback=f"{held.feedback} {hint}") if hint else held


def _right(matches: int) -> Criticism:
    return Criticism(
        Finding.RIGHT, f"It makes the text that is asked for ({count_noun(matches, 'match')}).", None, matches
    )


def _held_against(change: Change, result: SandboxResult, is_revealing: bool) -> Criticism:
    text, judgment = change.before.text, judge(change, result)
    right, wrong = len(judgment.right), len(judgment.wrong)
    missed = _missed(change, judgment)
    lines = tuple(dict.fromkeys(line_of(text, site.start) for site in missed)) if is_revealing else ()
    more = f" {_revealed(change, missed)}" if is_revealing and missed else ""
    if wrong:
        first = next((match for match in judgment.wrong if not _touches(change, match)), judgment.wrong[0])
        line = _line(text, first)
        if _touches(change, first):
            where = f"line {line}, {quote(line_text(text, line))}"
            old, new = quote(text[first.start : first.end]), quote(first.replacement)
            feedback = f"On {where}, something has to change, but not {old} into {new}."
            return Criticism(Finding.WRONG_TEXT, feedback + more, line, right, wrong, lines)
        feedback = over_application(text, change.after.text, line, right, wrong)
        return Criticism(Finding.TOO_BROAD, feedback + more, line, right, wrong, lines)
    if missed:
        feedback = f"All that it changes is wanted ({count_noun(right, 'match')}), but more has to change."
        return Criticism(Finding.INCOMPLETE, feedback + more, None, right, 0, lines)
    return _right(right)


def _missed(change: Change, judgment: Judgment) -> list[Site]:
    sites = enumerate(change.sites)
    return [site for index, site in sites if not site.is_blank and index not in judgment.fixed]


def _revealed(change: Change, missed: Sequence[Site]) -> str:
    text = change.before.text
    parts = []
    for site in missed:
        old, new = text[site.start : site.end], site.text
        line = line_of(text, site.start)
        if not old.strip():
            parts.append(f"line {line} lacks {quote(new)}")
        elif not new.strip():
            parts.append(f"on line {line}, {quote(old)} has to go")
        else:
            parts.append(f"on line {line}, {quote(old)} should be {quote(new)}")
    return f"Missed: {join_words(parts, _MAX_MISSED)}."


def _touches(change: Change, match: Match) -> bool:
    """Return whether something within `match` has to change."""
    sites = (site for site in change.sites if not site.is_blank)
    return any((site.start < match.end and match.start < site.end) or _is_within(site, match) for site in sites)


def _is_within(site: Site, match: Match) -> bool:
    return site.is_insertion and match.start <= site.start <= match.end


def _breaks(before: str, after: str, language: Language) -> bool:
    try:
        return parse(before, language).is_clean and not parse(after, language).is_clean
    except DataError:
        return True


def _line(text: str, match: Match) -> int:
    return first_code_line(text, match.start, match.end)


def _reason(error: str) -> str:
    # the letter that ast-grep puts for the sign of a variable in Python
    said = " ".join(error.split()).replace("µ", "$")
    return said if said.endswith(".") else f"{said}."
