"""The way of one rollout through containers: the agent's, which is gone before its verifier's is made.

Executors give the containers; what is put in, what is read, whose failure an end is, and that no secret comes
back is decided here, for all of them alike. A container that breaks while it runs is a result.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

from graftline.core.errors import DataError, HarborError
from graftline.core.secrets import Secrets
from graftline.harbor.contract import OF_THE_AGENT, FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.base import INPUT_PATH, LOG_BYTES, OUTPUT_PATH, Execution, RolloutSpec
from graftline.harbor.results import (
    MAX_RESULT_BYTES,
    MAX_REWARD_BYTES,
    failure,
    read_result,
    read_reward,
)

VERIFIER_FOLDER = "/logs/verifier"
KEPT_LOG_BYTES = LOG_BYTES + (16 << 10)
"""What a `ContainerExit` keeps of what was printed: more than is shown, for secrets are cut out before the rest is."""
_ENGINE_CODES = (125, 126, 127)
"""Codes of an end by which container engines say that nothing could be started."""
_NOTHING_GRADED = "nothing can be graded: "
_NO_SPACE = b"No space left on device"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container, as it is asked for."""

    rollout: RolloutSpec
    role: Literal["agent", "verifier"]
    snapshot_id: str
    words: tuple[str, ...]
    timeout_s: float
    env_vars: Mapping[str, str] = field(repr=False)
    stdin: bytes | None = None
    """None where the entrypoint reads a file."""
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    """Files by absolute path."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Files by path relative to the working folder."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Folders of the snapshot whose content the container starts with; none where that is all of it."""
        return self.rollout.agent_files if self.role == "agent" else self.rollout.verifier_files


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How what ran in a container ended."""

    how: Literal["exited", "timeout", "cancelled"]
    exit_code: int | None = None
    is_out_of_memory: bool = False
    seconds: float = 0.0
    stdout: bytes = b""
    """Of an entrypoint that answers there; at most one byte more than is read of a result."""
    log: bytes = b""
    """The end of what was printed."""
    files_mb: float = 0.0
    """What its files took, where that is counted as memory."""


class Container(Protocol):
    """A container that everything is in and that nothing runs in yet.

    Whatever of it fails raises HarborError, which says why the container is of no use any more.
    """

    @property
    def limits_enforced(self) -> Mapping[str, Any]:
        """What it holds its processes to, as achieved."""

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        """Run the words of the spec to their end, or end them; nothing of them runs afterwards."""

    def read(self, path: str, limit: int) -> bytes | None:
        """Return a regular file, one byte more than `limit` of a larger one; None where there is none."""

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        """Return the regular files of the working folder that are, or are below, one of `paths`.

        Raises:
            DataError: they are more than may travel.
        """


OpenContainer = Callable[[ContainerSpec], AbstractContextManager[Container]]
"""Makes a container, puts everything in, and removes it in the end."""


def run_in_containers(
    rollout: RolloutSpec, open_container: OpenContainer, is_cancelled: Callable[[], bool]
) -> Execution:
    """Run one rollout to its end. Raises HarborError where the agent's container could not be made; nothing was run."""
    secrets = Secrets([], rollout.secrets.values())
    if is_cancelled():
        return _cancellation("cancelled before it began")
    request = json.dumps(dict(rollout.request)).encode()
    is_file = rollout.entrypoint_mode == "file"
    spec = ContainerSpec(
        rollout,
        "agent",
        rollout.snapshot_id,
        _split_words(rollout.entrypoint),
        rollout.limits.timeout_s,
        {**rollout.env_vars, **rollout.overriding_vars, **rollout.secrets},
        None if is_file else request,
        {INPUT_PATH: request} if is_file else {},
        {path: text.encode() for path, text in rollout.files.items()},
    )
    try:
        with open_container(spec) as container:
            agent = _run(container, is_cancelled, lambda end: _read_agent(rollout, container, end))
    except HarborError as error:
        fault = HarborError(secrets.redact(str(error)))
        fault.status = error.status
        raise fault from None
    verifier = None
    if agent.artifacts is not None and is_cancelled():
        verifier = _Part(_cancellation("cancelled before grading"), ContainerExit("cancelled"))
    elif agent.artifacts is not None:
        verifier = _verify(rollout, agent.artifacts, open_container, is_cancelled)
    return _execution(agent, verifier, rollout, secrets)


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of one container."""

    outcome: Execution
    end: ContainerExit
    limits_enforced: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] | None = None
    """What travels on; None where nothing is to be graded."""


def _split_words(entrypoint: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(entrypoint))
    except ValueError as error:
        raise HarborError(f"entrypoint {entrypoint!r}: {error}; expected words as a shell reads them") from None
    if not words:
        raise HarborError(f"entrypoint {entrypoint!r}: is empty; expected a command")
    return words


def _run(container: Container, is_cancelled: Callable[[], bool], read: Callable[[ContainerExit], _Part]) -> _Part:
    """Return what came of a container; one that breaks is the machine's failure."""
    end = ContainerExit("exited")
    try:
        end = container.run(is_cancelled)
        return read(end)
    except HarborError as error:
        return _Part(failure(FailureCause.SANDBOX_FAILED, str(error)), end, container.limits_enforced)


