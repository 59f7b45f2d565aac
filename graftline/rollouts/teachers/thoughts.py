"""What the induction teacher writes: its thought before an action, and its notes in the state after one.

Written from a `StepView` alone. It has no target in it, so that nothing can be said that only the target could tell; the
numbers are those of the teacher's own matches, never of the places that differ. After the action it has been said, so
that notes may quote it; what later steps will write they may not. Notes are far below the caps of `state.state`, so that a
state of many steps is a few hundred tokens of a prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import PatternAction, RuleAction, rule_of, template_of
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
_MAX_GOAL, _MAX_NOTE = 240, 140
_MAX_MATCHER, _MAX_FIX = 60, 40
_MAX_DECISIONS, _MAX_CONSTRAINTS = 2, 4
_MIN_ALIKE = 2

_NO_GOAL = "Nothing is said about the task.", "The task has no words."
_GOAL = "Asked for: {0}", "The task: {0}", "I have to do this: {0}", "What is wanted: {0}"
_STILL_GOAL = (
    "Still at: {0}",
    "So far: {1}. The task is not finished: {0}",
    "More of the task: {0}",
    "One step is made; the task was: {0}",
)
_PLACE = (
    "Line {0} reads {1}.",
    "The place I look at is line {0}: {1}.",
    "On line {0} there is {1}.",
    "I start from {1}, line {0}.",
)
_TRY = "First try: {0}.", "I try {0}.", "Perhaps {0} is enough.", "{0} might do."
_TRY_AGAIN = "Next: {0}.", "I try {0} instead.", "Perhaps {0}.", "What about {0}?"
_FAILED = (
    "With {0} I went too far: it rewrote {1}.",
    "{0} was wrong on {1}.",
    "The trouble with {0} is {1}, which it rewrote too.",
    "I cannot take {0}: it hits {1}.",
)
_LITERAL = (
    "I name it as it stands: {0}.",
    "I match {0}, nothing left open.",
    "The rule is for {0}.",
    "{0}, to the letter, is what I match.",
)
_NARROWED = "So I say exactly what I mean: {0}.", "I narrow it to {0}.", "Only {0}, then.", "What I mean is {0}."
_GENERAL = (
    "I match {0}: {1} may be anything, {2} stays fixed.",
    "{0} says what matters, {2}, and leaves {1} open.",
    "What varies is {1}, what tells the place is {2}: I match {0}.",
    "I keep {2} and free {1}: {0}.",
)
_ONE_MATCH = "It matches there alone.", "One match.", "Tried out, it matches only there.", ""
_ON_ONE_LINE = "It matches {0}, all on {1}.", "{2} match, all on {1}."
_ON_LINES = "It matches {0}: {1}.", "Tried out, it reaches {1}.", "Its matches are on {1}."
_LOOK_ALIKES = (
    "`{0}` also stands on {1}; this rule does not touch it.",
    "Left alone: `{0}` on {1}.",
    "The other uses of `{0}`, on {1}, are not touched by it.",
)
_OPEN = (
    "not finished: look for what else the task asks for",
    "part of the task is still open",
    "the text does not do yet all that is asked",
)
_FOCUS = "what else the task asks for", "the rest of the task", "the next place that the task is about"


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
        texts = texts_of(self.action)
        names = dict.fromkeys(name for text in texts for name in VARIABLE.findall(text))
        # a variable that is the whole pattern is the place itself
        return [name for name in names if name not in texts]

    @property
    def lines(self) -> list[int]:
        """The lines on which the matches start, each once."""
        starts = (first_code_line(self.tree.text, match.start, match.end) for match in self.matches)
        return list(dict.fromkeys(starts))


def write_attempt_thoughts(view: StepView) -> list[str]:
    """Return what is said before each attempt that failed, in order."""
    thoughts = []
    for number, failure in enumerate(view.failures):
        pattern = describe_action(failure.action)
        if number == 0:
            thoughts.append(" ".join([*_opening(view), sentence(view.voice.pick("try", _TRY, pattern))]))
        else:
            last = _tell_failures(view, [view.failures[number - 1]])
            thoughts.append(f"{last} {view.voice.pick('again', _TRY_AGAIN, pattern)}")
    return thoughts


def write_thought(view: StepView) -> str:
    """Return what is said before the action."""
    opening = [_tell_failures(view, view.failures), _tell_place(view)] if view.failures else _opening(view)
    parts = [*opening, _tell_choice(view), _tell_reach(view), _tell_look_alikes(view)]
    return " ".join(filter(None, parts))


def _opening(view: StepView) -> list[str]:
    parts = [_tell_goal(view), _tell_place(view)]
    return parts if view.voice.pick("order", ("goal first", "place first")) == "goal first" else parts[::-1]


def _tell_goal(view: StepView) -> str:
    request = shorten(view.instruction, _MAX_INSTRUCTION)
    if not request:
        return view.voice.pick("goal", _NO_GOAL)
    request += "" if request.endswith((".", "!", "?", "…")) else "."
    return view.voice.pick("goal", _STILL_GOAL if view.done else _GOAL, request, view.done)


def _tell_place(view: StepView) -> str:
    line, code, names = place_of(view.tree, view.matches[0].start, view.matches[0].end)
    return view.voice.pick("place", _PLACE, f"{line} in `{names}`" if names else line, code)


def _tell_failures(view: StepView, failures: Sequence[Failure]) -> str:
    sentences = []
    for number, failure in enumerate(failures):
        pattern = describe_action(failure.action)
        if number and failure.line == failures[number - 1].line:
            sentences.append(sentence(f"{pattern} hits the same line."))
        else:
            place = f"line {failure.line}, {failure.code}"
            sentences.append(sentence(view.voice.pick(f"failed {number}", _FAILED, pattern, place)))
    return " ".join(sentences)


def _tell_choice(view: StepView) -> str:
    pattern = describe_action(view.action)
    if not view.free:
        return sentence(view.voice.pick("literal", _NARROWED if view.failures else _LITERAL, pattern))
    free = join_words([_show_capture(view, name) for name in view.free], _MAX_FREE)
    fixed = f"`{view.word}`" if view.word else "the form"
    return sentence(view.voice.pick("general", _GENERAL, pattern, free, fixed))


def _show_capture(view: StepView, variable: str) -> str:
    """Return a variable with what it stands for at the first match."""
    action, capture = view.action, ""
    if isinstance(action, PatternAction) and not (action.selector or action.strictness):
        capture = find_capture(view.tree, view.matches[0].start, action.pattern, variable)
    return f"{variable} (here {quote(capture, _MAX_CAPTURED)})" if capture.strip() else variable


def _tell_reach(view: StepView) -> str:
    places, lines = count_noun(len(view.matches), "place"), name_lines(view.lines)
    phrases = _ONE_MATCH if len(view.matches) == 1 else _ON_ONE_LINE if len(view.lines) == 1 else _ON_LINES
    return view.voice.pick("reach", phrases, places, lines, places.capitalize())


def _tell_look_alikes(view: StepView) -> str:
    word, text = view.word, view.tree.text
    if not word:
        return ""
    touched = {
        line
        for match in view.matches
        for line in range(text.count("\n", 0, match.start) + 1, text.count("\n", 0, match.end) + 2)
    }
    elsewhere = [line for line in lines_with(text, word) if line not in touched]
    if not elsewhere:
        return view.voice.pick("alone", ("`{0}` stands nowhere else.", ""), word)
    return view.voice.pick("others", _LOOK_ALIKES, word, name_lines(elsewhere))


def update_after(
    view: StepView, state: State, after: Tree | None, unchanged: tuple[str, ...], is_done: bool
) -> StateUpdate:
    """Return the update of the step that `view` shows, taken in `state`.

    `after` is the text after it, None where it cannot be read; `unchanged` are lines that the critic said must stay.
    """
    constraints = [*state.constraints, *(_note(f"keep {quote(line)} as it is") for line in unchanged)]
    pattern = describe_action(view.action)
    decisions = [f"not {describe_action(failure.action)}: wrong on {failure.code}" for failure in view.failures[:1]]
    if view.free:
        decisions.append(f"leave {', '.join(view.free[:3])} open in {pattern}")
    is_alike = len(view.matches) >= _MIN_ALIKE and bool(view.free)
    return StateUpdate(
        goals=None if state.goals else [shorten(view.instruction, _MAX_GOAL) or "change the text as asked"],
        constraints=list(dict.fromkeys(constraints))[-_MAX_CONSTRAINTS:] if unchanged else None,
        decisions=[_note(decision) for decision in decisions[:_MAX_DECISIONS]] or None,
        hypotheses=[_note(f"what looks like {pattern} changes alike everywhere")] if is_alike else None,
        history=[_note(_tell_done(view))],
        open_issues=[] if is_done else [_note(_tell_open(view, after))],
        next_focus="done" if is_done else view.voice.pick("focus", _FOCUS),
    )


def _tell_done(view: StepView) -> str:
    rule = rule_of(view.action)
    fix = template_of(rule["fix"])
    pattern, lines = shorten(describe_action(view.action), _MAX_MATCHER), name_lines(view.lines)
    if rule.get("transform"):
        return f"rewrote part of {pattern} ({lines})"
    return f"rewrote {pattern} to {quote(fix, _MAX_FIX)} ({lines})" if fix.strip() else f"removed {pattern} ({lines})"


def _tell_open(view: StepView, after: Tree | None) -> str:
    lines = lines_with(after.text, view.word) if after is not None and view.word else []
    if lines:
        return f"not finished; `{view.word}` stands on {name_lines(lines)}: see whether that is meant too"
    return view.voice.pick("left", _OPEN)


def _note(text: str) -> str:
    return shorten(text, _MAX_NOTE)
