"""The loop of one attempt: teacher, sandbox, grade, reward, state; and of many, with a journal.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the collection
stops with that error, and what was collected is kept for the next start: a machine that is out of order must not
write a data set of failures.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from pydantic import Field, ValidationError

from graftline.config import Config
from graftline.errors import DataError, RecordError, SandboxError
from graftline.rules.equality import Level
from graftline.rules.grade import Grade, grade, is_general
from graftline.sandbox.base import Sandbox, SandboxResult, Verdict
from graftline.state.state import State
from graftline.tasks.task import Task
from graftline.teachers.base import Proposal, Teacher
from graftline.trajectories.reward import Reward, RewardWeights, reward
from graftline.trajectories.step import (
    ModelOutput,
    Prompt,
    SandboxOutcome,
    Trajectory,
    TrajectoryStep,
)

logger = logging.getLogger(__name__)

JOURNAL_NAME = ".journal.jsonl"
_MAX_DIFF_CHARACTERS = 20_000


class Collecting(Config):
    """How attempts are made."""

    max_steps: int = Field(default=12, ge=1, le=64)
    weights: RewardWeights = RewardWeights()


def collect_many(
    tasks: Sequence[Task], attempts: Callable[[Iterable[Task]], Iterator[Trajectory]], folder: Path
) -> Iterator[Trajectory]:
    """Yield the trajectory of every task, in order; those that a killed run left in `folder`'s journal are not redone.

    `attempts` makes the trajectories of the tasks it is given, in their order.

    Raises:
        SandboxError: the sandbox failed twice running; start again to go on.
    """
    journal = folder / JOURNAL_NAME
    finished = {trajectory.task_id: trajectory for trajectory in _journalled(journal)}
    with journal.open("a", encoding="utf-8", newline="") as stream:
        made = attempts(task for task in tasks if task.id not in finished)
        for task in tasks:
            trajectory = finished.get(task.id)
            if trajectory is None:
                trajectory = next(made)
                stream.write(trajectory.model_dump_json() + "\n")
                stream.flush()
            yield trajectory


def collect(task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting) -> Trajectory:
    """Return one attempt of `teacher` at `task`.

    Raises:
        SandboxError, BoundaryError: sandbox or teacher cannot answer; nothing is known about the attempt.
    """
    text, state, steps, seen = task.before, State(), list[TrajectoryStep](), {task.before}
    level, ending = Level.NONE, "max_steps"
    for _ in range(collecting.max_steps):
        proposal = teacher.propose(task, text, state)
        if proposal is None:
            ending = "gave_up"
            break
        [result] = sandbox.apply_many(text, task.language, [proposal.action])
        after = text if result.after is None else result.after
        graded = _graded(task, after)
        steps.append(_step(task, text, state, proposal, result, graded, steps, collecting.weights))
        level = graded.level
        if level.is_verified:
            ending = "done"
            break
        if result.verdict is not Verdict.OK:
            ending = str(result.verdict)
            break
        if after in seen:
            ending = "repeated_text"
            break
        text, state = after, state.merged(proposal.state_update)
        seen.add(text)
    return Trajectory(
        task_id=task.id,
        dataset=task.dataset,
        language=task.language,
        instruction=task.instruction,
        licence=task.licence,
        group=task.group,
        origin=task.origin,
        tags=task.tags,
        teacher=teacher.name,
        steps=tuple(steps),
        level=level,
        ending=ending,
        reward=steps[-1].reward if steps else Reward(value=0.0, cause=ending),
    )


def attempt(task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting) -> Trajectory:
    """As `collect`, but a sandbox that fails is asked once more."""
    try:
        return collect(task, teacher, sandbox, collecting)
    except SandboxError as error:
        logger.warning("%s: the sandbox failed, once more: %s", task.id, error)
        return collect(task, teacher, sandbox, collecting)


def _graded(task: Task, text: str) -> Grade:
    try:
        return grade(task.before, text, task.wanted, task.language)
    except DataError:  # the action made a text too long or too deep to be read
        return Grade(Level.NONE, 0.0)


def _step(
    task: Task,
    text: str,
    state: State,
    proposal: Proposal,
    result: SandboxResult,
    graded: Grade,
    earlier: list[TrajectoryStep],
    weights: RewardWeights,
) -> TrajectoryStep:
    general = is_general(proposal.action)
    is_all_general = general and all(step.is_general for step in earlier)
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(
            think=proposal.think,
            action=proposal.action,
            state_update=proposal.state_update,
            attempts=proposal.attempts,
        ),
        sandbox_result=_outcome(text, result),
        level=graded.level,
        progress=graded.progress,
        is_general=general,
        reward=reward(result.verdict, graded.level, graded.progress, is_all_general, weights),
    )


def _outcome(text: str, result: SandboxResult) -> SandboxOutcome:
    lines = () if result.after is None else unified_diff(text.splitlines(), result.after.splitlines(), n=0, lineterm="")
    return SandboxOutcome(
        verdict=result.verdict,
        matches=len(result.matches),
        after=result.after,
        diff="\n".join(lines)[:_MAX_DIFF_CHARACTERS],
        error=result.error,
        isolation=f"{result.isolation.level}/{result.isolation.implementation}",
    )


def _journalled(journal: Path) -> Iterator[Trajectory]:
    """Yield the whole lines of a journal, and cut off a last one that a kill left half written."""
    if not journal.exists():
        return
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with journal.open("r+b") as stream:
            stream.truncate(len(whole))
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            yield Trajectory.model_validate_json(line)
        except ValidationError as error:
            raise RecordError(f"{journal}: line {number} is no trajectory; delete the file and start again") from error