def _read_agent(rollout: RolloutSpec, container: Container, end: ContainerExit) -> _Part:
    outcome = _early_end(end, rollout.limits)
    if outcome is None:
        outcome = _read_own_result(rollout, container, end)
    elif outcome.success_status is SuccessStatus.TIMEOUT:
        # out of time, with what it had said by then
        early = _read_own_result(rollout, container, end)
        is_reward = early.failure_cause is None or early.failure_cause in OF_THE_AGENT
        outcome = replace(
            early,
            success_status=outcome.success_status,
            reward=early.reward if is_reward else None,
            failure_cause=outcome.failure_cause,
            error=outcome.error,
        )
    artifacts = None
    if rollout.verifier is not None and (outcome.failure_cause is None or outcome.failure_cause in OF_THE_AGENT):
        try:
            artifacts = container.collect(rollout.verifier.artifacts)
        except DataError as error:
            outcome = failure(FailureCause.VERIFIER_FAILED, str(error))
    return _Part(outcome, end, container.limits_enforced, artifacts)


def _early_end(end: ContainerExit, limits: HarborLimits) -> Execution | None:
    """Return what an end means that the entrypoint did not choose; None where it did."""
    if end.how == "cancelled":
        return _cancellation("cancelled")
    if end.is_out_of_memory:
        error = f"the box ran out of memory; raise memory_mb, which is {limits.memory_mb}"
        if end.files_mb > limits.memory_mb / 2:
            error = (
                f"the disk of the box is full: its files take {end.files_mb:.0f} MB, and files are in memory here; raise"
                f" memory_mb, which is {limits.memory_mb} (disk_mb is {limits.disk_mb})"
            )
        return failure(FailureCause.SANDBOX_FAILED, error)
    if end.how == "timeout":
        error = f"ended after {end.seconds:.0f} s, which is its timeout_s"
        return Execution(SuccessStatus.TIMEOUT, failure_cause=FailureCause.AGENT_EXHAUSTED_BUDGET, error=error)
    return None


def _cancellation(error: str) -> Execution:
    return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error=error)


def _full_disk(end: ContainerExit, limits: HarborLimits) -> Execution | None:
    """Return what an end without a result means whose last words are of a full disk."""
    if not end.exit_code or _NO_SPACE not in end.log[-LOG_BYTES:]:
        return None
    error = f"the disk of the box is full; raise disk_mb, which is {limits.disk_mb}"
    return failure(FailureCause.SANDBOX_FAILED, error)


def _read_own_result(rollout: RolloutSpec, container: Container, end: ContainerExit) -> Execution:
    is_stdio = rollout.entrypoint_mode == "stdio"
    raw = find_object(end.stdout) if is_stdio else container.read(OUTPUT_PATH, MAX_RESULT_BYTES)
    is_silent = raw is None or (is_stdio and not raw.startswith(b"{"))
    if is_silent and rollout.verifier is not None and end.exit_code == 0:
        # a command that is graded by a verifier need not know our contract
        return Execution(SuccessStatus.SUCCESS)
    outcome = read_result(raw)
    if raw is None and end.exit_code:
        cause = FailureCause.SANDBOX_FAILED if end.exit_code in _ENGINE_CODES else FailureCause.UNCLASSIFIED
        error = f"the entrypoint ended with code {end.exit_code} and left no result; see the log"
        return _full_disk(end, rollout.limits) or failure(cause, error)
    names_cause = outcome.result.get("failure_cause") is not None
    if rollout.verifier is not None and outcome.failure_cause is FailureCause.VERIFIER_FAILED and not names_cause:
        return Execution(SuccessStatus.SUCCESS, details=outcome.details, result=outcome.result)
    return outcome


