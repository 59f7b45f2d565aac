"""The executor `docker`: images and containers of an engine that speaks the Docker Engine API.

A snapshot is an image with one tag, `graftline/harbor:<digest>`, of its context, its Dockerfile and the platform. A box is
a container without capabilities, without a network unless the configuration says so, that is removed however it ends; its
labels say whose it is, so that `reap` finds what a killed process left. Secrets are in its environment, in no image.
Folders of a snapshot that a box is to start with are laid over its working folder, which has the rest of the image besides.
The classic builder is asked, which every engine has: a Dockerfile that needs BuildKit (`RUN --mount`) fails.
"""

import hashlib
import logging
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import BoundaryError, ConfigError, DataError, HarborError, install_command
from graftline.harbor.executors.archives import DOCKERFILE, with_dockerfile
from graftline.harbor.executors.base import LOG_BYTES, BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.box_labels import LABEL, ContainerLabels
from graftline.harbor.executors.containers import ContainerSpec, run_in_containers
from graftline.harbor.executors.docker_container import DockerContainer, engine_fault

if TYPE_CHECKING:
    from docker import APIClient

logger = logging.getLogger(__name__)

REPOSITORY = "graftline/harbor"
_SHOWN_LOG = 2000
_LAST_CALLS_S = 10.0
_BAD_REQUEST = 400
_OF_THE_MACHINE = (
    "no space left on device",
    "disk quota exceeded",
    "connection refused",
    "connection reset",
    "i/o timeout",
    "tls handshake timeout",
    "temporary failure in name resolution",
    "no such host",
    "toomanyrequests",
    "service unavailable",
    "unexpected eof",
)
"""What an engine says where a build fails for a reason that is not in the context."""


