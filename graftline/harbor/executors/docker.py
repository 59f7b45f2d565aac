"""The executor `docker`: images and containers of a Docker engine, or of another that speaks its API."""

import hashlib
import io
import logging
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import ConfigError, DataError, HarborError, install_command
from graftline.harbor.contract import HarborLimits
from graftline.harbor.executors.archives import DOCKERFILE, add_dockerfile
from graftline.harbor.executors.base import LOG_BYTES, BuildContext, Built, RolloutSpec
from graftline.harbor.executors.containers import ContainerSpec
from graftline.harbor.executors.docker_box import ENTRYPOINT as BOX_COMMAND
from graftline.harbor.executors.docker_box import DockerBox
from graftline.harbor.executors.docker_container import DockerContainer, translate_faults
from graftline.harbor.executors.engines import LABEL, ContainerExecutor
from graftline.harbor.executors.trial import Abilities, Role, is_public_ever, limits_of_box, tar_of
from graftline.harbor.task_format.task_folder import HarborTask, TaskFile

logger = logging.getLogger(__name__)

REPOSITORY = "graftline/harbor"
_SHOWN_LOG = 2000
_BAD_REQUEST = 400
_PIDS = 1024
_MEMORY_KILL_FACTOR = 1.5
"""`memory_mb` is set aside for a container; it is killed at so many times that. One that is killed at what it was
promised fails for the machine's reasons."""
_MACHINE_FAULTS = (
    *("no space left on device", "disk quota exceeded", "connection refused", "connection reset", "i/o timeout"),
    *("tls handshake timeout", "temporary failure in name resolution", "no such host", "toomanyrequests"),
    *("service unavailable", "unexpected eof"),
)
"""What an engine says where a build fails for a reason that is not in the context."""


