"""What the induction teacher writes into the state after an action.

The action has been said by then, so that what it writes may be quoted; what later steps will write may not. Notes are
kept far below the caps of `state.state`, so that a state of many steps is a few hundred tokens of a prompt.
"""

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Tree
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.teachers.places import lines_with
from graftline.rollouts.teachers.thoughts import Sight
from graftline.rollouts.teachers.wording import described, lines_named, quoted, shortened

_MAX_GOAL = 240
_MAX_NOTE = 140
_MAX_MATCHER, _MAX_FIX = 60, 40
_MAX_DECISIONS, _MAX_CONSTRAINTS = 2, 4
_LEAST_ALIKE = 2


def update_after(sight: Sight, state: State, after: Tree | None, kept: tuple[str, ...], is_done: bool) -> StateUpdate:
    """Return the update of the step that `sight` shows.

    Args:
        sight: The step.
        state: The state before it.
        after: The text after it; None where it cannot be read.
        kept: Lines that the critic said must stay as they are.
        is_done: Whether nothing is left to do.
    """
    constraints = [*state.constraints, *(_note(f"keep {quoted(line)} as it is") for line in kept)]
    is_alike = len(sight.matches) >= _LEAST_ALIKE and bool(sight.free)
    return StateUpdate(
        goals=None if state.goals else [shortened(sight.instruction, _MAX_GOAL) or "change the text as asked"],
        constraints=list(dict.fromkeys(constraints))[-_MAX_CONSTRAINTS:] if kept else None,
        decisions=[_note(decision) for decision in _decisions(sight)[:_MAX_DECISIONS]] or None,
        hypotheses=[_note(f"what looks like {described(sight.action)} changes alike everywhere")] if is_alike else None,
        history=[_note(done_in_words(sight))],
        open_issues=[] if is_done else [_note(_left(sight, after))],
        next_focus="done" if is_done else _focus(sight),
    )


def done_in_words(sight: Sight) -> str:
    """Return what the action of a step did, and where."""
    rule = rule_of(sight.action)
    fix = rule["fix"] if isinstance(rule["fix"], str) else str(rule["fix"].get("template", ""))
    what = shortened(described(sight.action), _MAX_MATCHER)
    where = lines_named(sight.lines)
    if rule.get("transform"):
        return f"rewrote part of {what} ({where})"
    return f"rewrote {what} to {quoted(fix, _MAX_FIX)} ({where})" if fix.strip() else f"removed {what} ({where})"


def _decisions(sight: Sight) -> list[str]:
    refused = [f"not {described(failure.action)}: wrong on {failure.code}" for failure in sight.failures[:1]]
    if not sight.free:
        return refused
    free = ", ".join(sight.free[:3])
    return [*refused, f"leave {free} open in {described(sight.action)}"]


def _left(sight: Sight, after: Tree | None) -> str:
    word = sight.word
    lines = lines_with(after.text, word) if after is not None and word else []
    if lines:
        return f"not finished; `{word}` stands on {lines_named(lines)}: see whether that is meant too"
    phrases = (
        "not finished: look for what else the task asks for",
        "part of the task is still open",
        "the text does not do yet all that is asked",
    )
    return sight.voice.pick("left", phrases)


def _focus(sight: Sight) -> str:
    phrases = ("what else the task asks for", "the rest of the task", "the next place that the task is about")
    return sight.voice.pick("focus", phrases)


def _note(text: str) -> str:
    return shortened(text, _MAX_NOTE)
