"""From replies to graded attempts, in worker processes or in this one.

An answer is graded as one step of a teacher is (`trajectories.graded_step`). The same answer to the same task is graded once.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level, equality
from graftline.codemod.tidy import tidied
from graftline.core.errors import DataError, SandboxError
from graftline.core.processes import WorkerDied, Workers
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case, Question, Unseen
from graftline.evals.replies import Cost, Failed, NotAsked, Reply, Said, Tried
from graftline.rollouts.graded_step import graded_step
from graftline.rollouts.reward import BAD_FORMAT, RewardWeights
from graftline.rollouts.state.state import State
from graftline.rollouts.step import TrajectoryStep
from graftline.rollouts.teachers.answer import Fault, read
from graftline.rollouts.teachers.base import Proposal
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided

Grading = Callable[[str, Iterable[Reply]], Iterator[Attempt]]
"""Of replies of the contestant of that name, in their order."""

_TRIES = 2
_REMEMBERED = 4096
"""Answers whose worth is kept, at most: those of one contestant come task by task."""


class Grader:
    """Grades replies in `sandbox`, which belongs to the caller."""

    def __init__(self, sandbox: Sandbox, weights: RewardWeights | None = None) -> None:
        self._sandbox, self._weights = sandbox, weights or RewardWeights()
        self._known: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def __call__(self, contestant: str, replies: Iterable[Reply]) -> Iterator[Attempt]:
        return (self.attempt(contestant, reply) for reply in replies)

    def attempt(self, contestant: str, reply: Reply) -> Attempt:
        """Return what became of a reply.

        A sandbox that fails is a machine that failed: an answer is paid for, and is graded once more before another is asked
        for.
        """
        cause = ""
        for _ in range(_TRIES):
            try:
                return self._graded_reply(contestant, reply)
            except SandboxError as error:
                cause = str(error)
        cost = Cost() if isinstance(reply, Failed) else reply.cost
        return _attempt(contestant, reply.question, cost, reward=None, cause=cause, is_infra=True)

    def _graded_reply(self, contestant: str, reply: Reply) -> Attempt:
        asked = reply.question
        match reply:
            case Failed(error=error):
                return _attempt(contestant, asked, Cost(), reward=None, cause=error, is_infra=True)
            case NotAsked(cause=cause, cost=cost):
                unseen = {} if asked.case.unseen is None else {"right_on_unseen": False}
                return _attempt(contestant, asked, cost, reward=0.0, cause=cause, **unseen)
            case Said(text=text, cost=cost):
                # half a surrogate pair can be said, and not be stored
                stored = text.encode("utf-8", "replace").decode()
                return _attempt(contestant, asked, cost, text=stored, **self._worth(reply))
            case Tried(cost=cost):
                return _attempt(contestant, asked, cost, **self._of_trajectory(reply))

    def _worth(self, said: Said) -> dict[str, Any]:
        case = said.question.case
        unseen = "" if case.unseen is None else case.unseen.model_dump_json()
        key = case.task.digest, unseen, said.text, said.answer_format.model_dump_json()
        if key not in self._known:
            found = self._graded(said)
            if found["reward"] is None:
                return found
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[key] = found
        return self._known[key]

    def _graded(self, said: Said) -> dict[str, Any]:
        case = said.question.case
        answer = read(said.text, said.answer_format)
        if isinstance(answer, Fault):
            return {"reward": 0.0, "cause": BAD_FORMAT, "right_on_unseen": None if case.unseen is None else False}
        proposal = Proposal(answer.think, answer.action, answer.state_update, is_strict=answer.is_strict)
        step = graded_step(case.task, case.task.before, State(), proposal, (), self._sandbox, self._weights)
        return {
            **_facts([step]),
            "reward": step.reward.value,
            "cause": step.reward.cause,
            "level": step.level,
            "right_on_unseen": self._on_unseen(case, step.level, [answer.action]),
        }

    def _of_trajectory(self, tried: Tried) -> dict[str, Any]:
        case, made = tried.question.case, tried.trajectory
        actions = [step.model_output.action for step in made.path if step.model_output.action is not None]
        return {
            **_facts(made.steps),
            "actions": tuple(actions),
            "reward": made.reward.value,
            "cause": made.reward.cause if made.is_verified or not made.failure else made.failure,
            "level": made.level,
            "right_on_unseen": self._on_unseen(case, made.level, actions),
        }

    def _on_unseen(self, case: Case, level: Level, actions: Sequence[PatternAction | RuleAction]) -> bool | None:
        """Raises SandboxError: the sandbox failed, or ran into the wall clock."""
        if case.unseen is None:
            return None
        return level.is_verified and makes(actions, case.unseen, case.task.language, self._sandbox)


def makes(actions: Sequence[PatternAction | RuleAction], pair: Unseen, language: Language, sandbox: Sandbox) -> bool:
    """Return whether `actions`, one after the other, make the text after of `pair` from the one before.

    Raises:
        SandboxError: the sandbox failed, or ran into the wall clock.
    """
    text = pair.pre
    for action in actions:
        [result] = sandbox.apply_many(text, language, [action])
        if ensure_decided(result).verdict is not Verdict.OK:
            return False
        text = tidied(text, result)
    try:
        return equality(text, pair.post, language).is_verified
    except DataError:  # the actions made what cannot be read
        return False


@contextmanager
def grading_workers(count: int, sandbox: SandboxConfig, weights: RewardWeights | None = None) -> Iterator[Grading]:
    """Start `count` processes, each with a sandbox of its own, and stop them at the end; with 0, grade in this one.

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """
    with Workers(count, partial(_opened, sandbox, weights)) as workers:
        yield partial(_in_workers, workers)


def _in_workers(
    workers: Workers[tuple[str, Reply], Attempt], contestant: str, replies: Iterable[Reply]
) -> Iterator[Attempt]:
    try:
        yield from workers.map((contestant, reply) for reply in replies)
    except WorkerDied as error:
        raise SandboxError("a worker process died; what was graded is kept, start again to go on") from error


def _opened(sandbox: SandboxConfig, weights: RewardWeights | None) -> Callable[[tuple[str, Reply]], Attempt]:
    grader = Grader(open_sandbox(sandbox), weights)
    return lambda item: grader.attempt(*item)


def _attempt(contestant: str, asked: Question, cost: Cost, **worth: Any) -> Attempt:
    case = asked.case
    values = {"is_infra": worth["reward"] is None, **worth}
    return Attempt(
        contestant=contestant,
        task_id=case.id,
        language=case.task.language,
        edit_class=case.edit_class,
        attempt=asked.attempt,
        tokens=cost.tokens,
        cost_usd=cost.cost_usd,
        latency_s=cost.latency_s,
        **values,
    )


def _facts(steps: Sequence[TrajectoryStep]) -> dict[str, Any]:
    """Return what the steps of an attempt say together: an action too many anywhere is one too many."""
    unwanted = [step.over_in for step in steps if step.over_in is not None]
    last = steps[-1] if steps else None
    outcome = last.sandbox_result if last else None
    return {
        "actions": tuple(step.model_output.action for step in steps if step.model_output.action is not None),
        "after": outcome.after if outcome else None,
        "verdict": outcome.verdict if outcome else None,
        "over_application": any(unwanted) if unwanted else None,
    }
