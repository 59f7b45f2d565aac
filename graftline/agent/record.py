"""Runs of the agent as trajectories, for whoever agreed to that: each rule an attempt at the edit that it was made for.

They are in the shape and the shards of `teacher_trajectories` (`rollouts.shards`), with the verdict of the sandbox and all measures;
the reward is what the user said of the rule's places: the share that was accepted, or nothing while nobody has decided. Code of the
repository is in them, and stays on this machine.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graftline.agent.refactor import Proposal
from graftline.codemod.rule_file import FileRule
from graftline.codemod.source_files import RewrittenFile
from graftline.core.hashing import digest
from graftline.rollouts.collect import grade_step
from graftline.rollouts.reward import Reward, RewardWeights
from graftline.rollouts.shards import ShardWriter
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Proposal as Step
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Sandbox

DATASET = "recorded"
"""Of all tasks that users gave."""
TEACHER = "agent"


def record_run(
    instruction: str,
    proposal: Proposal,
    accepted: Sequence[RewrittenFile] | None,
    folder: Path,
    sandbox: Sandbox,
    model: str = "",
) -> list[Trajectory]:
    """Append the trajectories of a run to shards below `folder`, one folder a language, and return them.

    `accepted` are the files with the places that were accepted; None where nobody has decided. SandboxError if a rule cannot be
    applied.
    """
    trajectories = [
        _trajectory(instruction, rule, proposal, accepted, sandbox, model) for rule in proposal.rules if rule.examples
    ]
    for language in sorted({trajectory.language for trajectory in trajectories}):
        with ShardWriter(folder / language, TEACHER) as writer:
            for trajectory in trajectories:
                if trajectory.language == language:
                    writer.add(trajectory)
    return trajectories


def _trajectory(
    instruction: str,
    rule: FileRule,
    proposal: Proposal,
    accepted: Sequence[RewrittenFile] | None,
    sandbox: Sandbox,
    model: str,
) -> Trajectory:
    example = rule.examples[0]
    values = {"instruction": instruction, "before": example.before, "target": example.after}
    task = Task(
        id=f"{DATASET}:{digest([rule.language, values])[:16]}", dataset=DATASET, language=rule.language,
        # nobody has said under which license the repository is
        license="NOASSERTION", group=DATASET, origin=rule.id, tags=("agent",), **values,
    )  # fmt: skip
    step = Step("", rule.action, StateUpdate(history=[f"made {rule.id}"[:256]]))
    graded = grade_step(task, task.before, proposal.state, step, (), sandbox, RewardWeights())
    reward = _reward(rule.id, proposal.files, accepted)
    graded = graded.model_copy(update={"is_kept": True, "reward": reward})
    return Trajectory(
        task_id=task.id, task_digest=task.digest, made_by=digest([TEACHER, model]), dataset=DATASET, language=rule.language,
        instruction=instruction, license=task.license, group=task.group, origin=task.origin, tags=task.tags,
        instruction_source="human", answerable=True, answerable_by="written", teacher=TEACHER, steps=(graded,), level=graded.level,
        ending="done", failure="" if graded.level.is_verified else "done", reward=reward,
    )  # fmt: skip


def _reward(rule: str, files: Sequence[RewrittenFile], accepted: Sequence[RewrittenFile] | None) -> Reward:
    if accepted is None:
        return Reward(value=None, cause="undecided")
    proposed, chosen = (
        Counter(place.rule for file in side for place in file.places)[rule] for side in (files, accepted)
    )
    share = chosen / proposed if proposed else 0.0
    cause = "accepted" if share == 1 else "accepted_in_part" if share else "rejected"
    return Reward(value=round(share, 6), cause=cause)
