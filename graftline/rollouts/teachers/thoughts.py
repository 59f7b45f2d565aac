"""What the induction teacher says before an action: what is asked, where, what failed, what is matched and why.

Written from a `Sight` alone. It has no wanted text in it, so that nothing can be said that only the wanted text could
tell; the numbers are those of the teacher's own matches, never of the places that differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Tree
from graftline.codemod.anti_unify import VARIABLE
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.wording import (
    Voice,
    count_noun,
    describe_action,
    find_capture,
    first_code_line,
    join_words,
    lines_with,
    name_lines,
    place_of,
    quote,
    sentence,
    shorten,
    telling_word,
    texts_of,
)
from graftline.sandbox.base import Match

_MAX_INSTRUCTION = 120
_MAX_CAPTURED = 24
_MAX_FREE = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """An action that was tried on the text, and the place at which it does what it must not."""

    action: PatternAction | RuleAction
    line: int
    code: str
    """The line, quoted."""


@dataclass(frozen=True, slots=True)
class StepView:
    """What a thought may be made of."""

    instruction: str
    tree: Tree
    """The text before the step."""
    done: str
    """What the step before this one did; empty at the first."""
    failures: tuple[Failure, ...]
    action: PatternAction | RuleAction
    matches: tuple[Match, ...]
    """Those of `action`."""
    voice: Voice

    @property
    def word(self) -> str:
        """The name that tells the places of `action` from others; empty without one."""
        return telling_word(self.tree.text, texts_of(self.action))

    @property
    def free(self) -> list[str]:
        """The metavariables that a match may fill differently, in the order of the pattern."""
        names = [name for text in texts_of(self.action) for name in VARIABLE.findall(text)]
        # a variable that is the whole pattern is the place itself
        return [name for name in dict.fromkeys(names) if name not in texts_of(self.action)]

    @property
    def lines(self) -> list[int]:
        """The lines on which the matches start, each once."""
        starts = (first_code_line(self.tree.text, match.start, match.end) for match in self.matches)
        return list(dict.fromkeys(starts))


def write_attempt_thoughts(sight: StepView) -> list[str]:
    """Return what is said before each attempt that failed, in order."""
    thoughts = []
    for number, failure in enumerate(sight.failures):
        pattern = describe_action(failure.action)
        if number == 0:
            phrases = (
                f"First try: {pattern}.",
                f"I try {pattern}.",
                f"Perhaps {pattern} is enough.",
                f"{pattern} might do.",
            )
            thoughts.append(" ".join([*_opening(sight), sentence(sight.voice.pick("try", phrases))]))
        else:
            phrases = (
                f"Next: {pattern}.",
                f"I try {pattern} instead.",
                f"Perhaps {pattern}.",
                f"What about {pattern}?",
            )
            thoughts.append(
                f"{_tell_failures(sight, [sight.failures[number - 1]])} {sight.voice.pick('again', phrases)}"
            )
    return thoughts


def write_thought(sight: StepView) -> str:
    """Return what is said before the action."""
    opening = [_tell_failures(sight, sight.failures), _place(sight)] if sight.failures else _opening(sight)
    return " ".join(part for part in [*opening, _choice(sight), _reach(sight), _look_alikes(sight)] if part)


def _opening(sight: StepView) -> list[str]:
    parts = [_goal(sight), _place(sight)]
    return parts if sight.voice.pick("order", ("goal first", "place first")) == "goal first" else parts[::-1]


def _goal(sight: StepView) -> str:
    request = shorten(sight.instruction, _MAX_INSTRUCTION)
    if not request:
        return sight.voice.pick("goal", ("Nothing is said about the task.", "The task has no words."))
    request += "" if request.endswith((".", "!", "?", "…")) else "."
    phrases: tuple[str, ...] = (
        f"Asked for: {request}",
        f"The task: {request}",
        f"I have to do this: {request}",
        f"What is wanted: {request}",
    )
    if sight.done:
        phrases = (
            f"Still at: {request}",
            f"So far: {sight.done}. The task is not finished: {request}",
            f"More of the task: {request}",
            f"One step is made; the task was: {request}",
        )
    return sight.voice.pick("goal", phrases)


def _place(sight: StepView) -> str:
    first = sight.matches[0]
    line, code, names = place_of(sight.tree, first.start, first.end)
    within = f" in `{names}`" if names else ""
    phrases = (
        f"Line {line}{within} reads {code}.",
        f"The place I look at is line {line}{within}: {code}.",
        f"On line {line}{within} there is {code}.",
        f"I start from {code}, line {line}{within}.",
    )
    return sight.voice.pick("place", phrases)


def _tell_failures(sight: StepView, failures: Sequence[Failure]) -> str:
    sentences = []
    for number, failure in enumerate(failures):
        pattern = describe_action(failure.action)
        if number and failure.line == failures[number - 1].line:
            sentences.append(sentence(f"{pattern} hits the same line."))
            continue
        lines = f"line {failure.line}, {failure.code}"
        phrases = (
            f"With {pattern} I went too far: it rewrote {lines}.",
            f"{pattern} was wrong on {lines}.",
            f"The trouble with {pattern} is {lines}, which it rewrote too.",
            f"I cannot take {pattern}: it hits {lines}.",
        )
        sentences.append(sentence(sight.voice.pick(f"failed {number}", phrases)))
    return " ".join(sentences)


def _choice(sight: StepView) -> str:
    pattern = describe_action(sight.action)
    if not sight.free:
        phrases = (
            f"I name it as it stands: {pattern}.",
            f"I match {pattern}, nothing left open.",
            f"The rule is for {pattern}.",
            f"{pattern}, to the letter, is what I match.",
        )
        if sight.failures:
            phrases = (
                f"So I say exactly what I mean: {pattern}.",
                f"I narrow it to {pattern}.",
                f"Only {pattern}, then.",
                f"What I mean is {pattern}.",
            )
        return sentence(sight.voice.pick("literal", phrases))
    free = join_words([_show_capture(sight, name) for name in sight.free], _MAX_FREE)
    fixed = f"`{sight.word}`" if sight.word else "the form"
    phrases = (
        f"I match {pattern}: {free} may be anything, {fixed} stays fixed.",
        f"{pattern} says what matters, {fixed}, and leaves {free} open.",
        f"What varies is {free}, what tells the place is {fixed}: I match {pattern}.",
        f"I keep {fixed} and free {free}: {pattern}.",
    )
    return sentence(sight.voice.pick("general", phrases))


def _show_capture(sight: StepView, variable: str) -> str:
    """Return a variable with what it stands for at the first match."""
    is_plain = isinstance(sight.action, PatternAction) and not (sight.action.selector or sight.action.strictness)
    pattern = sight.action.pattern if isinstance(sight.action, PatternAction) and is_plain else ""
    capture = find_capture(sight.tree, sight.matches[0].start, pattern, variable) if pattern else ""
    return f"{variable} (here {quote(capture, _MAX_CAPTURED)})" if capture.strip() else variable


def _reach(sight: StepView) -> str:
    places, lines = count_noun(len(sight.matches), "place"), name_lines(sight.lines)
    if len(sight.matches) == 1:
        phrases: tuple[str, ...] = ("It matches there alone.", "One match.", "Tried out, it matches only there.", "")
    elif len(sight.lines) == 1:
        phrases = (f"It matches {places}, all on {lines}.", f"{places.capitalize()} match, all on {lines}.")
    else:
        phrases = (f"It matches {places}: {lines}.", f"Tried out, it reaches {lines}.", f"Its matches are on {lines}.")
    return sight.voice.pick("reach", phrases)


def _look_alikes(sight: StepView) -> str:
    word = sight.word
    if not word:
        return ""
    text = sight.tree.text
    touched = {
        line
        for match in sight.matches
        for line in range(text.count("\n", 0, match.start) + 1, text.count("\n", 0, match.end) + 2)
    }
    elsewhere = [line for line in lines_with(text, word) if line not in touched]
    if not elsewhere:
        return sight.voice.pick("alone", (f"`{word}` stands nowhere else.", ""))
    lines = name_lines(elsewhere)
    phrases = (
        f"`{word}` also stands on {lines}; this rule does not touch it.",
        f"Left alone: `{word}` on {lines}.",
        f"The other uses of `{word}`, on {lines}, are not touched by it.",
    )
    return sight.voice.pick("others", phrases)


_MAX_GOAL = 240
_MAX_NOTE = 140
_MAX_MATCHER, _MAX_FIX = 60, 40
_MAX_DECISIONS, _MAX_CONSTRAINTS = 2, 4
_LEAST_ALIKE = 2


def update_after(
    sight: StepView, state: State, after: Tree | None, fixed: tuple[str, ...], is_done: bool
) -> StateUpdate:
    """Return the update of the step that `sight` shows.

    Args:
        sight: The step.
        state: The state before it.
        after: The text after it; None where it cannot be read.
        kept: Lines that the critic said must stay as they are.
        is_done: Whether nothing is left to do.
    """
    constraints = [*state.constraints, *(_note(f"keep {quote(line)} as it is") for line in fixed)]
    is_alike = len(sight.matches) >= _LEAST_ALIKE and bool(sight.free)
    return StateUpdate(
        goals=None if state.goals else [shorten(sight.instruction, _MAX_GOAL) or "change the text as asked"],
        constraints=list(dict.fromkeys(constraints))[-_MAX_CONSTRAINTS:] if fixed else None,
        decisions=[_note(decision) for decision in _list_decisions(sight)[:_MAX_DECISIONS]] or None,
        hypotheses=[_note(f"what looks like {describe_action(sight.action)} changes alike everywhere")]
        if is_alike
        else None,
        history=[_note(done_in_words(sight))],
        open_issues=[] if is_done else [_note(_tell_open(sight, after))],
        next_focus="done" if is_done else _choose_focus(sight),
    )


def done_in_words(sight: StepView) -> str:
    """Return what the action of a step did, and where."""
    rule = rule_of(sight.action)
    fix = rule["fix"] if isinstance(rule["fix"], str) else str(rule["fix"].get("template", ""))
    pattern = shorten(describe_action(sight.action), _MAX_MATCHER)
    lines = name_lines(sight.lines)
    if rule.get("transform"):
        return f"rewrote part of {pattern} ({lines})"
    return f"rewrote {pattern} to {quote(fix, _MAX_FIX)} ({lines})" if fix.strip() else f"removed {pattern} ({lines})"


def _list_decisions(sight: StepView) -> list[str]:
    refused = [f"not {describe_action(failure.action)}: wrong on {failure.code}" for failure in sight.failures[:1]]
    if not sight.free:
        return refused
    free = ", ".join(sight.free[:3])
    return [*refused, f"leave {free} open in {describe_action(sight.action)}"]


def _tell_open(sight: StepView, after: Tree | None) -> str:
    word = sight.word
    lines = lines_with(after.text, word) if after is not None and word else []
    if lines:
        return f"not finished; `{word}` stands on {name_lines(lines)}: see whether that is meant too"
    phrases = (
        "not finished: look for what else the task asks for",
        "part of the task is still open",
        "the text does not do yet all that is asked",
    )
    return sight.voice.pick("left", phrases)


def _choose_focus(sight: StepView) -> str:
    phrases = ("what else the task asks for", "the rest of the task", "the next place that the task is about")
    return sight.voice.pick("focus", phrases)


def _note(text: str) -> str:
    return shorten(text, _MAX_NOTE)