def find_object(stdout: bytes) -> bytes | None:
    """Return what was printed, or its last line where that alone is an object of JSON."""
    text = stdout.strip()
    last = text.rpartition(b"\n")[2].strip()
    for candidate in (text, last):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(candidate), dict):
                return candidate
    return text or None


def _verify(
    rollout: RolloutSpec,
    artifacts: Mapping[str, bytes],
    open_container: OpenContainer,
    is_cancelled: Callable[[], bool],
) -> _Part:
    assert rollout.verifier is not None
    settings = rollout.verifier
    try:
        spec = ContainerSpec(
            rollout,
            "verifier",
            rollout.verifier_snapshot_id or rollout.snapshot_id,
            _split_words(settings.entrypoint),
            settings.timeout_s,
            dict(rollout.env_vars),
            files=artifacts,
        )
        with open_container(spec) as container:
            return _run(
                container, is_cancelled, lambda end: _read_verdict(rollout.limits, settings.reward_key, container, end)
            )
    except HarborError as error:
        return _Part(failure(FailureCause.SANDBOX_FAILED, f"the verifier's box: {error}"), ContainerExit("exited"))


def _read_verdict(limits: HarborLimits, reward_key: str, container: Container, end: ContainerExit) -> _Part:
    outcome = _early_end(end, limits)
    if end.how == "timeout":
        reason = outcome.error if outcome else "too slow"
        outcome = failure(FailureCause.VERIFIER_FAILED, f"the verifier was {reason}")
    if outcome is None:
        json_file = container.read(f"{VERIFIER_FOLDER}/reward.json", MAX_REWARD_BYTES)
        text_file = container.read(f"{VERIFIER_FOLDER}/reward.txt", MAX_REWARD_BYTES) if json_file is None else None
        outcome = read_reward(json_file, text_file, reward_key)
        if json_file is None and text_file is None and end.exit_code:
            # a verifier of ours that could not grade says why in its last line
            last = end.log.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
            error = f"{outcome.error}; it ended with code {end.exit_code}, see the log"
            error = last if last.startswith(_NOTHING_GRADED) else error
            outcome = _full_disk(end, limits) or failure(FailureCause.VERIFIER_FAILED, error)
    return _Part(outcome, end, container.limits_enforced)


def _execution(agent: _Part, verifier: _Part | None, rollout: RolloutSpec, secrets: Secrets) -> Execution:
    own, verdict = agent.outcome, verifier.outcome if verifier else None
    reward, status, cause, error, details = own.reward, own.success_status, own.failure_cause, own.error, own.details
    if rollout.verifier is not None:
        # what the agent says of itself is no reward where a verifier was to say it
        details = details if reward is None else {**details, "reported_reward": reward}
        reward = None
    if verdict is not None:
        reward, details = verdict.reward, {**details, **verdict.details}
        if verdict.failure_cause is not None:
            status, cause = verdict.success_status, verdict.failure_cause
            error = "; ".join(filter(None, (error, verdict.error)))
    logs = [_redact_log(part.end.log, rollout.secrets, secrets) for part in (agent, verifier) if part is not None]
    return replace(
        own,
        success_status=status,
        reward=reward,
        failure_cause=cause,
        error=secrets.redact(error),
        details=redact(dict(details), secrets),
        result=redact(dict(own.result), secrets),
        log="\n".join(filter(None, logs))[-LOG_BYTES:],
        agent_s=agent.end.seconds,
        verify_s=verifier.end.seconds if verifier else 0.0,
        limits_enforced=agent.limits_enforced,
    )


def _redact_log(log: bytes, values: Mapping[str, str], secrets: Secrets) -> str:
    if len(log) >= KEPT_LOG_BYTES:
        # the rest of a secret that was cut in two
        ends = [value.encode() for value in values.values()]
        log = log[max((n for end in ends for n in range(1, len(end)) if log.startswith(end[-n:])), default=0) :]
    return secrets.redact(log.decode("utf-8", "replace"))


def redact(value: T, secrets: Secrets) -> T:
    """Return a value of JSON with every secret in its texts and keys replaced."""
    if isinstance(value, str):
        return secrets.redact(value)  # type: ignore[return-value]  # a text for a text
    if isinstance(value, list):
        return [redact(item, secrets) for item in value]  # type: ignore[return-value]
    if isinstance(value, dict):
        return {redact(key, secrets): redact(item, secrets) for key, item in value.items()}  # type: ignore[return-value]
    return value
