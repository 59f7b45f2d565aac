"""The way of one rollout through containers: the agent's, which is gone before its verifier's is made.

`docker` and `daytona` give the containers; what is put in, what is read, whose failure an end is, and that no secret comes
back is decided here, for both of them alike. A container that breaks while it runs is a result.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

from graftline.core.errors import DataError, HarborError
from graftline.core.secrets import Secrets
from graftline.harbor.contract import OF_THE_AGENT, FailureCause, SuccessStatus
from graftline.harbor.executors.base import INPUT_PATH, LOG_BYTES, OUTPUT_PATH, Execution, RolloutSpec
from graftline.harbor.limits import HarborLimits
from graftline.harbor.results import (
    MAX_RESULT_BYTES,
    MAX_REWARD_BYTES,
    RunOutcome,
    read_result,
    read_reward,
)

VERIFIER_FOLDER = "/logs/verifier"
KEPT_LOG_BYTES = LOG_BYTES + (16 << 10)
"""What an `ContainerExit` keeps of what was printed: more than is shown, for secrets are cut out before the rest is."""
_OF_ENGINES = (125, 126, 127)
"""Codes of an end by which container engines say that nothing could be started."""

NOTHING_GRADED = "nothing can be graded: "
_NO_SPACE = b"No space left on device"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container, as it is asked for."""

    box: RolloutSpec
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
        """Folders of the snapshot whose content the box starts with; none where that is all of it."""
        return self.box.agent_files if self.role == "agent" else self.box.verifier_files


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
        """Run the words of the order to their end, or end them; nothing of them runs afterwards."""

    def read(self, path: str, most: int) -> bytes | None:
        """Return a regular file, one byte more than `most` of a larger one; None where there is none."""

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        """Return the regular files of the working folder that are, or are below, one of `paths`.

        Raises:
            DataError: they are more than may travel.
        """


OpenContainer = Callable[[ContainerSpec], AbstractContextManager[Container]]
"""Makes a container, puts everything in, and removes it in the end."""


def run_in_containers(box: RolloutSpec, open_container: OpenContainer, is_cancelled: Callable[[], bool]) -> Execution:
    """Run one rollout to its end.

    Raises:
        HarborError: the agent's container could not be made; nothing was run.
    """
    secrets = Secrets([], box.secrets.values())
    if is_cancelled():
        return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled before it began")
    try:
        with open_container(_agent_order(box)) as container:
            agent = _watched(container, is_cancelled, lambda ended: _agent_part(box, container, ended))
    except HarborError as error:
        fault = HarborError(secrets.redact(str(error)))
        fault.status = error.status
        raise fault from None
    if agent.artifacts is None:
        return _execution(agent, None, box, secrets)
    if is_cancelled():
        cancelled = RunOutcome(
            SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled before grading"
        )
        return _execution(agent, _Part(cancelled, ContainerExit("cancelled")), box, secrets)
    return _execution(agent, _graded(box, agent.artifacts, open_container, is_cancelled), box, secrets)


@dataclass(frozen=True, slots=True)
class _Part:
    """What came of one container."""

    outcome: RunOutcome
    ended: ContainerExit
    limits_enforced: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, bytes] | None = None
    """What travels on; None where nothing is to be graded."""


def _agent_order(box: RolloutSpec) -> ContainerSpec:
    request = json.dumps(dict(box.request)).encode()
    is_file = box.entrypoint_mode == "file"
    return ContainerSpec(
        box,
        "agent",
        box.snapshot_id,
        _words(box.entrypoint),
        box.limits.timeout_s,
        {**box.env_vars, **box.overriding_vars, **box.secrets},
        None if is_file else request,
        {INPUT_PATH: request} if is_file else {},
        {path: text.encode() for path, text in box.files.items()},
    )


def _words(entrypoint: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(entrypoint))
    except ValueError as error:
        raise HarborError(f"entrypoint {entrypoint!r}: {error}; expected words as a shell reads them") from None
    if not words:
        raise HarborError(f"entrypoint {entrypoint!r}: is empty; expected a command")
    return words


def _watched(container: Container, is_cancelled: Callable[[], bool], read: Callable[[ContainerExit], _Part]) -> _Part:
    """Return what came of a container; one that breaks is the machine's failure."""
    ended = ContainerExit("exited")
    try:
        ended = container.run(is_cancelled)
        return read(ended)
    except HarborError as error:
        return _Part(_failed(FailureCause.SANDBOX_FAILED, str(error)), ended, container.limits_enforced)


