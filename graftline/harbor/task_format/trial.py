"""A rollout as the folder of a Harbor trial, so that tools made for those show it.

    config.json lock.json result.json trial.log [exception.txt] agent/trajectory.json verifier/{reward.json test-stdout.txt}

`result.json` reads as Harbor's `TrialResult` does. A rollout without a reward that counts has no `reward.json`, and no
rewards in `result.json`, whatever was reported. Secrets were taken out of what comes here by whoever ran the box.
"""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graftline.core.errors import DataError

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
    attempts = view.get("attempts") or []
    last = attempts[-1] if attempts else {}
    _write(place / "config.json", _config(view, folder))
    _write(place / "lock.json", view.get("lock") or {})
    logs = [str(each.get("log_tail") or "") for each in attempts]
    headed = (f"--- attempt {number} ---\n{log}\n" for number, log in enumerate(logs, 1))
    (place / "trial.log").write_text("".join(headed), "utf-8")
    for name in ("agent", "verifier", "artifacts"):
        (place / name).mkdir()
    # the boxes of agent and verifier print into one log
    (place / "verifier" / "test-stdout.txt").write_text(logs[-1] if logs else "", "utf-8")
    rewards = _rewards(view)
    if rewards is not None:
        _write(place / "verifier" / "reward.json", rewards)
    trace = (view.get("response") or {}).get("trace")
    if isinstance(trace, dict) and str(trace.get("schema_version", "")).startswith("ATIF-"):
        _write(place / "agent" / "trajectory.json", trace)
    if view.get("failure_cause"):
        (place / "exception.txt").write_text(f"{view['failure_cause']}: {view.get('error') or ''}\n", "utf-8")
    # last: a folder without it is one that was not finished
    _write(place / "result.json", _result(view, folder, rewards, last))
    return place


def _result(
    view: Mapping[str, Any], folder: Path, rewards: dict[str, float] | None, last: Mapping[str, Any]
) -> dict[str, Any]:
    lock = view.get("lock") or {}
    agent = lock.get("agent") or {}
    model = agent.get("model")
    name = str(agent.get("agent") or agent.get("agent_type") or "unknown")
    cause = view.get("failure_cause")
    exception = {
        "exception_type": _EXCEPTIONS.get(str(cause), "UnknownError"),
        "exception_message": str(view.get("error") or cause),
        "exception_traceback": "",
        "occurred_at": view.get("finished_at"),
    }
    times = {"started_at": last.get("started_at"), "finished_at": last.get("finished_at")}
    return {
        "id": str(uuid.uuid5(_NAMESPACE, str(view["rollout_id"]))),
        "task_name": view["task_id"],
        "trial_name": view["rollout_id"],
        "trial_uri": str(folder / str(view["rollout_id"])),
        "task_id": {"path": view["task_id"]},
        "source": view.get("deployment_id"),
        "task_checksum": lock.get("context_digest") or _NO_DIGEST,
        "config": _config(view, folder),
        "agent_info": {"name": name, "version": "unknown", "model_info": {"name": model} if model else None},
        "agent_result": {
            "n_input_tokens": None,
            "n_cache_tokens": None,
            "n_output_tokens": None,
            "cost_usd": view.get("cost_usd"),
            "metadata": {"total_tokens": view.get("tokens"), "seed": view.get("seed")},
        },
        "verifier_result": None if rewards is None else {"rewards": rewards},
        "exception_info": exception if cause else None,
        "started_at": view.get("started_at"),
        "finished_at": view.get("finished_at"),
        "agent_execution": times,
    }


def _config(view: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    agent = (view.get("lock") or {}).get("agent") or {}
    name = agent.get("agent") or agent.get("agent_type")
    return {
        "task": {"path": view["task_id"]},
        "trial_name": view["rollout_id"],
        "trials_dir": str(folder),
        "agent": {"name": name, "model_name": agent.get("model")} if name else {"name": "unknown"},
    }


def _rewards(view: Mapping[str, Any]) -> dict[str, float] | None:
    """Return the numbers of the verifier; None where the reward does not count."""
    if view.get("reward") is None or not view.get("reward_valid"):
        return None
    info = (view.get("response") or {}).get("reward_info") or {}
    return {**(info.get("outcome_objectives") or {}), "reward": view["reward"]}


def _write(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, indent=2, default=str, allow_nan=False) + "\n", "utf-8")
