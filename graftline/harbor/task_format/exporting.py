"""Our refactoring tasks as Harbor tasks, Harbor tasks written to folders, and rollouts as the folders of Harbor trials.

A trial is a folder that tools made for those show:

    config.json lock.json result.json trial.log [exception.txt] agent/trajectory.json verifier/{reward.json test-stdout.txt}

`result.json` reads as Harbor's `TrialResult` does. A rollout without a reward that counts has no `reward.json`, and no
rewards in `result.json`, whatever was reported. Secrets were cut out of what comes here by the executor.
"""

import json
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.harbor.task_format.task_folder import TASK_ID, HarborTask, TaskFile, write_files
from graftline.harbor.task_format.task_toml import (
    AgentSection,
    Artifact,
    EnvironmentSection,
    Package,
    TaskToml,
    VerifierSection,
    toml_text,
)
from graftline.rollouts.task import Task

SUFFIXES = {"java": "java", "javascript": "js", "python": "py", "tsx": "tsx", "typescript": "ts"}
IMAGE = "python:3.11.14-slim-bookworm"
_OWN = "graftline"
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
_EXCEPTIONS = {
    "sandbox_failed": "SandboxBuildFailedError",
    "model_provider_failed": "ApiError",
    "harbor_failed": "ServiceOperationsUnsupportedError",
    "unclassified": "NonZeroAgentExitCodeError",
    "agent_exhausted_budget": "AgentTimeoutError",
    "agent_refused_task": "AgentSafetyRefusalError",
    "verifier_failed": "RewardFileNotFoundError",
    "cancelled": "CancelledError",
}
"""An exception of Harbor 0.25.0 that its policy takes for the same cause."""
_NAMESPACE = uuid.UUID("6f6c4f0c-6d0f-5c8b-9d2e-1f6b7c1b8a10")
_NO_DIGEST = "0" * 64
_TEST = """\
#!/bin/sh
# 1 where the file is the wanted text, else 0; line ends at the end of the file do not count
exec python3 - "$PWD/{name}" "${{TESTS_DIR:-/tests}}/wanted.{suffix}" "${{LOGS_DIR:-/logs/verifier}}" <<'END'
import json, pathlib, sys
made, wanted, logs = map(pathlib.Path, sys.argv[1:])
text = made.read_text("utf-8", "replace") if made.is_file() else ""
reward = int(text.rstrip("\\n") == wanted.read_text("utf-8").rstrip("\\n"))
logs.mkdir(parents=True, exist_ok=True)
(logs / "reward.json").write_text(json.dumps({{"reward": reward}}))
END
"""
_SOLVE = """\
#!/bin/sh
cp "${{SOLUTION_DIR:-/solution}}/wanted.{suffix}" "{name}"
"""


def harbor_task(task: Task) -> HarborTask:
    """Return a task of ours as a Harbor task: it is done when the file holds the wanted text."""
    suffix = SUFFIXES[task.language]
    name = f"source.{suffix}"
    toml = TaskToml(
        task=Package(name=f"{_OWN}/{slug(task.id)}", description=task.instruction[:200]),
        metadata={_OWN: _metadata(task)},
        agent=AgentSection(timeout_sec=300.0),
        verifier=VerifierSection(timeout_sec=60.0, environment_mode="separate"),
        environment=EnvironmentSection(
            cpus=1.0, memory_mb=1024, storage_mb=1024, workdir="/app", network_mode="no-network"
        ),
        artifacts=(Artifact(source=name),),
    )
    instruction = f"{task.instruction}\n\nChange the file `{name}` in the working folder so, and nothing else.\n"
    texts = {
        "task.toml": toml_text(toml),
        "instruction.md": instruction,
        "environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\nCOPY {name} /app/{name}\n",
        f"environment/{name}": task.before,
        f"tests/wanted.{suffix}": task.target,
        f"solution/wanted.{suffix}": task.target,
        "tests/test.sh": _TEST.format(name=name, suffix=suffix),
        "solution/solve.sh": _SOLVE.format(name=name, suffix=suffix),
    }
    files = {path: TaskFile(_encode(text), path.endswith(".sh")) for path, text in texts.items()}
    return HarborTask(slug(task.id), toml, files)


def export_harbor_task(task: HarborTask | Task, folder: Path) -> HarborTask:
    """Write a task to a folder of its own in `folder`, and return it as it was written.

    Raises:
        DataError: the folder is there already.
    """
    exported = harbor_task(task) if isinstance(task, Task) else task
    place = folder / exported.id
    if place.exists():
        raise DataError(f"{place}: is there already; nothing is written over it, so remove it or choose another folder")
    write_files(exported.files, place)
    return exported


