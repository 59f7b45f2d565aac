"""The critic: what is wrong with an action of any teacher, said so that the next one can be better.

It compares what the sandbox answered with the target text, where there is one. Its feedback quotes the text before, the
action and what the action wrote, and nothing else: it is fit for training. Whether a rule holds anywhere else is for
`codemod.grade`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, parse
from graftline.codemod.change import Change
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.judge import judge
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
    line_text,
    name_lines,
    quote,
)
from graftline.sandbox.base import Match, Sandbox, SandboxResult, Verdict, ensure_decided


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
    """It makes the target text, blanks aside."""
    APPLIED = "applied"
    """It changes something; without a target no more can be said."""


@dataclass(frozen=True, slots=True)
class Criticism:
    """What the critic says of one action."""

    finding: Finding
    feedback: str
    line: int | None = None
    """Line of the text before, from 1, that the feedback is about."""


def criticize(
    action: PatternAction | RuleAction,
    before: str,
    language: Language,
    sandbox: Sandbox,
    target: str | None = None,
) -> Criticism:
    """Return what is to be said of `action` on the text `before`, whose target is perhaps known.

    More is tried in `sandbox` to find out why nothing matches.

    Raises:
        DataError: a text cannot be read.
        SandboxError: the sandbox failed; nothing is known about the action.
    """
    [result] = sandbox.apply_many(before, language, [action])
    match ensure_decided(result).verdict:
        case Verdict.OK:
            return _criticize_change(action, before, language, result, sandbox, target)
        case Verdict.NO_MATCH:
            hint = empty_match_hint(action, parse(before, language), sandbox)
            return Criticism(Finding.NO_MATCH, f"Nothing in the text matches. {hint}".strip())
        case Verdict.ACTION_ERROR:
            hint = invalid_hint(action, result.error, parse(before, language))
            # ast-grep puts the letter for the sign of a variable in Python
            reason = " ".join(result.error.split()).replace("µ", "$").removesuffix(".")
            return Criticism(Finding.INVALID, f"ast-grep refuses it: {reason}. {hint}".strip())
        case Verdict.NEEDS_CLI | Verdict.RUNNER_ERROR:
            raise SandboxError(f"the critic got no answer about an action ({result.verdict}): use the `warm` sandbox")
        case verdict:
            cause = str(verdict).replace("_", " ")
            return Criticism(Finding.FAILED, f"It was stopped ({cause}): make it match less, or write less.")


def over_application(before: str, target: str, line: int, right: int, wrong: int) -> str:
    """Return the feedback to an action that makes `wrong` changes too many, the first of them on `line`."""
    place = f"line {line}, {quote(line_text(before, line))}"
    fault = f"It also rewrites {place}, which must stay as it is"
    if not stays(before, target, line):
        fault = f"On {place}, it writes something else than is asked for"
    if wrong > 1:
        fault += f"; {count_noun(wrong - 1, 'match')} more {'is' if wrong == 2 else 'are'} wrong as well"
    return f"{fault}. {count_noun(right, 'match')} {'was' if right == 1 else 'were'} right." if right else f"{fault}."


def stays(before: str, target: str, line: int) -> bool:
    """Return whether the code on `line` is in the target too."""
    code = line_text(before, line)
    return any(code == other.strip() for other in target.split("\n"))


def _criticize_change(
    action: PatternAction | RuleAction,
    before: str,
    language: Language,
    result: SandboxResult,
    sandbox: Sandbox,
    target: str | None,
) -> Criticism:
    changing = [match for match in result.matches if match.replacement != before[match.start : match.end]]
    if not changing:
        change = None if target is None else Change.between(before, target, language)
        line = _line(before, result.matches[0])
        place = f"It matches {count_noun(len(result.matches), 'place')}, the first on line {line}"
        advice = ""
        if change is not None and any(_touches(change, match) for match in result.matches):
            advice = ", where something else has to stand"
        elif change is not None:
            advice = ", and that is right as it is: other places have to change"
        return Criticism(Finding.NO_CHANGE, f"{place}, but writes what stands there already{advice}.", line)
    after = result.after or ""
    if target is not None and normalize_whitespace(after) == normalize_whitespace(target):
        return _approve(len(changing))
    criticism = None if target is None else _compare(Change.between(before, target, language), result)
    # on the way to the target the text may be out of order
    is_wrong = criticism is None or criticism.finding in (Finding.TOO_BROAD, Finding.WRONG_TEXT)
    if is_wrong and _breaks(before, after, language):
        line, replacement = _line(before, changing[0]), quote(changing[0].replacement)
        hint = broken_hint(action, language)
        feedback = f"After it the text is no valid {language}: on line {line} it writes {replacement}. {hint}"
        return Criticism(Finding.BROKEN, feedback.strip(), line)
    if criticism is None:
        lines = name_lines(list(dict.fromkeys(_line(before, match) for match in changing)))
        return Criticism(Finding.APPLIED, f"It changes {count_noun(len(changing), 'place')}, on {lines}.")
    hint = ""
    if criticism.finding is Finding.INCOMPLETE:
        hint = more_matches_hint(action, result.matches, parse(before, language), sandbox)
    elif criticism.finding is Finding.WRONG_TEXT:
        hint = left_out_hint(action, language)
    return replace(criticism, feedback=f"{criticism.feedback} {hint}".strip())


def _approve(matches: int) -> Criticism:
    return Criticism(Finding.RIGHT, f"It makes the text that is asked for ({count_noun(matches, 'match')}).")


def _compare(change: Change, result: SandboxResult) -> Criticism:
    """Return what is to be said of `result` with the target in view."""
    text, judgment = change.before.text, judge(change, result)
    right, wrong = len(judgment.right), len(judgment.wrong)
    if wrong:
        first = next((match for match in judgment.wrong if not _touches(change, match)), judgment.wrong[0])
        line = _line(text, first)
        if not _touches(change, first):
            return Criticism(Finding.TOO_BROAD, over_application(text, change.after.text, line, right, wrong), line)
        old, new = quote(text[first.start : first.end]), quote(first.replacement)
        place = f"line {line}, {quote(line_text(text, line))}"
        return Criticism(Finding.WRONG_TEXT, f"On {place}, something has to change, but not {old} into {new}.", line)
    if all(site.is_blank or index in judgment.fixed for index, site in enumerate(change.sites)):
        return _approve(right)
    feedback = f"All that it changes is wanted ({count_noun(right, 'match')}), but more has to change."
    return Criticism(Finding.INCOMPLETE, feedback)


def _touches(change: Change, match: Match) -> bool:
    """Return whether something within `match` has to change."""
    return any(
        (site.start < match.end and match.start < site.end)
        or (site.is_insertion and match.start <= site.start <= match.end)
        for site in change.code_sites
    )


def _breaks(before: str, after: str, language: Language) -> bool:
    try:
        return parse(before, language).is_clean and not parse(after, language).is_clean
    except DataError:
        return True


def _line(text: str, match: Match) -> int:
    return first_code_line(text, match.start, match.end)