class DockerExecutorConfig(Config):
    """Containers of a Docker engine, or of another that speaks its API."""

    kind: Literal["docker"] = "docker"
    base_url: str | None = None
    """`unix:///var/run/docker.sock`, `tcp://…`; without one, what `DOCKER_HOST` and its kin say."""
    owner: str = Field(default="graftline", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Whose containers these are. Services that share an engine have names of their own, or reap each other's."""
    network: Literal["none", "bridge"] = "none"
    """`bridge` lets containers out, as an agent that asks a language model needs; the verifier's never gets it."""
    build_timeout_s: int = Field(default=1800, ge=1)
    patience_s: int = Field(default=60, ge=1)
    """How long an answer of the engine may take."""


class DockerExecutor(ContainerExecutor):
    """The executor."""

    name = "docker"

    def __init__(self, config: DockerExecutorConfig) -> None:
        super().__init__(config.owner)
        self._config = config
        self._takes_disk_limits = True
        try:
            from docker import APIClient
            from docker.utils import kwargs_from_env
        except ImportError:
            raise ConfigError(f"executor 'docker': its client is missing; {install_command('harbor')}") from None
        place = {"base_url": config.base_url} if config.base_url else kwargs_from_env()
        with translate_faults("reach the engine"):
            self._engine = APIClient(**place, version="auto", timeout=config.patience_s, num_pools=64)
        self.reap()

    def has(self, snapshot_id: str) -> bool:
        return self._has_tasks(snapshot_id) or bool(self._image(snapshot_id))

    def _identity(self, context: BuildContext) -> tuple[str, ...]:
        # the last is the platform, which is that of the engine
        return context.digest, context.dockerfile, ""

    def _find_or_build(self, digest: str, context: BuildContext) -> Built:
        return self._find_or_build_image(
            digest, lambda archive: add_dockerfile(context.archive(), context.dockerfile, archive)
        )

    def _find_or_build_image(self, digest: str, write: Callable[[IO[bytes]], None]) -> Built:
        """Return the image called by `digest`, built of the archive that `write` writes where it is not there."""
        tag = f"{REPOSITORY}:{digest[:12]}"
        if ((self._image(tag).get("Config") or {}).get("Labels") or {}).get(f"{LABEL}context") == digest:
            return Built(tag)
        archive = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            write(archive)
            archive.seek(0)
            with translate_faults("build"):
                lines = self._engine.build(
                    fileobj=archive,
                    custom_context=True,
                    dockerfile=DOCKERFILE,
                    tag=tag,
                    labels={**self._owner_labels, f"{LABEL}context": digest},
                    rm=True,
                    forcerm=True,
                    decode=True,
                    timeout=self._config.build_timeout_s,
                )
                log = self._read_build_log(lines)
        except HarborError as error:
            # the engine does not begin with a Dockerfile that it cannot read
            if error.status == _BAD_REQUEST:
                raise DataError(f"the Dockerfile does not build: {error}; mend it") from None
            raise
        finally:
            archive.close()
        if not self.has(tag):
            raise HarborError(f"docker: built {tag}, and does not have it now; look at the engine's log")
        return Built(tag, log)

    def _read_build_log(self, lines: Iterator[dict[str, Any]]) -> str:
        tail: deque[str] = deque()
        size, began = 0, time.monotonic()
        for line in lines:
            error = line.get("error")
            # progress of layers is for a screen
            if "progressDetail" not in line or error:
                text = line.get("stream") or line.get("status") or error or ""
                tail.append(text if text.endswith("\n") else f"{text}\n")
                size += len(tail[-1])
            while size > LOG_BYTES and len(tail) > 1:
                size -= len(tail.popleft())
            end = (
                "".join(tail)[-_SHOWN_LOG:] if error or time.monotonic() - began > self._config.build_timeout_s else ""
            )
            if error:
                # read to its end, so that the connection is used again; an error is the last but for a line or two
                deque(lines, maxlen=0)
                if any(fault in str(error).lower() for fault in _MACHINE_FAULTS):
                    advice = f"look at the engine's machine. The end of the log:\n{end}"
                    raise HarborError(f"docker: cannot build: {error}; {advice}")
                raise DataError(f"the Dockerfile does not build: {error}; mend it. The end of the log:\n{end}")
            if end:
                limit = f"build_timeout_s, {self._config.build_timeout_s}"
                raise HarborError(f"docker: a build took longer than {limit}; the end of its log:\n{end}")
        return "".join(tail)[-LOG_BYTES:]

    def _image(self, snapshot_id: str) -> dict[str, Any]:
        """Return what the engine knows of an image of ours; nothing where there is none."""
        from docker.errors import NotFound

        if not snapshot_id.startswith(f"{REPOSITORY}:"):
            return {}
        with suppress(NotFound), translate_faults("look at an image", (NotFound,)):
            return dict(self._engine.inspect_image(snapshot_id))
        return {}

    def _list(self) -> Iterable[tuple[str, Mapping[str, str]]]:
        ((name, owner),) = self._owner_labels.items()
        with translate_faults("list containers"):
            rows = self._engine.containers(all=True, filters={"label": f"{name}={owner}"})
        return [(row["Id"], row.get("Labels") or {}) for row in rows]

    def _remove(self, container_id: str) -> None:
        from docker.errors import NotFound

        try:
            with suppress(NotFound), translate_faults("remove a container", (NotFound,)):
                self._engine.remove_container(container_id, v=True, force=True)
        except HarborError as error:
            logger.warning("%s; it is tried again by the next start", error)

    def _disconnect(self) -> None:
        self._engine.close()

    def _create(self, spec: ContainerSpec) -> "tuple[str, Callable[[], DockerContainer]]":
        """Make a container; without a limit of the disk where the engine has none."""
        from docker.errors import APIError

        image = self._image(spec.snapshot_id)
        if not image:
            raise HarborError(f"docker: snapshot {spec.snapshot_id!r} is gone; build the deployment again")
        folder = (image.get("Config") or {}).get("WorkingDir") or "/"
        for has_disk_limit in (True, False) if self._takes_disk_limits else (False,):
            try:
                with translate_faults("create a container", (APIError,) if has_disk_limit else ()):
                    container_id, enforced = self._create_with(spec, folder, has_disk_limit)
            except APIError as error:
                if "storage" not in str(error.explanation).lower():
                    raise HarborError(f"docker: cannot create a container: {error.explanation}") from None
                self._takes_disk_limits = False
                continue
            container = DockerContainer(self._engine, container_id, spec, folder, enforced)
            return container_id, container.fill
        raise AssertionError("unreachable")

    def _create_with(self, spec: ContainerSpec, folder: str, has_disk_limit: bool) -> tuple[str, dict[str, Any]]:
        network = self._config.network if spec.role == "agent" else "none"
        host, enforced = self._host_config(spec.rollout.limits, network, has_disk_limit)
        host |= {"SecurityOpt": ["no-new-privileges"], "CapDrop": ["ALL"]}
        container = self._engine.create_container(
            spec.snapshot_id,
            entrypoint=list(spec.words),
            command=[],
            environment=dict(spec.env_vars),
            working_dir=folder,
            stdin_open=spec.stdin is not None,
            host_config=host,
            labels=self._labels(spec.rollout, spec.role, spec.timeout_s),
            # nothing of the image's runs beside the entrypoint
            healthcheck={"test": ["NONE"]},
        )
        return container["Id"], {"timeout_s": spec.timeout_s, **enforced}

    def _host_config(
        self, limits: HarborLimits, network: str, has_disk_limit: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what holds a container to its limits, and how that is said."""
        memory = limits.memory_mb << 20
        killed_at = int(memory * _MEMORY_KILL_FACTOR)
        host = self._engine.create_host_config(
            nano_cpus=limits.cpu_cores * 1_000_000_000,
            mem_limit=killed_at,
            # the same as the memory: no swap
            memswap_limit=killed_at,
            mem_reservation=memory,
            pids_limit=_PIDS,
            storage_opt={"size": f"{limits.disk_mb}m"} if has_disk_limit else None,
            network_mode=network,
            log_config={"Type": "json-file", "Config": {"max-size": "16m", "max-file": "2"}},
        )
        return dict(host), {
            "cpu_cores": limits.cpu_cores,
            "memory_mb": limits.memory_mb,
            "memory_killed_at_mb": killed_at >> 20,
            "disk_mb": limits.disk_mb if has_disk_limit else None,
            "pids": _PIDS,
            "network": network,
        }

    def _abilities(self, rollout: RolloutSpec) -> Abilities:
        has_network = self._config.network == "bridge"
        return Abilities(has_network, switches_network=has_network, variables=frozenset(rollout.secrets))

    def _create_box(
        self, rollout: RolloutSpec, role: Role, task: HarborTask, is_public: bool, glance: Callable[[], None]
    ) -> "tuple[str, Callable[[], DockerBox]]":
        dockerfile, files = task.image_of(role)
        content = tar_of({**files, DOCKERFILE: TaskFile(dockerfile.encode())})
        digest = hashlib.sha256(content).hexdigest()
        with self._changed:
            lock = self._builds[digest]
        with lock:
            image = self._image(
                tag := self._find_or_build_image(
                    digest, lambda archive: shutil.copyfileobj(io.BytesIO(content), archive)
                ).snapshot_id
            )
        # a box that is let out at any time is made on the network, and taken off it
        is_out = is_public or (not task.toml.is_separate and self._config.network == "bridge" and is_public_ever(task))
        limits = limits_of_box(task, rollout.limits)
        host, enforced = self._host_config(limits, "bridge" if is_out else "none", has_disk_limit=False)
        timeout_s = rollout.limits.timeout_s + task.toml.verifier.timeout_sec
        with translate_faults("create a container"):
            container_id = self._engine.create_container(
                tag, command=[*BOX_COMMAND], host_config=host, labels=self._labels(rollout, role, timeout_s)
            )["Id"]
        folder = (image.get("Config") or {}).get("WorkingDir") or "/"

        def start() -> DockerBox:
            with translate_faults("start a container"):
                self._engine.start(container_id)
            box = DockerBox(self._engine, container_id, folder, enforced, glance)
            box.set_network(is_public)
            return box

        return container_id, start
