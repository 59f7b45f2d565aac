"""The `induction` teacher: verified steps without a language model, by rule induction from the wanted text.

It is privileged: it sees the wanted text. What it thinks aloud is therefore made of a `Sight` (`teachers.thoughts`),
which has the instruction, the text as it is and what sandbox and critic answered, so that a model trained on it learns
no guessing. What remains privileged is the choice of the place and of the action, and whether there is more to do.
"""

from collections.abc import Sequence

from graftline.astgrep.binding import Tree, parse
from graftline.codemod.equality import equality
from graftline.codemod.induce import next_step
from graftline.codemod.induction import Step
from graftline.core.errors import DataError
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Attempt, GaveUp, Proposal, Turn
from graftline.rollouts.teachers.critic import over_application, stays
from graftline.rollouts.teachers.places import line_text
from graftline.rollouts.teachers.thoughts import Failure, Sight, attempt_thoughts, thought
from graftline.rollouts.teachers.updates import update_after
from graftline.rollouts.teachers.wording import Voice, quoted
from graftline.sandbox.base import Sandbox


class InductionTeacher:
    """Deterministic: the same task, the same steps."""

    name = "induction"
    listens = False

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | GaveUp:
        step = next_step(text, task.wanted, task.language, self._sandbox)
        if not isinstance(step, Step):
            return GaveUp(_cause(task, text, step))
        sight = _sight(task, step, state)
        attempts = tuple(
            Attempt(
                think=said,
                action=rejected.action,
                feedback=over_application(text, task.wanted, rejected.line, rejected.wanted, rejected.unwanted),
            )
            for said, rejected in zip(attempt_thoughts(sight), step.rejected, strict=True)
        )
        lines = dict.fromkeys(rejected.line for rejected in step.rejected if stays(text, task.wanted, rejected.line))
        kept = tuple(line_text(text, line) for line in lines)
        update = update_after(sight, state, _parsed(task, step), kept, step.sites_left == 0)
        return Proposal(
            think=thought(sight),
            action=step.action,
            state_update=update,
            attempts=attempts,
            alternatives=tuple(scored.action for scored in step.alternatives),
        )


def _sight(task: Task, step: Step, state: State) -> Sight:
    failures = tuple(
        Failure(rejected.action, rejected.line, quoted(line_text(step.before, rejected.line)))
        for rejected in step.rejected
    )
    return Sight(
        instruction=task.instruction,
        tree=parse(step.before, task.language),
        done=state.history[-1] if state.history else "",
        failures=failures,
        action=step.action,
        matches=step.places,
        # the text tells the steps of a task apart
        voice=Voice(f"{task.id}\0{step.before}"),
    )


def _cause(task: Task, text: str, cause: str) -> str:
    try:
        if equality(text, task.wanted, task.language).is_verified:
            return "done"
    except DataError:
        return cause
    return "partial" if cause == "no_candidate" and text != task.before else cause


def _parsed(task: Task, step: Step) -> Tree | None:
    try:
        return parse(step.after, task.language)
    except DataError:
        return None
