"""The loop of one attempt: teacher, sandbox, grade, reward, state; and of many, with a journal.

A failed attempt is data, with its cause. A sandbox that fails is asked once more; if it fails again the collection
stops with that error, and what was collected is kept for the next start: a machine that is out of order must not
write a data set of failures.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from difflib import unified_diff
from pathlib import Path
from time import perf_counter

from pydantic import Field, ValidationError

from graftline.actions.action import PatternAction, RuleAction
from graftline.actions.astgrep import Language
from graftline.config import Config
from graftline.errors import DataError, RecordError, SandboxError
from graftline.rules.equality import Level
from graftline.rules.generality import is_general
from graftline.rules.grade import Grade, grade, measured, over_out, parse_ok
from graftline.rules.similarity import srl
from graftline.rules.tidy import tidied
from graftline.sandbox.base import Sandbox, SandboxResult, Verdict
from graftline.state.state import State
from graftline.tasks.task import Task
from graftline.teachers.base import GaveUp, Proposal, Teacher
from graftline.trajectories.reward import Reward, RewardWeights, reward
from graftline.trajectories.step import (
    AttemptTime,
    ModelOutput,
    Prompt,
    SandboxOutcome,
    Timings,
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
    tasks: Sequence[Task],
    attempts: Callable[[Iterable[Task]], Iterator[Trajectory]],
    folder: Path,
    times: Path | None = None,
) -> Iterator[Trajectory]:
    """Yield the trajectory of every task, in order; those that a killed run left in `folder`'s journal are not redone.

    `attempts` makes the trajectories of the tasks it is given, in their order. `times` is the file for how long each of
    them took (`AttemptTime`), which is no part of the artefact: it differs from run to run.

    Raises:
        SandboxError: the sandbox failed twice running; start again to go on.
    """
    journal = folder / JOURNAL_NAME
    finished = {trajectory.task_id: trajectory for trajectory in _journalled(journal)}
    with ExitStack() as stack:
        stream = stack.enter_context(journal.open("a", encoding="utf-8", newline=""))
        log = None
        if times is not None:
            times.parent.mkdir(parents=True, exist_ok=True)
            _whole_lines(times)
            log = stack.enter_context(times.open("a" if finished else "w", encoding="utf-8", newline=""))
        made = attempts(task for task in tasks if task.id not in finished)
        for task in tasks:
            trajectory = finished.get(task.id)
            if trajectory is None:
                trajectory = next(made)
                stream.write(trajectory.model_dump_json() + "\n")
                stream.flush()
                if log is not None:
                    log.write(_time(trajectory).model_dump_json() + "\n")
            yield trajectory


def times_file(logs: Path, language: Language, split: str) -> Path:
    """Return where it is written down how long the attempts at the tasks of one partition took."""
    return logs / "attempts" / language / f"{split}.jsonl"


def collect(task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting) -> Trajectory:
    """Return one attempt of `teacher` at `task`.

    Raises:
        SandboxError, BoundaryError: sandbox or teacher cannot answer; nothing is known about the attempt.
    """
    started, answers_ms = perf_counter(), list[float]()
    text, state, steps, seen = task.before, State(), list[TrajectoryStep](), {task.before}
    level, ending, cause = Level.NONE, "max_steps", ""
    for _ in range(collecting.max_steps):
        asked = perf_counter()
        answer = teacher.propose(task, text, state)
        answers_ms.append(_milliseconds_since(asked))
        if isinstance(answer, GaveUp):
            ending, cause = "gave_up", answer.cause
            break
        steps.append(_step(task, text, state, answer, steps, sandbox, collecting.weights))
        level, outcome = steps[-1].level, steps[-1].sandbox_result
        if level.is_verified:
            ending = "done"
            break
        if outcome.verdict is not Verdict.OK or outcome.after is None:
            ending = str(outcome.verdict)
            break
        if outcome.after in seen:
            ending = "repeated_text"
            break
        text, state = outcome.after, state.merged(answer.state_update)
        seen.add(text)
    trajectory = Trajectory(
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
        failure="" if level.is_verified else cause or ending,
        reward=steps[-1].reward if steps else Reward(value=0.0, cause=ending),
    )
    return trajectory.timed(Timings(_milliseconds_since(started), tuple(answers_ms)))


def attempt(task: Task, teacher: Teacher, sandbox: Sandbox, collecting: Collecting) -> Trajectory:
    """As `collect`, but a sandbox that fails is asked once more."""
    try:
        return collect(task, teacher, sandbox, collecting)
    except SandboxError as error:
        logger.warning("%s: the sandbox failed, once more: %s", task.id, error)
        return collect(task, teacher, sandbox, collecting)


def _step(
    task: Task,
    text: str,
    state: State,
    proposal: Proposal,
    earlier: Sequence[TrajectoryStep],
    sandbox: Sandbox,
    weights: RewardWeights,
) -> TrajectoryStep:
    action = proposal.action
    [result] = sandbox.apply_many(text, task.language, [action])
    graded = _graded(task, tidied(text, result))
    measures = measured(action, text, result, task.wanted, task.language, sandbox, own=task.before)
    general = is_general(action)
    spread = [measures.over_out, *(step.over_out for step in earlier)]
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(
            think=proposal.think,
            action=action,
            state_update=proposal.state_update,
            attempts=proposal.attempts,
            alternatives=proposal.alternatives,
        ),
        sandbox_result=_outcome(text, result),
        parse_ok=parse_ok(result.verdict),
        format_ok=True,
        level=graded.level,
        progress=graded.progress,
        over_in=measures.over_in,
        over_out=measures.over_out,
        idempotent=measures.idempotent,
        neg_fail=measures.neg_fail,
        general=general,
        mdl=measures.mdl,
        support=measures.support,
        support_pairs=None if measures.support is None else int(measures.support > 0),
        srl=srl(action, _golds(task)),
        reward=reward(
            result.verdict,
            graded.level,
            graded.progress,
            general and all(step.general for step in earlier),
            weights,
            is_broad=graded.is_verified and _is_broad(task, spread, sandbox, weights),
            unwanted=(measures.over_in or 0) / max(1, len(result.matches)),
        ),
    )


def _graded(task: Task, text: str) -> Grade:
    try:
        return grade(task.before, text, task.wanted, task.language)
    except DataError:  # the action made a text too long or too deep to be read
        return Grade(Level.NONE, 0.0)


def _is_broad(task: Task, spread: Sequence[float | None], sandbox: Sandbox, weights: RewardWeights) -> bool:
    """Return whether an action changes foreign code more often than the weights allow."""
    # what is not known is held against nobody
    most = max((each for each in spread if each is not None), default=0.0)
    if most <= weights.most_over_out:
        return False
    # an idiom that is to be replaced wherever it stands is no fault of who replaces it so
    allowed = [over_out(gold, task.language, sandbox, task.before) for gold in _golds(task)]
    known = [each for each in allowed if each is not None]
    return len(known) == len(allowed) and most - max(known, default=0.0) > weights.most_over_out


def _golds(task: Task) -> list[PatternAction | RuleAction]:
    return [] if task.gold_action is None else [task.gold_action, *task.gold_next]


def _outcome(text: str, result: SandboxResult) -> SandboxOutcome:
    after = None if result.after is None else tidied(text, result)
    lines = () if after is None else unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return SandboxOutcome(
        verdict=result.verdict,
        matches=len(result.matches),
        after=after,
        diff="\n".join(lines)[:_MAX_DIFF_CHARACTERS],
        error=result.error,
        isolation=f"{result.isolation.level}/{result.isolation.implementation}",
    )


def _milliseconds_since(started: float) -> float:
    return round((perf_counter() - started) * 1000, 3)


def _time(trajectory: Trajectory) -> AttemptTime:
    return AttemptTime(
        task_id=trajectory.task_id,
        dataset=trajectory.dataset,
        language=trajectory.language,
        teacher=trajectory.teacher,
        attempt_ms=trajectory.timings.attempt_ms,
        answers_ms=trajectory.timings.answers_ms,
    )


def _journalled(journal: Path) -> Iterator[Trajectory]:
    """Yield the trajectories in a journal."""
    for number, line in enumerate(_whole_lines(journal).splitlines(), 1):
        try:
            yield Trajectory.model_validate_json(line)
        except ValidationError as error:
            raise RecordError(f"{journal}: line {number} is no trajectory; delete the file and start again") from error


def _whole_lines(path: Path) -> bytes:
    """Return the whole lines of a file, and cut off a last one that a kill left half written."""
    if not path.exists():
        return b""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as stream:
            stream.truncate(len(whole))
    return whole
