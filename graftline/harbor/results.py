"""What an entrypoint and a verifier return, read with care: whatever is not a finite number is no reward.

An entrypoint returns one object of JSON, as the unified contract has it (`reward_info`, `success_status`) or as the first
runners wrote it (`metrics.reward_mean`, `success`, `error`). One that says it failed has no reward, whatever number it
puts beside that: the first runners wrote 0.0 there.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graftline.harbor.contract import OF_THE_AGENT, FailureCause, SuccessStatus, reward_of

MAX_RESULT_BYTES = 4 << 20
MAX_REWARD_BYTES = 1 << 20
_MAX_ERROR = 2000
_HALF_PAIR = rb"\ud"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What was read."""

    success_status: SuccessStatus
    reward: float | None = None
    failure_cause: FailureCause | None = None
    error: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    cost_usd: float | None = None
    tokens: int | None = None


def read_result(raw: bytes | None) -> RunOutcome:
    """Return what the result of an entrypoint says; None is one that left none."""
    found = _object(raw, MAX_RESULT_BYTES)
    if isinstance(found, str):
        return _unread(FailureCause.UNCLASSIFIED, f"the entrypoint's result {found}")
    said = found.get("reward_info")
    if isinstance(said, dict):
        return _unified(found, said)
    return _of_first_runners(found)


def read_reward(json_file: bytes | None, text_file: bytes | None, key: str = "reward") -> RunOutcome:
    """Return what the files of a verifier say: `reward.json`, else `reward.txt`.

    Args:
        json_file: An object of finite numbers.
        text_file: One number.
        key: Which number of the object is the reward; of a single one it may have any name.
    """
    if json_file is None:
        return _of_text(text_file)
    found = _object(json_file, MAX_REWARD_BYTES)
    if isinstance(found, str):
        return _unread(FailureCause.VERIFIER_FAILED, f"reward.json {found}")
    numbers = {name: reward_of(float(value) if isinstance(value, bool) else value) for name, value in found.items()}
    if bad := sorted(name for name, number in numbers.items() if number is None):
        return _unread(FailureCause.VERIFIER_FAILED, f"reward.json: {bad[0]!r} is not a finite number")
    if not numbers:
        return _unread(FailureCause.VERIFIER_FAILED, "reward.json is empty")
    if key not in numbers and len(numbers) > 1:
        names = ", ".join(sorted(numbers))
        return _unread(
            FailureCause.VERIFIER_FAILED, f"reward.json has no {key!r}; it has {names}: name one as reward_key"
        )
    reward = numbers[key] if key in numbers else next(iter(numbers.values()))
    return RunOutcome(SuccessStatus.SUCCESS, reward, details={"objectives": numbers}, result=found)


def _of_text(raw: bytes | None) -> RunOutcome:
    if raw is None:
        return _unread(FailureCause.VERIFIER_FAILED, "the verifier left neither reward.json nor reward.txt")
    try:
        reward = reward_of(float(raw.decode("ascii").strip())) if len(raw) <= MAX_REWARD_BYTES else None
    except ValueError:
        reward = None
    if reward is None:
        return _unread(FailureCause.VERIFIER_FAILED, "reward.txt is not one finite number")
    return RunOutcome(SuccessStatus.SUCCESS, reward)


def _unified(found: dict[str, Any], said: dict[str, Any]) -> RunOutcome:
    try:
        status = SuccessStatus(found.get("success_status", SuccessStatus.SUCCESS))
        cause = FailureCause(found["failure_cause"]) if found.get("failure_cause") is not None else None
    except ValueError as error:
        return _unread(FailureCause.UNCLASSIFIED, f"the entrypoint's result: {error}")
    if cause is None and status is not SuccessStatus.SUCCESS:
        cause = _CAUSES[status]
    return _outcome(found, status, said.get("outcome_reward"), cause, found.get("status_detail"), said.get("details"))


def _of_first_runners(found: dict[str, Any]) -> RunOutcome:
    measured = found.get("metrics")
    metrics = measured if isinstance(measured, dict) else {}
    failed = found.get("success") is False
    status = SuccessStatus.FAILURE if failed else SuccessStatus.SUCCESS
    cause = FailureCause.UNCLASSIFIED if failed else None
    return _outcome(found, status, metrics.get("reward_mean"), cause, found.get("error"), metrics.get("details"))


_CAUSES = {
    SuccessStatus.TIMEOUT: FailureCause.AGENT_EXHAUSTED_BUDGET,
    SuccessStatus.NETWORK_ERROR: FailureCause.MODEL_PROVIDER_FAILED,
    SuccessStatus.APPLY_FAILED: FailureCause.SANDBOX_FAILED,
    SuccessStatus.RUNTIME_ERROR: FailureCause.UNCLASSIFIED,
    SuccessStatus.FAILURE: FailureCause.UNCLASSIFIED,
}


def _outcome(
    found: dict[str, Any], status: SuccessStatus, value: Any, cause: FailureCause | None, error: Any, details: Any
) -> RunOutcome:
    reward = reward_of(value)
    text = error[:_MAX_ERROR] if isinstance(error, str) else ""
    kept = dict(details) if isinstance(details, dict) else {}
    if reward is None and cause is None:
        cause, status = FailureCause.VERIFIER_FAILED, SuccessStatus.RUNTIME_ERROR
        text = text or "the entrypoint's result has no reward that is a finite number"
    if reward is not None and cause is not None and cause not in OF_THE_AGENT:
        # kept for people; it says nothing of the agent
        kept["reported_reward"], reward = reward, None
    used = found.get("execution_metadata")
    usage = used if isinstance(used, dict) else {}
    tokens = usage.get("total_tokens")
    return RunOutcome(
        status,
        reward,
        cause,
        text,
        kept,
        found,
        reward_of(usage.get("cost_usd")),
        tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < 2**53 else None,
    )


def _object(raw: bytes | None, most: int) -> dict[str, Any] | str:
    """Return an object of JSON, or why there is none."""
    if raw is None:
        return "is not there"
    if len(raw) > most:
        return f"has {len(raw)} bytes; at most {most} are read"
    try:
        found = json.loads(raw, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return "is not JSON"
    if isinstance(found, dict) and _HALF_PAIR in raw.lower():
        # no database and no answer can hold half of a surrogate pair
        found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"))
    return found if isinstance(found, dict) else "is not an object of JSON"


def _unread(cause: FailureCause, error: str) -> RunOutcome:
    return RunOutcome(SuccessStatus.RUNTIME_ERROR, None, cause, error)
