"""What doing nothing earns, and what the reference solution does: floor and ceiling of a deployment's rewards.

EngineBench gives 0.3 for a crate that compiles, which it does before anybody has touched it. A reward is only worth
something between the floor (agent `nop`) and the ceiling (agent `oracle`) of its task; what is not known stays None.
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import ConfigError, RecordError
from graftline.core.record import write_atomically
from graftline.harbor.address import deployment_path
from graftline.harbor.deployment_file import ConfiguredDeployment, IdleAgent, calibration_policy

if TYPE_CHECKING:
    from graftline.harbor.messages import RolloutAnswer
    from graftline.harbor.service_connection import ServiceConnection

FULL = 1.0
"""What a solution earns that is right."""
Fault = Literal["nop_unknown", "oracle_unknown", "oracle_below_full", "nop_reaches_oracle"]
AGENTS: tuple[IdleAgent, ...] = ("nop", "oracle")
_TOLERANCE = 1e-6
"""Of rewards that were rounded when they were written."""


class _Stored(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class TaskCalibration(_Stored):
    """Floor and ceiling of one task."""

    floor: float | None = Field(allow_inf_nan=False)
    """The reward of doing nothing."""
    ceiling: float | None = Field(allow_inf_nan=False)
    """That of the reference solution."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What is wrong with the task."""
        faults: list[Fault] = []
        if self.floor is None:
            faults.append("nop_unknown")
        if self.ceiling is None:
            faults.append("oracle_unknown")
        elif self.ceiling < FULL - _TOLERANCE:
            faults.append("oracle_below_full")
        if self.floor is not None and self.ceiling is not None and self.floor >= self.ceiling:
            faults.append("nop_reaches_oracle")
        return tuple(faults)

    def normalize(self, score: float | None) -> float | None:
        """Return where `score` lies between floor and ceiling, below 0 where it is worse than doing nothing.

        None where it is not known, or where the task has no room between the two.
        """
        if score is None or self.floor is None or self.ceiling is None or self.floor >= self.ceiling:
            return None
        return round((score - self.floor) / (self.ceiling - self.floor), 6)


class Calibration(_Stored):
    """Floor and ceiling of a deployment, task by task."""

    schema_version: Literal[1] = 1
    deployment: str
    """Its name."""
    digests: tuple[str, ...] = ()
    """Of the deployments that were run: with another content, the figures say nothing."""
    tasks: dict[str, TaskCalibration]

    @property
    def floor(self) -> float | None:
        """The mean over the tasks of which it is known."""
        return _mean([task.floor for task in self.tasks.values()])

    @property
    def ceiling(self) -> float | None:
        """The mean over the tasks of which it is known."""
        return _mean([task.ceiling for task in self.tasks.values()])

    @property
    def faults(self) -> dict[str, tuple[Fault, ...]]:
        """The tasks that are not to be used, and why."""
        return {task_id: task.faults for task_id, task in self.tasks.items() if task.faults}

    @property
    def is_sound(self) -> bool:
        """Whether there are tasks, and no fault in any of them."""
        return bool(self.tasks) and not self.faults

    def normalize(self, rewards: Mapping[str, float | None]) -> dict[str, float | None]:
        """Return the rewards of tasks between floor and ceiling; None for a task that was not calibrated."""
        tasks = self.tasks
        return {task: tasks[task].normalize(reward) if task in tasks else None for task, reward in rewards.items()}

    def mean_normalised(self, rewards: Mapping[str, float | None]) -> float | None:
        """Return the mean over the tasks whose normalized reward is known; None where there is none."""
        return _mean([*self.normalize(rewards).values()])

    def write(self, path: Path) -> None:
        """Put the calibration into `path`."""
        shown = {"floor": self.floor, "ceiling": self.ceiling, "faults": self.faults}
        write_atomically(path, json.dumps({**self.model_dump(mode="json"), "shown": shown}, indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the calibration in `path`. Raises RecordError where there is none, or it is damaged."""
        try:
            tree = json.loads(path.read_text("utf-8"))
            # worked out anew; it is there for whoever only looks at the file
            fields = {key: value for key, value in tree.items() if key != "shown"}
            return cls.model_validate(fields)
        except OSError as error:
            raise RecordError(f"{path}: cannot be read ({error.strerror}); run `graftline env calibrate`") from None
        except (ValidationError, ValueError, AttributeError) as error:
            first = str(error).partition("\n")[0]
            raise RecordError(f"{path}: is no calibration ({first}); run `graftline env calibrate` again") from None


def calibration_of(
    nop: Mapping[str, float | None],
    oracle: Mapping[str, float | None],
    deployment: str = "",
    digests: tuple[str, ...] = (),
) -> Calibration:
    """Return the calibration of the rewards that count, by task; a task that one of the two lacks is not known there."""
    ids = sorted({*nop, *oracle})
    tasks = {task: TaskCalibration(floor=nop.get(task), ceiling=oracle.get(task)) for task in ids}
    return Calibration(deployment=deployment, digests=digests, tasks=tasks)


def _mean(values: list[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(fmean(numbers), 6) if numbers else None


def calibrate(
    deployment: ConfiguredDeployment,
    service: "ServiceConnection",
    seeds: Sequence[int] | None = None,
    at_once: int = 8,
    on_ended: Callable[[str, int, "RolloutAnswer"], None] = lambda agent, total, rollout: None,
) -> Calibration:
    """Return the calibration of `deployment`, after it was written to its place; without `seeds`, of all of its tasks.

    Raises:
        ConfigError, DataError: the deployment cannot be made, or a seed stands for no task.
        HarborError: its build fails, or the service refuses a rollout.
    """
    # brings the client, which nobody waits for who only loads the definitions
    from graftline.harbor.execution import run_rollouts

    rewards: dict[str, dict[str, float | None]] = {}
    digests: list[str] = []
    for agent in AGENTS:
        with tempfile.TemporaryDirectory() as folder:
            spec = deployment.spec(Path(folder), agent=agent)
            tasks = {task.seed: task.task_id for task in spec.tasks}
            selected = _select_seeds(tasks, seeds, deployment)
            created = service.uploader.create_deployment(spec)
        ready = service.uploader.wait_for_build(created.id)
        digests.append(str(service.client.request("GET", deployment_path(ready.id))["digest"]))
        rollouts = run_rollouts(
            service.deployment(ready.id),
            selected,
            calibration_policy(deployment.file, agent),
            at_once,
            partial(on_ended, agent, len(selected)),
        )
        rewards[agent] = {
            tasks.get(rollout.seed) or rollout.task_id or str(rollout.seed): rollout.reward
            if rollout.reward_valid
            else None
            for rollout in rollouts
        }
    calibration = calibration_of(rewards["nop"], rewards["oracle"], deployment.file.name, tuple(dict.fromkeys(digests)))
    calibration.write(deployment.calibration_path)
    return calibration


def _select_seeds(tasks: Mapping[int, str], seeds: Sequence[int] | None, deployment: ConfiguredDeployment) -> list[int]:
    if seeds is None and not tasks:
        raise ConfigError(f"{deployment.path}: does not say which seeds stand for its tasks; name them")
    selected = sorted(tasks) if seeds is None else list(seeds)
    if tasks and (missing := [seed for seed in selected if seed not in tasks]):
        raise ConfigError(
            f"{deployment.path}: seed {missing[0]} stands for no task; known: {min(tasks)} to {max(tasks)}"
        )
    return selected