class DockerExecutorConfig(Config):
    """Containers of a Docker engine, or of another that speaks its API."""

    kind: Literal["docker"] = "docker"
    base_url: str | None = None
    """`unix:///var/run/docker.sock`, `tcp://…`; without one, what `DOCKER_HOST` and its kin say."""
    owner: str = Field(default="graftline", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Whose boxes these are. Services that share an engine have names of their own, or reap each other's."""
    network: Literal["none", "bridge"] = "none"
    """`bridge` lets boxes out, as an agent that asks a language model needs; the verifier's box never gets it."""
    keep_images: bool = True
    """Without it, images that were built are removed at the end."""
    platform: str | None = None
    """Such as `linux/amd64`; without one, that of the engine."""
    user: str | None = None
    """`name` or `uid:gid`, in place of the image's."""
    is_read_only: bool = False
    """Only the working folder, `/tmp` and `/logs/verifier` can be written to."""
    pids: int = Field(default=1024, ge=16, le=65536)
    memory_kill_factor: float = Field(default=1.5, ge=1, le=8)
    """`memory_mb` is set aside for a box; it is killed at so many times that. A box that is killed at what it was
    promised fails for the machine's reasons."""
    build_timeout_s: int = Field(default=1800, ge=1)
    patience_s: int = Field(default=60, ge=1)
    """How long an answer of the engine may take."""


class DockerExecutor:
    """The executor.

    Args:
        config: What is asked of the engine.
        monotonic: Seconds that only go forward, for limits of time.
        now: Seconds since 1970, for labels.
    """

    needs_dockerfile = True
    name = "docker"

    def __init__(
        self,
        config: DockerExecutorConfig,
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._monotonic = config, monotonic
        self._labels = ContainerLabels(config.owner, now)
        self._lock = threading.Condition()
        self._live: set[str] = set()
        self._built: set[str] = set()
        self._builds: dict[str, threading.Lock] = {}
        self._is_closed = False
        self._takes_disk_limits = True
        self._engine = _connected(config)
        self.reap()

    def build(self, context: BuildContext) -> Built:
        if not context.dockerfile.strip():
            raise DataError("the context has no Dockerfile, which executor 'docker' builds by; add one")
        identity = "\0".join((context.digest, context.dockerfile, self._config.platform or ""))
        digest = hashlib.sha256(identity.encode()).hexdigest()
        tag = f"{REPOSITORY}:{digest[:12]}"
        with self._alone(tag):
            if self._labels_of(tag).get(f"{LABEL}context") == digest:
                return Built(tag)
            return Built(tag, self._build(tag, digest, context))

    def has(self, snapshot_id: str) -> bool:
        return bool(self._image(snapshot_id))

    def run(self, box: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        if self._is_closed:
            raise HarborError("docker: the executor is closed; open another one")
        return run_in_containers(box, self._container, is_cancelled)

    def reap(self) -> int:
        """Remove the containers of our owner that no live run has, and return how many there were."""
        ((name, owner),) = self._labels.of_owner.items()
        with engine_fault("list containers"):
            found = self._engine.containers(all=True, filters={"label": f"{name}={owner}"})
        with self._lock:
            live = set(self._live)
        left = [each["Id"] for each in found if self._labels.is_left(each["Id"], each.get("Labels") or {}, live)]
        for container_id in left:
            self._remove(container_id)
        if left:
            logger.warning("docker: removed %d containers that were left", len(left))
        return len(left)

    def close(self) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            live, built = list(self._live), list(self._built)
        for container_id in live:
            self._remove(container_id)
        with self._lock:
            # who is in the middle of a call has its connection still
            self._lock.wait_for(lambda: not self._live, _LAST_CALLS_S)
        if not self._config.keep_images:
            for tag in built:
                with suppress(BoundaryError), engine_fault("remove an image"):
                    self._engine.remove_image(tag)
        self._engine.close()

    def _build(self, tag: str, digest: str, context: BuildContext) -> str:
        with tempfile.TemporaryFile() as archive:
            with_dockerfile(context.archive(), context.dockerfile, archive)
            archive.seek(0)
            labels = {**self._labels.of_owner, f"{LABEL}context": digest}
            with _refused_dockerfile(), engine_fault("build"):
                lines = self._engine.build(
                    fileobj=archive,
                    custom_context=True,
                    dockerfile=DOCKERFILE,
                    tag=tag,
                    labels=labels,
                    platform=self._config.platform,
                    rm=True,
                    forcerm=True,
                    decode=True,
                    timeout=self._config.build_timeout_s,
                )
                log = self._watched_build(lines)
        if not self.has(tag):
            raise HarborError(f"docker: built {tag}, and does not have it now; look at the engine's log")
        with self._lock:
            self._built.add(tag)
        return log

    @contextmanager
    def _alone(self, tag: str) -> Iterator[None]:
        """Let one thread at a time build what is the same."""
        with self._lock:
            lock = self._builds.setdefault(tag, threading.Lock())
        with lock:
            yield

    @contextmanager
    def _container(self, order: ContainerSpec) -> Iterator[DockerContainer]:
        if self._is_closed:
            raise HarborError("docker: the executor is closed; open another one")
        image = self._image(order.snapshot_id)
        if not image:
            raise HarborError(f"docker: snapshot {order.snapshot_id!r} is gone; build the deployment again")
        folder = (image.get("Config") or {}).get("WorkingDir") or "/"
        container_id, enforced = self._created(order, folder)
        with self._lock:
            self._live.add(container_id)
            is_closed = self._is_closed
        try:
            if is_closed:
                raise HarborError("docker: the executor was closed meanwhile; open another one")
            container = DockerContainer(self._engine, container_id, order, folder, enforced, self._monotonic)
            container.fill(self._config.user or "")
            yield container
        finally:
            self._remove(container_id)
            with self._lock:
                self._live.discard(container_id)
                self._lock.notify_all()

    def _created(self, order: ContainerSpec, folder: str) -> tuple[str, dict[str, Any]]:
        """Return a new container's id and its limits; without a limit of the disk where the engine has none."""
        from docker.errors import APIError

        for has_disk_limit in (True, False) if self._takes_disk_limits else (False,):
            try:
                with engine_fault("create a container", (APIError,) if has_disk_limit else ()):
                    return self._create(order, folder, has_disk_limit)
            except APIError as error:
                if "storage" not in str(error.explanation).lower():
                    raise HarborError(f"docker: cannot create a container: {error.explanation}") from None
                self._takes_disk_limits = False
        raise AssertionError("unreachable")

    def _create(self, order: ContainerSpec, folder: str, has_disk_limit: bool) -> tuple[str, dict[str, Any]]:
        limits, config = order.box.limits, self._config
        memory = limits.memory_mb << 20
        killed_at = int(memory * config.memory_kill_factor)
        network = config.network if order.role == "agent" else "none"
        written = sorted({folder, "/tmp", "/logs/verifier"} - {"/"}) if config.is_read_only else []
        host = self._engine.create_host_config(
            nano_cpus=limits.cpu_cores * 1_000_000_000,
            mem_limit=killed_at,
            # the same as the memory: no swap
            memswap_limit=killed_at,
            mem_reservation=memory,
            pids_limit=config.pids,
            storage_opt={"size": f"{limits.disk_mb}m"} if has_disk_limit else None,
            security_opt=["no-new-privileges"],
            cap_drop=["ALL"],
            network_mode=network,
            read_only=config.is_read_only,
            # volumes of the container's own, which files can be put into before it starts
            mounts=[{"Type": "volume", "Target": path} for path in written],
            log_config={"Type": "json-file", "Config": {"max-size": "16m", "max-file": "2"}},
        )
        made = self._engine.create_container(
            order.snapshot_id,
            entrypoint=list(order.words),
            command=[],
            environment=dict(order.env_vars),
            user=config.user,
            working_dir=folder,
            stdin_open=order.stdin is not None,
            host_config=host,
            labels=self._labels.of(order),
            platform=config.platform,
            # nothing of the image's runs beside the entrypoint
            healthcheck={"test": ["NONE"]},
        )
        enforced: dict[str, Any] = {
            "timeout_s": order.timeout_s,
            "cpu_cores": limits.cpu_cores,
            "memory_mb": limits.memory_mb,
            "memory_killed_at_mb": killed_at >> 20,
            "disk_mb": limits.disk_mb if has_disk_limit else None,
            "pids": config.pids,
            "network": network,
            "is_read_only": config.is_read_only,
        }
        return made["Id"], enforced

    def _remove(self, container_id: str) -> None:
        from docker.errors import NotFound

        try:
            with engine_fault("remove a container", (NotFound,)):
                self._engine.remove_container(container_id, v=True, force=True)
        except NotFound:
            pass
        except HarborError as error:
            logger.warning("%s; it is tried again by the next start", error)

    def _image(self, snapshot_id: str) -> dict[str, Any]:
        """Return what the engine knows of an image of ours; nothing where there is none."""
        from docker.errors import NotFound

        if not snapshot_id.startswith(f"{REPOSITORY}:"):
            return {}
        try:
            with engine_fault("look at an image", (NotFound,)):
                found: dict[str, Any] = self._engine.inspect_image(snapshot_id)
                return found
        except NotFound:
            return {}

    def _labels_of(self, tag: str) -> Mapping[str, str]:
        labels: Mapping[str, str] | None = (self._image(tag).get("Config") or {}).get("Labels")
        return labels or {}

    def _watched_build(self, lines: Iterator[dict[str, Any]]) -> str:
        kept: deque[str] = deque()
        size, began = 0, self._monotonic()
        for line in lines:
            text = line.get("stream") or line.get("status") or line.get("error") or ""
            # progress of layers is for a screen
            if "progressDetail" not in line or line.get("error"):
                kept.append(text if text.endswith("\n") else f"{text}\n")
                size += len(kept[-1])
            while size > LOG_BYTES and len(kept) > 1:
                size -= len(kept.popleft())
            if error := line.get("error"):
                # read to its end, so that the connection is used again; an error is the last but for a line or two
                deque(lines, maxlen=0)
                raise build_fault(str(error), "".join(kept)[-_SHOWN_LOG:])
            if self._monotonic() - began > self._config.build_timeout_s:
                raise HarborError(
                    f"docker: a build took longer than build_timeout_s, {self._config.build_timeout_s}; the end of its"
                    f" log:\n{''.join(kept)[-_SHOWN_LOG:]}"
                )
        return "".join(kept)[-LOG_BYTES:]


@contextmanager
def _refused_dockerfile() -> Iterator[None]:
    try:
        yield
    except HarborError as error:
        # the engine does not begin with a Dockerfile that it cannot read
        if error.status == _BAD_REQUEST:
            raise DataError(f"the Dockerfile does not build: {error}; mend it") from None
        raise


def build_fault(reason: str, log: str) -> DataError | HarborError:
    """Return the error of a failed build, by whose it is."""
    if any(said in reason.lower() for said in _OF_THE_MACHINE):
        return HarborError(f"docker: cannot build: {reason}; look at the engine's machine. The end of the log:\n{log}")
    return DataError(f"the Dockerfile does not build: {reason}; mend it. The end of the log:\n{log}")


def _connected(config: DockerExecutorConfig) -> "APIClient":
    try:
        from docker import APIClient
        from docker.utils import kwargs_from_env
    except ImportError:
        raise ConfigError(f"executor 'docker': its client is missing; {install_command('harbor')}") from None
    where = {"base_url": config.base_url} if config.base_url else kwargs_from_env()
    with engine_fault("reach the engine"):
        return APIClient(**where, version="auto", timeout=config.patience_s, num_pools=64)
