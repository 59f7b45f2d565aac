"""EngineBench as a task app of this machine: for development, and to compare with what the service says.

The programs, the grading and the way of a rollout are those of the service, in folders of their own instead of boxes: nothing
is isolated, so only agents that are trusted may run here.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from graftline.core.errors import HarborError
from graftline.core.secret_finds import is_secret_name
from graftline.harbor.contract import (
    Artifact,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    TaskDescription,
    TaskInfo,
    TaskSeed,
)
from graftline.harbor.executors.archives import relative
from graftline.harbor.executors.base import INPUT_PATH, OUTPUT_PATH, RolloutSpec
from graftline.harbor.executors.containers import VERIFIER_FOLDER, ContainerExit, ContainerSpec, run_in_containers
from graftline.harbor.in_box.agents import API_KEYS
from graftline.harbor.in_box.commands import run_command
from graftline.harbor.refusal import RequestError
from graftline.harbor.task_format.importing import SUBMISSION, StagedTasks

NAME = "EngineBench"
DESCRIPTION = "Coding agents implement cards of a trading card game in Rust."
_MAX_CARD_BYTES = 1 << 20


class EngineBenchEnvironment:
    """The cards of `staged`, by seed; safe to use from several threads.

    Args:
        staged: What `stage_cards` made.
        variables: Of the processes; those of this one where they are not given. Only the agent's get keys.
        target: Where cargo keeps what it built, so that the next card is quick; a folder of the rollout where not given.
    """

    def __init__(
        self, staged: StagedTasks, variables: Mapping[str, str] | None = None, target: Path | None = None
    ) -> None:
        self._staged = staged
        every = dict(os.environ if variables is None else variables)
        self._keys = {name: value for name, value in every.items() if name in API_KEYS or is_secret_name(name)}
        self._variables = {name: value for name, value in every.items() if name not in self._keys}
        self._target = {} if target is None else {"CARGO_TARGET_DIR": str(target)}
        self._tasks = {task.seed: task for task in staged.seeds}

    def provide_taskset_description(self) -> dict[str, Any]:
        """Return what all cards have in common."""
        first, last = min(self._tasks), max(self._tasks)
        return {
            "id": "engine_bench",
            "name": NAME,
            "description": DESCRIPTION,
            "num_tasks": len(self._tasks),
            "seeds": {"first": first, "last": last},
        }

    def provide_task_instances(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the card of every seed, without its tests and its solution.

        Raises:
            RequestError: a seed stands for none.
        """
        return [self._info(self._task(seed)) for seed in seeds]

    def run_rollout(self, request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
        """Return how one rollout ended. Raises RequestError where the seed stands for no card."""
        task = self._task(request.seed)
        with tempfile.TemporaryDirectory(prefix="engine-bench-") as folder:
            spec = self._spec(request, task)
            execution = run_in_containers(spec, partial(self._open_folder, Path(folder)), lambda: False)
            card = _card(Path(folder) / "agent" / "box" / SUBMISSION)
        details = {**execution.details, "task_id": task.task_id}
        objectives = details.pop("objectives", {})
        return RolloutResponse(
            trace_correlation_id=request.trace_correlation_id,
            reward_info=RewardInfo(
                outcome_reward=execution.reward, outcome_objectives=objectives, details={**details, **objectives}
            ),
            success_status=execution.success_status,
            status_detail=execution.error or None,
            failure_cause=execution.failure_cause,
            artifact=[Artifact(content=card, content_type="text/x-rust", metadata={"name": "rust_code"})]
            if card
            else None,
        )

    def _spec(self, request: RolloutRequest, task: TaskSeed) -> RolloutSpec:
        staged, files = self._staged, dict[str, str]()
        for override in request.context_overrides:
            files |= override.file_artifacts
        try:
            for path in files:
                relative(path)
        except HarborError as error:
            raise RequestError("path_traversal", f"context_overrides: {error}") from None
        sent = {
            **request.model_dump(mode="json"),
            "task_id": task.task_id,
            "inference_url": request.policy.config.get("inference_url"),
            "limits": {"timeout_s": min(request.safety.max_time_s, staged.limits.timeout_s)},
        }
        return RolloutSpec(
            rollout_id=request.trace_correlation_id,
            attempt=1,
            snapshot_id=str(staged.context),
            entrypoint=staged.entrypoint,
            entrypoint_mode="file",
            request=sent,
            limits=staged.limits,
            env_vars=self._variables,
            secrets=self._keys,
            files=files,
            verifier=staged.verifier,
            verifier_snapshot_id=str(staged.verifier_context),
            agent_files=task.agent_files,
            verifier_files=task.verifier_files,
        )

    @contextmanager
    def _open_folder(self, folder: Path, spec: ContainerSpec) -> "Iterator[_Folder]":
        variables = spec.env_vars if spec.role == "agent" else {**spec.env_vars, **self._target}
        yield _Folder(folder / spec.role, spec, variables)

    def _task(self, seed: int) -> TaskSeed:
        task = self._tasks.get(seed)
        if task is None:
            first, last = min(self._tasks), max(self._tasks)
            raise RequestError("unknown_seed", f"seed {seed} stands for no card; there are {first} to {last}")
        return task

    def _info(self, task: TaskSeed) -> TaskInfo:
        instruction = self._staged.context / "tasks" / task.task_id / "instruction.md"
        if not instruction.is_file():
            instruction = self._staged.context / "instruction.md"
        described = TaskDescription(id=task.task_id, name=task.task_id, description=instruction.read_text("utf-8"))
        return TaskInfo(
            task=described,
            dataset={"id": "engine_bench", "name": NAME},
            limits={"timeout_seconds": self._staged.limits.timeout_s},
            task_metadata={"seed": task.seed, **task.metadata},
        )


class _Folder:
    """A `Container` that is a folder."""

    limits_enforced: Mapping[str, Any] = {}

    def __init__(self, folder: Path, spec: ContainerSpec, variables: Mapping[str, str]) -> None:
        self._box, self._spec, self._variables = folder / "box", spec, variables
        places = {INPUT_PATH: "rollout.json", OUTPUT_PATH: "result.json", VERIFIER_FOLDER: "logs"}
        self._places = {path: folder / name for path, name in places.items()}
        for part in spec.parts or (".",):
            shutil.copytree(Path(spec.snapshot_id) / part, self._box, dirs_exist_ok=True)
        files = {self._box / path: content for path, content in spec.files.items()}
        for place, content in (files | {self._places[path]: data for path, data in spec.inputs.items()}).items():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        words = [str(self._places.get(word, word)) for word in self._spec.words[1:]]
        ended = run_command([sys.executable, *words], self._box, self._variables, self._spec.timeout_s)
        return ContainerExit(
            "timeout" if ended.status is None else "exited",
            ended.status,
            seconds=ended.seconds,
            log=ended.output.encode(),
        )

    def read(self, path: str, limit: int) -> bytes | None:
        above, _, name = path.rpartition("/")
        place = self._places.get(path) or self._places[above] / name
        return place.read_bytes()[: limit + 1] if place.is_file() and not place.is_symlink() else None

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        files = (file for path in paths for file in (self._box / path).rglob("*"))
        return {
            file.relative_to(self._box).as_posix(): file.read_bytes()
            for file in files
            if file.is_file() and not file.is_symlink()
        }


def _card(submission: Path) -> str:
    for path in sorted(submission.rglob("*.rs")) if submission.is_dir() else ():
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MAX_CARD_BYTES:
            return path.read_text("utf-8", "replace")
    return ""
