"""Runs of the agent as trajectories: for users who agreed to it, each rule is an attempt at the edit that it was made
for (`record_run`); in an environment, a whole run is one attempt (`describe_run`).

They are in the shape and the shards of `teacher_trajectories` (`rollouts.shards`), with the verdict of the sandbox and
all measures. The reward of a rule is the share of its places that its user accepted, or none while nobody has decided,
or where the write was taken back (`mark_undone`). Code of the repository is in them, without what has the shape of a
secret, and stays on this machine.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.agent.edits import PlaceEdit
from graftline.agent.proposal import Proposal
from graftline.codemod.equality import Level
from graftline.codemod.rule_file import Example, FileRule
from graftline.codemod.source_files import RewrittenFile
from graftline.codemod.writes import RECORDED
from graftline.core.hashing import digest
from graftline.core.record import write_atomically
from graftline.core.secret_finds import redact
from graftline.datasets.instruction_source import FIELDS
from graftline.datasets.readers.recorded import UNDONE
from graftline.rollouts.collect import grade_step
from graftline.rollouts.reward import Reward, RewardWeights
from graftline.rollouts.shards import ShardWriter, read_shards, sealed_shards
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Proposal as Step
from graftline.rollouts.trajectory import Trajectory, TrajectoryStep
from graftline.sandbox.base import Sandbox

DATASET = "recorded"
"""Of all tasks that users gave."""
TEACHER = "agent"
_MAX_FEEDBACK = 4_000


def record_run(
    instruction: str,
    proposal: Proposal,
    accepted: Sequence[RewrittenFile] | None,
    folder: Path,
    sandbox: Sandbox,
    model: str = "",
    repository: str = "",
    journal: Path | None = None,
) -> list[Trajectory]:
    """Append the trajectories of a run to shards below `folder`, one folder a language, and return them.

    `repository` is what tells the repository from others, which is not to be in two splits; a digest of it is kept.

    `accepted` are the files with the places that were accepted; None where nobody has decided. `journal` is that of the
    write of them, if there was one. SandboxError if a rule cannot be applied.
    """
    names = [rule.id for rule in proposal.rules if _has_secret(rule)]
    trajectories = [
        _redact(_trajectory(instruction, rule, proposal, accepted, sandbox, model, repository), names)
        for rule in proposal.rules
        if rule.examples
    ]
    if journal is not None:
        run = _RecordedRun(folder=str(folder.resolve()), tasks=[trajectory.task_id for trajectory in trajectories])
        write_atomically(journal.with_suffix(RECORDED), run.model_dump_json())
    _append(trajectories, folder)
    return trajectories


def mark_undone(journal: Path) -> int:
    """Record that a write was taken back, where its run was recorded, and return of how many rules.

    Each gets one more trajectory, without a reward; what was decided before does not count then.
    """
    path = journal.with_suffix(RECORDED)
    try:
        run = _RecordedRun.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return 0
    folder = Path(run.folder)
    rows = {
        row.task_id: row
        for shards in map(sealed_shards, sorted(folder.iterdir()) if folder.is_dir() else ())
        for row in read_shards(shards)
        if row.task_id in run.tasks
    }
    reward = Reward(value=None, cause=UNDONE)
    _append(
        [
            row.model_copy(
                update={"reward": reward, "steps": tuple(s.model_copy(update={"reward": reward}) for s in row.steps)}
            )
            for row in rows.values()
        ],
        folder,
    )
    path.unlink()
    return len(rows)


class _RecordedRun(BaseModel):
    """Where the trajectories of a run are that was written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str
    tasks: list[str]


def _append(trajectories: Sequence[Trajectory], folder: Path) -> None:
    for language in sorted({trajectory.language for trajectory in trajectories}):
        with ShardWriter(folder / language, TEACHER) as writer:
            for trajectory in trajectories:
                if trajectory.language == language:
                    writer.add(trajectory)


def _has_secret(rule: FileRule) -> bool:
    texts = [str(rule.action), *(text for shown in rule.examples for text in (shown.before, shown.after))]
    return any(redact(text) != text for text in texts)


def _redact(trajectory: Trajectory, names: Sequence[str]) -> Trajectory:
    """Return a trajectory without what has the shape of a secret, in all of its texts.

    `names` are of rules that have one: they are made of code, in small letters, and nothing tells its shape there.
    """
    tree = json.loads(trajectory.model_dump_json())
    return Trajectory.model_validate_json(json.dumps(_redact_texts(tree, names)))


def _redact_texts(value: Any, names: Sequence[str]) -> Any:
    if isinstance(value, str):
        for name in names:
            value = value.replace(name, "[secret]")
        return redact(value)
    if isinstance(value, dict):
        return {key: _redact_texts(inner, names) for key, inner in value.items()}
    return [_redact_texts(inner, names) for inner in value] if isinstance(value, list) else value


