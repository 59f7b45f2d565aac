"""The executor `daytona`: snapshots and sandboxes of Daytona, by its SDK (https://www.daytona.io/docs).

A snapshot is called `graftline-<digest>`, of its context and its Dockerfile. Its size is that of the configuration, for a
sandbox of a snapshot cannot be given another: a deployment that wants more is refused. A sandbox stops by itself when its
lease is over and is deleted then, whatever becomes of this process; its labels say whose it is, so that `reap` finds what a
killed process left. Secrets are variables of the one command that needs them, in no snapshot and in no sandbox.
"""

import hashlib
import io
import logging
import math
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, SecretStr

from graftline.core.config import Config
from graftline.core.errors import ConfigError, DataError, HarborError, install_command
from graftline.harbor.executors.archives import DOCKERFILE, MAX_CONTEXT_BYTES
from graftline.harbor.executors.base import LOG_BYTES, BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.box_labels import LEASE_SLACK_S, ContainerLabels
from graftline.harbor.executors.containers import ContainerSpec, run_in_containers
from graftline.harbor.executors.daytona_sandbox import DaytonaSandbox, asked

if TYPE_CHECKING:
    from daytona import Daytona, Sandbox, Snapshot

logger = logging.getLogger(__name__)

API_KEY = "DAYTONA_API_KEY"
_PREFIX = "graftline-"
_SHOWN_LOG = 2000
_COMING = ("pending", "building", "pulling", "snapshotting")
_FAILED = ("error", "build_failed")
_NOT_FOUND, _CONFLICT = 404, 409


