"""EngineBench as a task app of this machine: for development, and to compare with what the service says.

The programs and the grading are those of the deployment, in folders of their own instead of boxes: nothing is isolated, so
only agents that are trusted may run here. The service runs the same contexts in boxes.
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.harbor.contract import (
    OF_THE_AGENT,
    Artifact,
    FailureCause,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskDescription,
    TaskInfo,
    TaskSeed,
)
from graftline.harbor.executors.base import Execution
from graftline.harbor.in_box.agents import API_KEYS
from graftline.harbor.in_box.commands import run_command
from graftline.harbor.refusal import RequestError
from graftline.harbor.results import read_result, read_reward
from graftline.harbor.secret_finds import is_secret_name
from graftline.harbor.task_format.importing import RUN_ROLLOUT, SUBMISSION, StagedTasks

NAME = "EngineBench"
DESCRIPTION = "Coding agents implement cards of a trading card game in Rust."
_LOGS = "/logs/verifier"
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
        self._staged, self._target = staged, target
        self._variables = dict(os.environ if variables is None else variables)
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
            outcome, raw, card = self._act(request, task, Path(folder))
            graded = None
            if raw is not None and (raw.get("failure_cause") in (None, *OF_THE_AGENT)):
                graded = self._grade(task, Path(folder))
        return _response(request, task, outcome, graded, card)

    def _act(
        self, request: RolloutRequest, task: TaskSeed, folder: Path
    ) -> tuple[Execution, dict[str, Any] | None, str]:
        """Return what the agent's program says, its result, and the card it left."""
        box = self._lay_out(self._staged.context, task.agent_files, folder / "agent")
        for override in request.context_overrides:
            for path, text in override.file_artifacts.items():
                place = (box / path).resolve()
                if not place.is_relative_to(box.resolve()):
                    raise RequestError("path_traversal", f"context_overrides: {path[:128]!r} leads out of the folder")
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(text, "utf-8")
        config = request.policy.config
        sent = {
            **request.model_dump(mode="json"),
            "task_id": task.task_id,
            "inference_url": config.get("inference_url"),
            "limits": {"timeout_s": min(request.safety.max_time_s, self._staged.limits.timeout_s)},
        }
        request_file, result_file = folder / "rollout.json", folder / "result.json"
        request_file.write_text(json.dumps(sent), "utf-8")
        paths = {"/tmp/rollout.json": str(request_file), "/tmp/result.json": str(result_file)}
        ended = run_command(_words(RUN_ROLLOUT, paths), box, self._variables, self._staged.limits.timeout_s + 10)
        if ended.status is None:
            reason = "the entrypoint ran out of time"
            return Execution(SuccessStatus.TIMEOUT, None, FailureCause.UNCLASSIFIED, reason), None, ""
        outcome = read_result(result_file.read_bytes() if result_file.is_file() else None)
        return outcome, dict(outcome.result) or None, _card(box / SUBMISSION)

    def _grade(self, task: TaskSeed, folder: Path) -> Execution:
        box = self._lay_out(self._staged.verifier_context, task.verifier_files, folder / "verifier")
        if (folder / "agent" / SUBMISSION).is_dir():
            shutil.copytree(folder / "agent" / SUBMISSION, box / SUBMISSION, symlinks=True)
        keys = {name for name in self._variables if name in API_KEYS or is_secret_name(name)}
        variables = {name: value for name, value in self._variables.items() if name not in keys}
        if self._target is not None:
            variables["CARGO_TARGET_DIR"] = str(self._target)
        logs, settings = folder / "logs", self._staged.verifier
        ended = run_command(_words(settings.entrypoint, {_LOGS: str(logs)}), box, variables, settings.timeout_s)
        outcome = read_reward(_bytes(logs / "reward.json"), _bytes(logs / "reward.txt"), settings.reward_key)
        if outcome.failure_cause is None:
            return outcome
        last = ended.output.strip().rpartition("\n")[2]
        return Execution(outcome.success_status, None, outcome.failure_cause, f"{outcome.error}; {last}")

    def _lay_out(self, context: Path, folders: Sequence[str], box: Path) -> Path:
        box.mkdir()
        for name in folders or (".",):
            shutil.copytree(context / name, box, dirs_exist_ok=True)
        return box

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


def _response(
    request: RolloutRequest, task: TaskSeed, acted: Execution, graded: Execution | None, card: str
) -> RolloutResponse:
    details = {**acted.details, "task_id": task.task_id}
    status, cause, error, reward = acted.success_status, acted.failure_cause, acted.error, None
    objectives: dict[str, float] = {}
    if graded is not None:
        reward, objectives = graded.reward, dict(graded.details.get("objectives", {}))
        details |= graded.result
        if graded.failure_cause is not None:
            status, cause, error = graded.success_status, graded.failure_cause, graded.error
        elif cause is FailureCause.VERIFIER_FAILED:
            # the agent's program leaves the reward to the verifier
            status, cause, error = SuccessStatus.SUCCESS, None, ""
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id,
        reward_info=RewardInfo(outcome_reward=reward, outcome_objectives=objectives, details=details),
        success_status=status,
        status_detail=error or None,
        failure_cause=cause,
        artifact=[Artifact(content=card, content_type="text/x-rust", metadata={"name": "rust_code"})] if card else None,
    )


def _words(entrypoint: str, paths: Mapping[str, str]) -> list[str]:
    words = [paths.get(word, word) for word in shlex.split(entrypoint)]
    return [sys.executable, *words[1:]]


def _card(submission: Path) -> str:
    for path in sorted(submission.rglob("*.rs")) if submission.is_dir() else ():
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= _MAX_CARD_BYTES:
            return path.read_text("utf-8", "replace")
    return ""


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