def describe_run(
    task: Task, proposal: Proposal, reward: Reward, sandbox: Sandbox, made_by: str, attempt: int = 1
) -> Trajectory:
    """Return a whole run as one attempt at `task`, each rule a step at the place that it was made for; `reward` is what
    it is worth.

    A step thinks what was agreed on at which place; the last one is told what was not done, and how the tests ended.
    SandboxError if a rule cannot be applied.
    """
    steps: list[TrajectoryStep] = []
    state = State(goals=proposal.state.goals)
    for rule in proposal.rules:
        if not rule.examples:
            continue
        example = rule.examples[0]
        block = task.model_copy(
            update={"language": rule.language, "before": example.before, "target": example.after, "tests": None}
        )
        update = StateUpdate(history=[f"made {rule.id}"[:256]])
        step = Step(_describe_origin(example, proposal.edits), rule.action, update)
        graded = grade_step(block, block.before, state, step, steps, sandbox, RewardWeights())
        steps.append(graded.model_copy(update={"task_id": task.id, "is_kept": graded.reward.value is not None}))
        state = steps[-1].state_after
    if steps:
        tests = [] if proposal.tests is None else [f"tests: {proposal.tests.output}"]
        feedback = "\n".join([*proposal.undone, *proposal.contradictions, *tests])[:_MAX_FEEDBACK]
        steps[-1] = steps[-1].model_copy(update={"feedback": feedback, "reward": reward})
    is_whole = reward.value == 1
    level = Level.EXACT if is_whole else Level.PARTIAL if reward.value else Level.NONE
    return Trajectory(
        **_facts_of(task), made_by=made_by, teacher=TEACHER, attempt=attempt, steps=tuple(steps), level=level,
        ending="done" if steps else "gave_up", failure="" if is_whole else proposal.outcome.replace(" ", "_"), reward=reward,
    )  # fmt: skip


def _describe_origin(example: Example, edits: Sequence[PlaceEdit]) -> str:
    """Return how many edits of the model agreed on what a rule was made for; several rules may come of one edit."""
    # examples stand at the left margin
    target = "".join(example.after.split())
    own = [edit for edit in edits if edit.block.path == example.source]
    within = [edit for edit in own if target in "".join(edit.after_block.split())]
    edit = next(iter(within or own), None)
    if edit is None:
        return "what is said, or shown, as a rule"
    return f"{edit.block.path}:{edit.block.start + 1}: {edit.agreement}"


def _trajectory(
    instruction: str,
    rule: FileRule,
    proposal: Proposal,
    accepted: Sequence[RewrittenFile] | None,
    sandbox: Sandbox,
    model: str,
    repository: str,
) -> Trajectory:
    example = rule.examples[0]
    values = {"instruction": instruction, "before": example.before, "target": example.after}
    # what is not in two splits is the repository; nobody has said under which license it is
    group = f"{DATASET}/{digest(repository)[:16]}" if repository else DATASET
    task = Task(
        id=f"{DATASET}:{digest([rule.language, values])[:16]}", dataset=DATASET, language=rule.language, license="NOASSERTION",
        group=group, origin=rule.id, tags=("agent",), instruction_source="human", answerable=True, answerable_by="written",
        **values,
    )  # fmt: skip
    step = Step("", rule.action, StateUpdate(history=[f"made {rule.id}"[:256]]))
    graded = grade_step(task, task.before, proposal.state, step, (), sandbox, RewardWeights())
    reward = _reward(rule.id, proposal.files, accepted)
    graded = graded.model_copy(update={"is_kept": True, "reward": reward})
    return Trajectory(
        **_facts_of(task), made_by=digest([TEACHER, model]), teacher=TEACHER, steps=(graded,), level=graded.level,
        ending="done", failure="" if graded.level.is_verified else "done", reward=reward,
    )  # fmt: skip


def _facts_of(task: Task) -> dict[str, Any]:
    names = ("dataset", "language", "instruction", "license", "group", "origin", "tags", *FIELDS)
    return {"task_id": task.id, "task_digest": task.digest, **{name: getattr(task, name) for name in names}}


def _reward(rule: str, files: Sequence[RewrittenFile], accepted: Sequence[RewrittenFile] | None) -> Reward:
    if accepted is None:
        return Reward(value=None, cause="undecided")
    proposed, chosen = (
        Counter(place.rule for file in side for place in file.places)[rule] for side in (files, accepted)
    )
    share = chosen / proposed if proposed else 0.0
    cause = "accepted" if share == 1 else "accepted_in_part" if share else "rejected"
    return Reward(value=round(share, 6), cause=cause)