def slug(name: str) -> str:
    """Return `name` as the name of a folder; one that had to be changed keeps a digest of what it was."""
    plain = _UNNAMED.sub("-", name).strip("-._")[:180]
    return name if plain == name and TASK_ID.fullmatch(name) else f"{plain or 'task'}-{sha256_text(name)[:8]}"


def _metadata(task: Task) -> dict[str, Any]:
    metadata = task.model_dump(mode="json", exclude={"before", "target", "gold_action", "gold_next"})
    golds = [action for action in (task.gold_action, *task.gold_next) if action is not None]
    metadata["gold"] = [json.dumps(ACTION.dump_python(action, mode="json"), ensure_ascii=False) for action in golds]
    return metadata


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise DataError(
            "a text of the task holds half of a surrogate pair, which no file can; leave the task out"
        ) from None


def write_trial(view: Mapping[str, Any], folder: Path) -> Path:
    """Write a rollout, as `/api/harbor/rollouts/<id>` shows it, to a folder of its own in `folder`; return that.

    Raises:
        DataError: it has not ended, or the folder is there already.
    """
    rollout_id = str(view["rollout_id"])
    if view.get("status") not in ("completed", "failed", "cancelled"):
        raise DataError(f"rollout {rollout_id}: is {view.get('status')}; a trial is written of one that has ended")
    place = folder / rollout_id
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        raise DataError(f"{place}: is there already; an earlier trial is not written over") from None
    for name in ("agent", "verifier", "artifacts"):
        (place / name).mkdir()
    lock, response = view.get("lock") or {}, view.get("response") or {}
    _write_json(place / "config.json", _trial_config(view, folder))
    _write_json(place / "lock.json", lock)
    logs = [str(attempt.get("log_tail") or "") for attempt in view.get("attempts") or []]
    text = "".join(f"--- attempt {number} ---\n{log}\n" for number, log in enumerate(logs, 1))
    (place / "trial.log").write_text(text, "utf-8")
    # the containers of agent and verifier print into one log
    (place / "verifier" / "test-stdout.txt").write_text(logs[-1] if logs else "", "utf-8")
    rewards = None
    if view.get("reward") is not None and view.get("reward_valid"):
        info = response.get("reward_info") or {}
        rewards = {**(info.get("outcome_objectives") or {}), "reward": view["reward"]}
        _write_json(place / "verifier" / "reward.json", rewards)
    trace = response.get("trace")
    if isinstance(trace, dict) and str(trace.get("schema_version", "")).startswith("ATIF-"):
        _write_json(place / "agent" / "trajectory.json", trace)
    if view.get("failure_cause"):
        (place / "exception.txt").write_text(f"{view['failure_cause']}: {view.get('error') or ''}\n", "utf-8")
    # last: a folder without it is one that was not finished
    _write_json(place / "result.json", _trial_result(view, folder, rewards))
    return place


def _trial_result(view: Mapping[str, Any], folder: Path, rewards: dict[str, float] | None) -> dict[str, Any]:
    lock, attempts = view.get("lock") or {}, view.get("attempts") or [{}]
    config, cause = _trial_config(view, folder), view.get("failure_cause")
    model = (lock.get("agent") or {}).get("model")
    exception = {
        "exception_type": _EXCEPTIONS.get(str(cause), "UnknownError"),
        "exception_message": str(view.get("error") or cause),
        "exception_traceback": "",
        "occurred_at": view.get("finished_at"),
    }
    usage = {"n_input_tokens": None, "n_cache_tokens": None, "n_output_tokens": None, "cost_usd": view.get("cost_usd")}
    return {
        "id": str(uuid.uuid5(_NAMESPACE, str(view["rollout_id"]))),
        "task_name": view["task_id"],
        "trial_name": view["rollout_id"],
        "trial_uri": str(folder / str(view["rollout_id"])),
        "task_id": {"path": view["task_id"]},
        "source": view.get("deployment_id"),
        "task_checksum": lock.get("context_digest") or _NO_DIGEST,
        "config": config,
        "agent_info": {
            "name": config["agent"]["name"],
            "version": "unknown",
            "model_info": {"name": model} if model else None,
        },
        "agent_result": {**usage, "metadata": {"total_tokens": view.get("tokens"), "seed": view.get("seed")}},
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": exception if cause else None,
        "started_at": view.get("started_at"),
        "finished_at": view.get("finished_at"),
        "agent_execution": {name: attempts[-1].get(name) for name in ("started_at", "finished_at")},
    }


def _trial_config(view: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    agent = (view.get("lock") or {}).get("agent") or {}
    name = agent.get("agent") or agent.get("agent_type")
    return {
        "task": {"path": view["task_id"]},
        "trial_name": view["rollout_id"],
        "trials_dir": str(folder),
        "agent": {"name": str(name), "model_name": agent.get("model")} if name else {"name": "unknown"},
    }


def _write_json(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, indent=2, default=str, allow_nan=False) + "\n", "utf-8")
