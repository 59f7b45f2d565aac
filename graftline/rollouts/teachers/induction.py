"""Teachers that see the target: `induction`, verified steps by rule induction, and `memory`, the gold actions.

What the induction teacher thinks aloud is made of a `StepView` (`rollouts.teachers.thoughts`), which has the instruction, the text as
it is and what sandbox and critic answered, so that a model trained on it learns no guessing. What remains privileged is the
choice of the place and of the action, and whether there is more to do.
"""

import re
from collections.abc import Sequence

from graftline.astgrep.binding import parse
from graftline.codemod.equality import compare_texts
from graftline.codemod.induce import InductionStep, induce_step
from graftline.core.errors import DataError
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import FailedAttempt, NoProposal, Proposal, Turn
from graftline.rollouts.teachers.critic import over_application, stays
from graftline.rollouts.teachers.thoughts import Failure, StepView, update_after, write_attempt_thoughts, write_thought
from graftline.rollouts.teachers.wording import Voice, line_text, quote
from graftline.sandbox.base import Sandbox

_STEP = re.compile(r"step (\d+): ")


class InductionTeacher:
    """Deterministic: the same task, the same steps."""

    name = "induction"
    uses_feedback = False

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | NoProposal:
        step = induce_step(text, task.target, task.language, self._sandbox)
        if not isinstance(step, InductionStep):
            return NoProposal(_explain(task, text, step))
        view = _view(task, step, state)
        attempts = tuple(
            FailedAttempt(
                think=think,
                action=rejected.action,
                feedback=over_application(text, task.target, rejected.line, rejected.right, rejected.wrong),
            )
            for think, rejected in zip(write_attempt_thoughts(view), step.rejected, strict=True)
        )
        lines = dict.fromkeys(rejected.line for rejected in step.rejected if stays(text, task.target, rejected.line))
        unchanged = tuple(line_text(text, line) for line in lines)
        try:
            after = parse(step.after, task.language)
        except DataError:
            after = None
        return Proposal(
            think=write_thought(view),
            action=step.action,
            state_update=update_after(view, state, after, unchanged, step.sites_left == 0),
            attempts=attempts,
            alternatives=tuple(scored.action for scored in step.alternatives),
        )


def _view(task: Task, step: InductionStep, state: State) -> StepView:
    return StepView(
        instruction=task.instruction,
        tree=parse(step.before, task.language),
        done=state.history[-1] if state.history else "",
        failures=tuple(
            Failure(rejected.action, rejected.line, quote(line_text(step.before, rejected.line)))
            for rejected in step.rejected
        ),
        action=step.action,
        matches=step.places,
        # the text tells the steps of a task apart
        voice=Voice(f"{task.id}\0{step.before}"),
    )


def _explain(task: Task, text: str, cause: str) -> str:
    try:
        if compare_texts(text, task.target, task.language).is_verified:
            return "done"
    except DataError:
        return cause
    return "partial" if cause == "no_candidate" and text != task.before else cause


class MemoryTeacher:
    """Answers from the task itself, each gold action once; the state says how many there were."""

    name = "memory"
    uses_feedback = False

    def propose(
        self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1
    ) -> Proposal | NoProposal:
        actions = task.gold_actions
        if not actions:
            return NoProposal("no_gold")
        last = _STEP.match(state.history[-1]) if state.history else None
        step = int(last[1]) + 1 if last else 1
        if step > len(actions):
            return NoProposal("done" if text == task.target else "partial")
        update = StateUpdate(
            history=[f"step {step}: applied the gold action"],
            open_issues=[],
            next_focus="done" if step == len(actions) else "the next gold action",
        )
        return Proposal("I apply the action that is known to be right.", actions[step - 1], update)
