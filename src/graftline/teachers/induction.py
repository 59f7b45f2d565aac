"""The `induction` teacher: verified steps without a language model, by rule induction from the wanted text.

It is privileged: it sees the wanted text. What it thinks aloud is therefore written from the text as it is and from
what the sandbox answered, never from the wanted text, so that a model trained on it learns no guessing.
"""

import json

from graftline.actions.action import PatternAction, RuleAction
from graftline.errors import DataError
from graftline.rules.anti_unify import VARIABLE
from graftline.rules.induce import Rejected, Step, next_step
from graftline.sandbox.base import Sandbox
from graftline.state.state import MAX_CHARACTERS, State, StateUpdate
from graftline.tasks.task import Task
from graftline.teachers.base import Attempt, Proposal


class InductionTeacher:
    """Deterministic: the same task, the same steps."""

    name = "induction"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def propose(self, task: Task, text: str, state: State) -> Proposal | None:
        try:
            step = next_step(text, task.wanted, task.language, self._sandbox)
        except DataError:
            return None
        if step is None:
            return None
        left = [f"{step.sites_left} place(s) still to change"] if step.sites_left else []
        update = StateUpdate(
            goals=[_shortened(task.instruction)] if not state.goals else None,
            # without a number: the state keeps the last entries only, so that they cannot be counted
            history=[f"rewrote {step.matches} match(es) of {_quoted(step.action)}"],
            open_issues=left,
            next_focus="the places that are left" if left else "done",
        )
        attempts = tuple(Attempt(action=rejected.action, feedback=_feedback(rejected)) for rejected in step.rejected)
        return Proposal(_thoughts(step), step.action, update, attempts)


def _thoughts(step: Step) -> str:
    sentences = [f"{_quoted(rejected.action)} is too broad: {_feedback(rejected)}." for rejected in step.rejected]
    free = sorted(set(VARIABLE.findall(_matcher(step.action))))
    how = f"keeping {', '.join(free)} free" if free else "literally"
    sentences.append(f"I match {_quoted(step.action)}, {how}; that covers {step.matches} place(s).")
    return " ".join(sentences)


def _feedback(rejected: Rejected) -> str:
    return f"it makes {rejected.unwanted} unwanted edit(s), first at line {rejected.line}"


def _matcher(action: PatternAction | RuleAction) -> str:
    return action.pattern if isinstance(action, PatternAction) else json.dumps(action.rule, ensure_ascii=False)


def _quoted(action: PatternAction | RuleAction) -> str:
    return f"`{_shortened(' '.join(_matcher(action).split()), 120)}`"


def _shortened(text: str, length: int = MAX_CHARACTERS) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
