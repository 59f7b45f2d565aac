"""The `Executor` port: make a snapshot of a context, and run a deployment's entrypoint in a container made of it.

However an entrypoint ends (wrong result, crash, out of time) is an `Execution`; so is a container that broke while it ran, with
a cause that says so. A reward is never made up: without a result that can be read it is None. An error is raised only
where nothing was run: the snapshot is gone, or the executor itself is not to be had.

The executor `memory` is here too: it runs nothing, and works rewards out. It is for tests, and to try a service.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from graftline.core.config import Config
from graftline.core.errors import HarborError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus, VerifierSettings

EntrypointMode = Literal["file", "stdio"]
INPUT_PATH, OUTPUT_PATH = "/tmp/rollout.json", "/tmp/result.json"
"""Where an entrypoint of mode `file` reads the request, and leaves what came of it."""
LOG_BYTES = 64 << 10
"""Kept of what a container printed; of more, the end."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a snapshot is made of."""

    digest: str
    """SHA-256 of the archive, hexadecimal."""
    archive: Callable[[], bytes]
    """Returns the tar.gz; called only where there is no snapshot yet."""
    dockerfile: str
    """Text; empty where there is none, which only executors without containers accept."""


@dataclass(frozen=True, slots=True)
class Built:
    """A snapshot, and what was printed on the way."""

    snapshot_id: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """One rollout, as an executor is asked for it."""

    rollout_id: str
    attempt: int
    snapshot_id: str
    entrypoint: str
    entrypoint_mode: EntrypointMode
    request: Mapping[str, Any]
    """JSON: what the entrypoint is given."""
    limits: HarborLimits
    env_vars: Mapping[str, str] = field(default_factory=dict)
    """Of the deployment, for both containers."""
    overriding_vars: Mapping[str, str] = field(default_factory=dict)
    """Of whoever asked for the rollout: they take the place of others in the first container, and never reach the second."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables put in when it runs; they are in no snapshot, and are cut out of all that comes back."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Texts laid over the snapshot in the working folder, by relative path."""
    verifier: VerifierSettings | None = None
    """Graded in a second container, of `verifier_snapshot_id`, that the first one never saw."""
    verifier_snapshot_id: str = ""
    agent_files: tuple[str, ...] = ()
    """Folders of the snapshot whose content the container starts with; all of it where there are none."""
    verifier_files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Execution:
    """How a rollout ended."""

    success_status: SuccessStatus
    reward: float | None = None
    failure_cause: FailureCause | None = None
    error: str = ""
    """For people: what went wrong, and what to do."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier said besides the reward."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """What the entrypoint returned, whole."""
    log: str = ""
    """The end of what the containers printed, without secrets."""
    agent_s: float = 0.0
    verify_s: float = 0.0
    cost_usd: float | None = None
    """None where nobody said."""
    tokens: int | None = None
    limits_enforced: Mapping[str, Any] = field(default_factory=dict)
    """What the container held the entrypoint to, as achieved."""


class Executor(Protocol):
    """Builds snapshots and runs containers; every method may be called from several threads at the same time."""

    @property
    def name(self) -> str:
        """What it is called in records."""

    @property
    def needs_dockerfile(self) -> bool:
        """Whether a context without a Dockerfile is refused."""

    def build(self, context: BuildContext) -> Built:
        """Make a snapshot of `context`, or find the one that is there; it may take minutes.

        Raises:
            DataError: the context cannot be made into one; the message, and what was printed, say why.
            HarborError: the executor failed; nothing is known of the context.
        """

    def has(self, snapshot_id: str) -> bool:
        """Return whether a snapshot is there still."""

    def run(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        """Run one rollout to its end; one whose `is_cancelled` turns true is ended soon after, with that cause.

        Raises:
            HarborError: nothing was run.
        """

    def close(self) -> None:
        """Let go of everything, and end what runs. A second call does nothing."""


_PREFIX = "memory-"
_DIGEST_CHARACTERS = 12
_STEPS = 1000


class MemoryExecutorConfig(Config):
    """Rewards that are worked out from the context and the seed."""

    kind: Literal["memory"] = "memory"


class MemoryExecutor:
    """The executor `memory`. What it knows of snapshots is in their names, so that a service that starts again has them all.

    `outcomes` returns how a rollout ends, or raises what an executor raises.
    """

    name = "memory"
    needs_dockerfile = False

    def __init__(self, outcomes: Callable[[RolloutSpec], Execution] | None = None) -> None:
        self._outcomes = outcomes or reward_by_seed
        self._is_open = True

    def build(self, context: BuildContext) -> Built:
        return Built(f"{_PREFIX}{context.digest[:_DIGEST_CHARACTERS]}")

    def has(self, snapshot_id: str) -> bool:
        return snapshot_id.startswith(_PREFIX)

    def run(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        if not self._is_open:
            raise HarborError("memory: the executor is closed; open another one")
        if not self.has(rollout.snapshot_id):
            raise HarborError(f"memory: snapshot {rollout.snapshot_id!r} is gone; build the deployment again")
        if is_cancelled():
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error="cancelled")
        return self._outcomes(rollout)

    def close(self) -> None:
        self._is_open = False


def reward_by_seed(rollout: RolloutSpec) -> Execution:
    """Return a success whose reward in [0, 1) is the same for the same snapshot and seed."""
    env = rollout.request.get("env")
    seed = env.get("seed") if isinstance(env, dict) else rollout.request.get("seed")
    digest = hashlib.sha256(f"{rollout.snapshot_id}\0{seed or 0}".encode()).hexdigest()
    reward = int(digest[:8], 16) % _STEPS / _STEPS
    result = {"metrics": {"reward_mean": reward}, "success": True}
    return Execution(SuccessStatus.SUCCESS, reward, result=result, cost_usd=0.0, tokens=0)