def _agent_part(box: RolloutSpec, container: Container, ended: ContainerExit) -> _Part:
    outcome = _early_end(ended, box.limits)
    if outcome is None or outcome.success_status is SuccessStatus.TIMEOUT:
        said = _said(box, container, ended)
        outcome = said if outcome is None else _out_of_time(outcome, said)
    artifacts = None
    if box.verifier is not None and (outcome.failure_cause is None or outcome.failure_cause in OF_THE_AGENT):
        try:
            artifacts = container.collect(box.verifier.artifacts)
        except DataError as error:
            outcome = _failed(FailureCause.VERIFIER_FAILED, str(error))
    return _Part(outcome, ended, container.limits_enforced, artifacts)


def _early_end(ended: ContainerExit, limits: HarborLimits) -> RunOutcome | None:
    """Return what an end means that the entrypoint did not choose; None where it did."""
    if ended.how == "cancelled":
        return RunOutcome(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled")
    if ended.is_out_of_memory and ended.files_mb > limits.memory_mb / 2:
        error = (
            f"the disk of the box is full: its files take {ended.files_mb:.0f} MB, and files are in memory here; raise"
            f" memory_mb, which is {limits.memory_mb} (disk_mb is {limits.disk_mb})"
        )
        return _failed(FailureCause.SANDBOX_FAILED, error)
    if ended.is_out_of_memory:
        error = f"the box ran out of memory; raise memory_mb, which is {limits.memory_mb}"
        return _failed(FailureCause.SANDBOX_FAILED, error)
    if ended.how == "timeout":
        error = f"ended after {ended.seconds:.0f} s, which is its timeout_s"
        return RunOutcome(SuccessStatus.TIMEOUT, failure_cause=FailureCause.AGENT_EXHAUSTED_BUDGET, error=error)
    return None


def _full_disk(ended: ContainerExit, limits: HarborLimits) -> RunOutcome | None:
    """Return what an end without a result means whose last words are of a full disk."""
    if not ended.exit_code or _NO_SPACE not in ended.log[-LOG_BYTES:]:
        return None
    error = f"the disk of the box is full; raise disk_mb, which is {limits.disk_mb}"
    return _failed(FailureCause.SANDBOX_FAILED, error)


def _said(box: RolloutSpec, container: Container, ended: ContainerExit) -> RunOutcome:
    is_stdio = box.entrypoint_mode == "stdio"
    raw = _object_in(ended.stdout) if is_stdio else container.read(OUTPUT_PATH, MAX_RESULT_BYTES)
    is_silent = raw is None or (is_stdio and not raw.startswith(b"{"))
    if is_silent and box.verifier is not None and ended.exit_code == 0:
        # a command that is graded by a verifier need not know our contract
        return RunOutcome(SuccessStatus.SUCCESS)
    outcome = read_result(raw)
    if raw is None and (full := _full_disk(ended, box.limits)):
        return full
    if raw is None and ended.exit_code:
        cause = FailureCause.SANDBOX_FAILED if ended.exit_code in _OF_ENGINES else FailureCause.UNCLASSIFIED
        return _failed(cause, f"the entrypoint ended with code {ended.exit_code} and left no result; see the log")
    is_said = outcome.result.get("failure_cause") is not None
    if box.verifier is not None and outcome.failure_cause is FailureCause.VERIFIER_FAILED and not is_said:
        return RunOutcome(SuccessStatus.SUCCESS, details=outcome.details, result=outcome.result)
    return outcome


def _object_in(stdout: bytes) -> bytes | None:
    """Return what was printed, or its last line where that alone is an object of JSON."""
    text = stdout.strip()
    last = text.rpartition(b"\n")[2].strip()
    for candidate in (text, last):
        with suppress(ValueError, RecursionError):
            if isinstance(json.loads(candidate), dict):
                return candidate
    return text or None


def _out_of_time(end: RunOutcome, said: RunOutcome) -> RunOutcome:
    """Return the end of an entrypoint that was out of time, with what it had said by then."""
    reward = said.reward if said.failure_cause is None or said.failure_cause in OF_THE_AGENT else None
    return RunOutcome(
        end.success_status,
        reward,
        end.failure_cause,
        end.error,
        said.details,
        said.result,
        said.cost_usd,
        said.tokens,
    )


def _graded(
    box: RolloutSpec, artifacts: Mapping[str, bytes], open_container: OpenContainer, is_cancelled: Callable[[], bool]
) -> _Part:
    assert box.verifier is not None
    settings = box.verifier
    try:
        order = ContainerSpec(
            box,
            "verifier",
            box.verifier_snapshot_id or box.snapshot_id,
            _words(settings.entrypoint),
            settings.timeout_s,
            dict(box.env_vars),
            files=artifacts,
        )
        with open_container(order) as container:
            return _watched(container, is_cancelled, lambda ended: _verifier_part(box, container, ended))
    except HarborError as error:
        return _Part(_failed(FailureCause.SANDBOX_FAILED, f"the verifier's box: {error}"), ContainerExit("exited"))


def _verifier_part(box: RolloutSpec, container: Container, ended: ContainerExit) -> _Part:
    assert box.verifier is not None
    outcome = _early_end(ended, box.limits)
    if ended.how == "timeout":
        outcome = _failed(FailureCause.VERIFIER_FAILED, f"the verifier was {outcome.error if outcome else 'too slow'}")
    if outcome is None:
        json_file = container.read(f"{VERIFIER_FOLDER}/reward.json", MAX_REWARD_BYTES)
        text_file = container.read(f"{VERIFIER_FOLDER}/reward.txt", MAX_REWARD_BYTES) if json_file is None else None
        outcome = read_reward(json_file, text_file, box.verifier.reward_key)
        if json_file is None and text_file is None and ended.exit_code:
            said = _reason_in(ended.log) or f"{outcome.error}; it ended with code {ended.exit_code}, see the log"
            outcome = _full_disk(ended, box.limits) or _failed(FailureCause.VERIFIER_FAILED, said)
    return _Part(outcome, ended, container.limits_enforced)


def _reason_in(log: bytes) -> str:
    """Return the last line of a verifier of ours that could not grade."""
    last = log.rstrip().rpartition(b"\n")[2].decode("utf-8", "replace")
    return last if last.startswith(NOTHING_GRADED) else ""


def _failed(cause: FailureCause, error: str) -> RunOutcome:
    return RunOutcome(SuccessStatus.RUNTIME_ERROR, failure_cause=cause, error=error)


def _execution(agent: _Part, verifier: _Part | None, box: RolloutSpec, secrets: Secrets) -> Execution:
    said, graded = agent.outcome, verifier.outcome if verifier else None
    reward, status, cause, error = said.reward, said.success_status, said.failure_cause, said.error
    details = dict(said.details)
    if box.verifier is not None:
        # what the agent says of itself is no reward where a verifier was to say it
        if said.reward is not None:
            details["reported_reward"] = said.reward
        reward = None
    if graded is not None:
        reward, details = graded.reward, {**details, **graded.details}
        if graded.failure_cause is not None:
            status, cause = graded.success_status, graded.failure_cause
            error = "; ".join(filter(None, (error, graded.error)))
    logs = [_text(part.ended.log, box.secrets, secrets) for part in (agent, verifier) if part is not None]
    return Execution(
        status,
        reward,
        cause,
        secrets.redact(error),
        redacted(details, secrets),
        redacted(dict(said.result), secrets),
        "\n".join(filter(None, logs))[-LOG_BYTES:],
        agent.ended.seconds,
        verifier.ended.seconds if verifier else 0.0,
        said.cost_usd,
        said.tokens,
        agent.limits_enforced,
    )


def _text(log: bytes, values: Mapping[str, str], secrets: Secrets) -> str:
    if len(log) >= KEPT_LOG_BYTES:
        # the rest of a secret that was cut in two
        ends = [value.encode() for value in values.values()]
        log = log[max((n for end in ends for n in range(1, len(end)) if log.startswith(end[-n:])), default=0) :]
    return secrets.redact(log.decode("utf-8", "replace"))


def redacted(value: T, secrets: Secrets) -> T:
    """Return a value of JSON with every secret in its texts and keys replaced."""
    if isinstance(value, str):
        return secrets.redact(value)  # type: ignore[return-value]  # a text for a text
    if isinstance(value, list):
        return [redacted(item, secrets) for item in value]  # type: ignore[return-value]
    if isinstance(value, dict):
        return {redacted(key, secrets): redacted(item, secrets) for key, item in value.items()}  # type: ignore[return-value]
    return value