class DaytonaExecutorConfig(Config):
    """Sandboxes of Daytona, or of a server of one's own that speaks its API. The key is the secret `DAYTONA_API_KEY`."""

    kind: Literal["daytona"] = "daytona"
    api_url: str = "https://app.daytona.io/api"
    target: str | None = None
    """The region; without one, that of the organization."""
    owner: str = Field(default="graftline", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Whose boxes these are. Services that share an organization have names of their own, or reap each other's."""
    network: Literal["none", "open"] = "none"
    """`open` lets boxes out, as an agent that asks a language model needs; the verifier's box never gets it."""
    cpu_cores: int = Field(default=2, ge=1, le=64)
    memory_gb: int = Field(default=4, ge=1, le=256)
    disk_gb: int = Field(default=10, ge=1, le=1024)
    """Of every snapshot, and so of every box of it."""
    build_timeout_s: int = Field(default=1800, ge=1)
    start_timeout_s: int = Field(default=120, ge=1)
    patience_s: int = Field(default=120, ge=0)
    """How long a call that was refused for the rate of calls is repeated."""
    poll_s: float = Field(default=0.5, gt=0)
    """Between two looks at what runs."""


class DaytonaExecutor:
    """The executor.

    Args:
        config: What is asked of Daytona.
        api_key: Who asks.
        monotonic: Seconds that only go forward, for limits of time.
        now: Seconds since 1970, for labels.
    """

    name = "daytona"
    needs_dockerfile = True

    def __init__(
        self,
        config: DaytonaExecutorConfig,
        api_key: SecretStr,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._monotonic = config, monotonic
        self._labels = ContainerLabels(config.owner, now)
        self._lock = threading.Lock()
        self._live: dict[str, Sandbox] = {}
        self._builds: dict[str, threading.Lock] = {}
        self._is_closed = False
        self._daytona = _client(config, api_key)
        self.reap()

    def build(self, context: BuildContext) -> Built:
        if not context.dockerfile.strip():
            raise DataError("the context has no Dockerfile, which executor 'daytona' builds by; add one")
        identity = "\0".join((context.digest, context.dockerfile))
        name = f"{_PREFIX}{hashlib.sha256(identity.encode()).hexdigest()[:12]}"
        with self._alone(name):
            snapshot = self._settled(name)
            if snapshot is not None and snapshot.state in _FAILED:
                self._asked("delete a snapshot", lambda: self._daytona.snapshot.delete(name))
                snapshot = None
            return Built(name) if snapshot is not None else Built(name, self._create_snapshot(name, context))

    def has(self, snapshot_id: str) -> bool:
        snapshot = self._snapshot(snapshot_id) if snapshot_id.startswith(_PREFIX) else None
        return snapshot is not None and snapshot.state not in (*_FAILED, "removing")

    def run(self, box: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        self._check_size(box)
        if self._is_closed:
            raise HarborError("daytona: the executor is closed; open another one")
        return run_in_containers(box, self._container, is_cancelled)

    def reap(self) -> int:
        """Delete the sandboxes of our owner that no live run has, and return how many there were."""
        from daytona import ListSandboxesQuery

        query = ListSandboxesQuery(labels=dict(self._labels.of_owner))
        found = self._asked("list sandboxes", lambda: list(self._daytona.list(query)))
        with self._lock:
            live = set(self._live)
        left = [sandbox for sandbox in found if self._labels.is_left(sandbox.id, sandbox.labels, live)]
        for sandbox in left:
            self._delete(sandbox)
        if left:
            logger.warning("daytona: deleted %d sandboxes that were left", len(left))
        return len(left)

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            live = list(self._live.values())
        for sandbox in live:
            self._delete(sandbox)

    def _create_snapshot(self, name: str, context: BuildContext) -> str:
        from daytona import CreateSnapshotParams, DaytonaError, Image, Resources

        config, kept = self._config, _Tail()
        with tempfile.TemporaryDirectory(prefix="graftline-context-") as folder:
            _unpack(context.archive(), Path(folder))
            dockerfile = Path(folder) / DOCKERFILE
            dockerfile.write_text(context.dockerfile, "utf-8")
            try:
                image = Image.from_dockerfile(dockerfile, strict_context=True)
            except (DaytonaError, OSError, ValueError) as error:
                raise DataError(f"the Dockerfile does not build: {error}; mend it") from None
            size = Resources(cpu=config.cpu_cores, memory=config.memory_gb, disk=config.disk_gb)
            params = CreateSnapshotParams(name=name, image=image, resources=size)

            def create() -> "Snapshot":
                return self._daytona.snapshot.create(params, on_logs=kept.add, timeout=config.build_timeout_s)

            try:
                self._asked("build a snapshot", create)
            except HarborError as error:
                if error.status == _CONFLICT and self._settled(name) is not None:
                    return kept.text()  # another process builds the same
                raise self._build_fault(name, error, kept.text()[-_SHOWN_LOG:]) from None
        return kept.text()

    def _build_fault(self, name: str, error: HarborError, log: str) -> DataError | HarborError:
        """Return the error of a failed build, by whose it is; the state says more than the message."""
        snapshot = None
        with suppress(HarborError):
            snapshot = self._snapshot(name)
        is_missing = "Path does not exist" in str(error)  # what COPY names
        if is_missing or (snapshot is not None and snapshot.state == "build_failed"):
            return DataError(f"the Dockerfile does not build: {error}; mend it. The end of the log:\n{log}")
        fault = HarborError(f"{error}. The end of the log:\n{log}" if log else str(error))
        fault.status = error.status
        return fault

    def _settled(self, name: str) -> "Snapshot | None":
        """Return a snapshot that is neither on its way nor asleep; None where there is none."""
        until = self._monotonic() + self._config.build_timeout_s
        while (snapshot := self._snapshot(name)) is not None:
            if snapshot.state == "inactive":
                self._asked("activate a snapshot", lambda: self._daytona.snapshot.activate(name))
            elif snapshot.state not in (*_COMING, "removing"):
                return snapshot
            if self._monotonic() > until:
                raise HarborError(
                    f"daytona: snapshot {name!r} is {snapshot.state.value!r} for {self._config.build_timeout_s} s, which"
                    " is build_timeout_s; look at it there"
                )
            time.sleep(self._config.poll_s)
        return None

    def _snapshot(self, name: str) -> "Snapshot | None":
        try:
            return self._asked("look at a snapshot", lambda: self._daytona.snapshot.get(name))
        except HarborError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _check_size(self, box: RolloutSpec) -> None:
        config, limits = self._config, box.limits
        sizes = {
            "cpu_cores": (limits.cpu_cores, config.cpu_cores),
            "memory_mb": (limits.memory_mb, config.memory_gb << 10),
            "disk_mb": (limits.disk_mb, config.disk_gb << 10),
        }
        if short := [f"{name} {asked}, but has {had}" for name, (asked, had) in sizes.items() if asked > had]:
            raise HarborError(
                f"daytona: the deployment asks for {'; '.join(short)}; raise the executor's size, and build again"
            )

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """Let one thread at a time build what is the same."""
        with self._lock:
            lock = self._builds.setdefault(name, threading.Lock())
        with lock:
            yield

    @contextmanager
    def _container(self, order: ContainerSpec) -> Iterator[DaytonaSandbox]:
        sandbox = self._create_sandbox(order)
        with self._lock:
            self._live[sandbox.id] = sandbox
            is_closed = self._is_closed
        try:
            if is_closed:
                raise HarborError("daytona: the executor was closed meanwhile; open another one")
            container = DaytonaSandbox(
                sandbox, order, self._config.patience_s, self._config.poll_s, self._network(order), self._monotonic
            )
            container.fill()
            yield container
        finally:
            self._delete(sandbox)
            with self._lock:
                self._live.pop(sandbox.id, None)

    def _create_sandbox(self, order: ContainerSpec) -> "Sandbox":
        from daytona import CreateSandboxFromSnapshotParams

        lease_min = math.ceil((order.timeout_s + LEASE_SLACK_S) / 60)

        def create() -> "Sandbox":
            params = CreateSandboxFromSnapshotParams(
                snapshot=order.snapshot_id,
                labels=self._labels.of(order),
                # of what nobody looks at any more, and of what somebody forgot while it works
                auto_stop_interval=lease_min,
                ttl_minutes=lease_min,
                # as soon as it stops
                auto_delete_interval=0,
                network_block_all=self._network(order) == "none",
            )
            return self._daytona.create(params, timeout=self._config.start_timeout_s)

        try:
            return self._asked("create a sandbox", create)
        except HarborError as error:
            if error.status == _NOT_FOUND:
                raise HarborError(
                    f"daytona: snapshot {order.snapshot_id!r} is gone; build the deployment again"
                ) from None
            raise

    def _network(self, order: ContainerSpec) -> str:
        return self._config.network if order.role == "agent" else "none"

    def _delete(self, sandbox: "Sandbox") -> None:
        try:
            self._asked("delete a sandbox", lambda: sandbox.delete(timeout=60, wait=True))
        except HarborError as error:
            if error.status != _NOT_FOUND:
                logger.warning("%s; it ends with its lease", error)

    def _asked(self, attempted: str, call: Callable[[], Any]) -> Any:
        return asked(attempted, call, self._config.patience_s)


class _Tail:
    """The end of a log that comes in pieces."""

    def __init__(self) -> None:
        self._kept = ""
        self._lock = threading.Lock()

    def add(self, piece: str) -> None:
        with self._lock:
            self._kept = f"{self._kept}{piece}\n"[-LOG_BYTES:]

    def text(self) -> str:
        return self._kept


def _unpack(archive: bytes, folder: Path) -> None:
    left = MAX_CONTEXT_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for member in tar:
                left -= member.size
                if left < 0:
                    raise DataError(f"the context unpacks to more than {MAX_CONTEXT_BYTES} bytes; leave files out")
                tar.extract(member, folder, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"the context is not a tar.gz that can be unpacked ({error}); package it again") from None


def _client(config: DaytonaExecutorConfig, api_key: SecretStr) -> "Daytona":
    try:
        from daytona import Daytona, DaytonaConfig
    except ImportError:
        raise ConfigError(f"executor 'daytona': its SDK is missing; {install_command('daytona')}") from None

    def connect() -> Daytona:
        return Daytona(DaytonaConfig(api_key=api_key.get_secret_value(), api_url=config.api_url, target=config.target))

    client: Daytona = asked("open the client", connect, config.patience_s)
    return client
