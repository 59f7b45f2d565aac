"""Which Harbor tasks of a folder can be judged here, and why others cannot: by reading them, and by what they come to.

A task is `refused` where it cannot be read or asks for what no box gives, and `imported` else. Once doing nothing and the reference
solution were run, it is `sound`, or has the faults of `calibration`; one without a verdict says what its box lacked.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graftline.core.errors import DataError
from graftline.core.record import write_atomically
from graftline.harbor.calibration import AGENTS, Calibration, calibration_of
from graftline.harbor.deployment_file import IdleAgent
from graftline.harbor.executors.trial import Abilities, find_lacks
from graftline.harbor.task_format.importing import limits_of
from graftline.harbor.task_format.task_folder import HarborTask, read_task, task_folders

if TYPE_CHECKING:
    from graftline.harbor.messages import RolloutAnswer

_ANY_BOX = Abilities(has_network=True, switches_network=True)
_MAX_REASON = 1000


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What is known of one task."""

    task: str
    verdict: str
    reason: str = ""
    executor: str = ""
    """What ran it; empty for one that was only read."""


def select_tasks(folder: Path) -> tuple[list[HarborTask], list[TaskVerdict]]:
    """Return the tasks of a folder that can be imported, and the verdict on each.

    Raises:
        DataError: there is none; the message says why, of each.
    """
    tasks, verdicts = [], []
    for place in task_folders(folder):
        try:
            task = read_task(place)
            limits_of(task)
        except DataError as error:
            verdicts.append(TaskVerdict(place.name, "refused", str(error).replace(f"{place}/", "")[:_MAX_REASON]))
            continue
        tasks.append(task)
        lacks = [lack for lack in find_lacks(task, _ANY_BOX, "nop") if ".env: " not in lack]
        notes = [*lacks, *(f"ignored: {key.partition('; ')[0]}" for key in task.toml.ignored)]
        verdicts.append(TaskVerdict(task.id, "imported", "; ".join(notes)))
    if not tasks:
        raise DataError("\n".join(f"{verdict.task}: {verdict.reason}" for verdict in verdicts))
    return tasks, verdicts


def judge(
    verdicts: Sequence[TaskVerdict], rollouts: Mapping[IdleAgent, Sequence["RolloutAnswer"]], name: str
) -> tuple[list[TaskVerdict], Calibration]:
    """Return the verdicts after the rollouts of each agent of `calibration.AGENTS`, and the calibration that they come to."""
    answers = {agent: {str(answer.task_id): answer for answer in rollouts[agent]} for agent in AGENTS}
    rewards = {
        agent: {task: answer.reward if answer.reward_valid else None for task, answer in of_tasks.items()}
        for agent, of_tasks in answers.items()
    }
    calibration = calibration_of(rewards["nop"], rewards["oracle"], name)
    judged = []
    for verdict in verdicts:
        own = calibration.tasks.get(verdict.task)
        if own is not None:
            of_task = [answers[agent][verdict.task] for agent in AGENTS if verdict.task in answers[agent]]
            reason = next((answer.error for answer in of_task if answer.error), "") or verdict.reason
            executor = next((str(answer.lock["executor"]) for answer in of_task if "executor" in answer.lock), "")
            faults = ", ".join(own.faults) or "sound"
            verdict = replace(verdict, verdict=faults, reason=reason[:_MAX_REASON], executor=executor)
        judged.append(verdict)
    return judged, calibration


def write_report(path: Path, verdicts: Sequence[TaskVerdict]) -> None:
    """Write the verdicts to `path`, a line of JSON each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(asdict(verdict)) + "\n" for verdict in verdicts))
