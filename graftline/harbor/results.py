"""What an entrypoint and a verifier return, read with care: whatever is not a finite number is no reward.

An entrypoint returns one object of JSON, as the unified contract has it (`reward_info`, `success_status`) or as the first
runners wrote it (`metrics.reward_mean`, `success`, `error`). One that says it failed has no reward, whatever number it
puts beside that: the first runners wrote 0.0 there.
"""

import json
import re
from typing import Any

from graftline.harbor.contract import OF_THE_AGENT, FailureCause, SuccessStatus, reward_of
from graftline.harbor.executors.base import Execution

MAX_RESULT_BYTES = 4 << 20
MAX_REWARD_BYTES = 1 << 20
_MAX_ERROR = 2000
_HALF_PAIR = rb"\ud"
_CAUSES = {
    SuccessStatus.TIMEOUT: FailureCause.AGENT_EXHAUSTED_BUDGET,
    SuccessStatus.NETWORK_ERROR: FailureCause.MODEL_PROVIDER_FAILED,
    SuccessStatus.APPLY_FAILED: FailureCause.SANDBOX_FAILED,
    SuccessStatus.RUNTIME_ERROR: FailureCause.UNCLASSIFIED,
    SuccessStatus.FAILURE: FailureCause.UNCLASSIFIED,
}
_FRAME = re.compile(r"\s*File \".*\", line \d+|\s*at .+:\d+")


def failure(cause: FailureCause, error: str) -> Execution:
    """Return what has no reward for `cause`."""
    return Execution(SuccessStatus.RUNTIME_ERROR, None, cause, error)


def read_result(raw: bytes | None) -> Execution:
    """Return what the result of an entrypoint says; None is one that left none."""
    result = _read_object(raw, MAX_RESULT_BYTES)
    if isinstance(result, str):
        return failure(FailureCause.UNCLASSIFIED, f"the entrypoint's result {result}")
    info = result.get("reward_info")
    if not isinstance(info, dict):
        metrics = _object(result.get("metrics"))
        has_failed = result.get("success") is False
        status = SuccessStatus.FAILURE if has_failed else SuccessStatus.SUCCESS
        cause = FailureCause.UNCLASSIFIED if has_failed else None
        return _outcome(result, status, metrics.get("reward_mean"), cause, result.get("error"), metrics.get("details"))
    try:
        status = SuccessStatus(result.get("success_status", SuccessStatus.SUCCESS))
        cause = FailureCause(result["failure_cause"]) if result.get("failure_cause") is not None else None
    except ValueError as error:
        return failure(FailureCause.UNCLASSIFIED, f"the entrypoint's result: {error}")
    cause = cause or _CAUSES.get(status)
    return _outcome(result, status, info.get("outcome_reward"), cause, result.get("status_detail"), info.get("details"))


def read_reward(json_file: bytes | None, text_file: bytes | None, key: str = "reward") -> Execution:
    """Return what the files of a verifier say: `reward.json`, an object of finite numbers, else `reward.txt`, one number.

    `key` names the number of the object that is the reward; a single one may have any name.
    """
    if json_file is None:
        return _read_text(text_file)
    result = _read_object(json_file, MAX_REWARD_BYTES)
    if isinstance(result, str):
        return failure(FailureCause.VERIFIER_FAILED, f"reward.json {result}")
    numbers = {name: reward_of(float(value) if isinstance(value, bool) else value) for name, value in result.items()}
    if bad := sorted(name for name, number in numbers.items() if number is None):
        return failure(FailureCause.VERIFIER_FAILED, f"reward.json: {bad[0]!r} is not a finite number")
    if not numbers:
        return failure(FailureCause.VERIFIER_FAILED, "reward.json is empty")
    if key not in numbers and len(numbers) > 1:
        error = f"reward.json has no {key!r}; it has {', '.join(sorted(numbers))}: name one as reward_key"
        return failure(FailureCause.VERIFIER_FAILED, error)
    reward = numbers[key] if key in numbers else next(iter(numbers.values()))
    return Execution(SuccessStatus.SUCCESS, reward, details={"objectives": numbers}, result=result)


def _read_text(raw: bytes | None) -> Execution:
    if raw is None:
        return failure(FailureCause.VERIFIER_FAILED, "the verifier left neither reward.json nor reward.txt")
    try:
        reward = reward_of(float(raw.decode("ascii").strip())) if len(raw) <= MAX_REWARD_BYTES else None
    except ValueError:
        reward = None
    if reward is None:
        return failure(FailureCause.VERIFIER_FAILED, "reward.txt is not one finite number")
    return Execution(SuccessStatus.SUCCESS, reward)


def _outcome(
    result: dict[str, Any], status: SuccessStatus, value: Any, cause: FailureCause | None, error: Any, details: Any
) -> Execution:
    reward, details = reward_of(value), dict(_object(details))
    text = error[:_MAX_ERROR] if isinstance(error, str) else ""
    if reward is None and cause is None:
        cause, status = FailureCause.VERIFIER_FAILED, SuccessStatus.RUNTIME_ERROR
        text = text or "the entrypoint's result has no reward that is a finite number"
    if reward is not None and cause is not None and cause not in OF_THE_AGENT:
        # kept for people; it says nothing of the agent
        details["reported_reward"], reward = reward, None
    usage = _object(result.get("execution_metadata"))
    tokens = usage.get("total_tokens")
    is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < 2**53
    cost_usd = reward_of(usage.get("cost_usd"))
    tokens = tokens if is_count else None
    return Execution(status, reward, cause, text, details, result, cost_usd=cost_usd, tokens=tokens)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_object(raw: bytes | None, limit: int) -> dict[str, Any] | str:
    """Return an object of JSON, or why there is none."""
    if raw is None:
        return "is not there"
    if len(raw) > limit:
        return f"has {len(raw)} bytes; at most {limit} are read"
    try:
        value = json.loads(raw, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        return "is not JSON"
    if isinstance(value, dict) and _HALF_PAIR in raw.lower():
        # no database and no answer can hold half of a surrogate pair
        value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value if isinstance(value, dict) else "is not an object of JSON"


def find_message(text: str) -> str:
    """Return the line that says what went wrong: of a traceback the one below its last frame, else the first.

    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\nValueError: no' -> 'ValueError: no'
    """
    lines = [line for line in text.splitlines() if line.strip()]
    frames = [number for number, line in enumerate(lines) if _FRAME.match(line)]
    if not frames:
        return lines[0].strip() if lines else ""
    below = lines[frames[-1] + 1 :]
    return next((line for line in below if not line[0].isspace()), lines[-1]).strip()
