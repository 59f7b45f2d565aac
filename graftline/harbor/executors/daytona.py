"""The executor `daytona`: snapshots and sandboxes of Daytona, by its SDK (https://www.daytona.io/docs).

A snapshot's size is that of the configuration, for a sandbox of it cannot be given another: a deployment that wants more is
refused. A sandbox stops by itself when its lease is over and is deleted then, whatever becomes of this process. Secrets are
variables of the one command that needs them, in no snapshot and in no sandbox.

What runs is started in the background by one short call and looked at by others, so that no call lasts as long as an
attempt. It knows of the files by which it is looked at, and can lie there about its own end; about a reward it cannot, for
that is said by a container that it never sees.
"""

import logging
import math
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import Field, SecretStr

from graftline.core.config import Config
from graftline.core.errors import ConfigError, DataError, HarborError, install_command
from graftline.harbor.executors.archives import DOCKERFILE, MAX_ARTIFACT_BYTES, open_context, read_files, relative
from graftline.harbor.executors.base import LOG_BYTES, BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.containers import KEPT_LOG_BYTES, VERIFIER_FOLDER, ContainerExit, ContainerSpec
from graftline.harbor.executors.engines import LEASE_SLACK_S, ContainerExecutor
from graftline.harbor.results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from daytona import Sandbox, Snapshot

T = TypeVar("T")

logger = logging.getLogger(__name__)

API_KEY = "DAYTONA_API_KEY"
_PREFIX = "graftline-"
_SHOWN, _SHOWN_LOG = 500, 2000
_COMING = ("pending", "building", "pulling", "snapshotting")
_FAILED = ("error", "build_failed")
_NOT_FOUND, _CONFLICT, _TOO_MANY = 404, 409, 429
_ABSENT = (400, 403, 404)
_FOLDER = "/tmp/.graftline"
_CODE, _GROUP, _STDIN, _STDOUT, _STDERR = (f"{_FOLDER}/{name}" for name in ("code", "group", "stdin", "out", "err"))
_ARTIFACTS = f"{_FOLDER}/artifacts.tar"
_KILLED = 137
_CALL_S = 60


class DaytonaExecutorConfig(Config):
    """Sandboxes of Daytona, or of a server of one's own that speaks its API. The key is the secret `DAYTONA_API_KEY`."""

    kind: Literal["daytona"] = "daytona"
    api_url: str = "https://app.daytona.io/api"
    target: str | None = None
    """The region; without one, that of the organization."""
    owner: str = Field(default="graftline", pattern=r"^[A-Za-z0-9._-]{1,64}$")
    """Whose sandboxes these are. Services that share an organization have names of their own, or reap each other's."""
    network: Literal["none", "open"] = "none"
    """`open` lets sandboxes out, as an agent that asks a language model needs; the verifier's never gets it."""
    cpu_cores: int = Field(default=2, ge=1, le=64)
    memory_gb: int = Field(default=4, ge=1, le=256)
    disk_gb: int = Field(default=10, ge=1, le=1024)
    """Of every snapshot, and so of every sandbox of it."""
    build_timeout_s: int = Field(default=1800, ge=1)
    start_timeout_s: int = Field(default=120, ge=1)
    patience_s: int = Field(default=120, ge=0)
    """How long a call that was refused for the rate of calls is repeated."""
    poll_s: float = Field(default=0.5, gt=0)
    """Between two looks at what runs."""


def _call(attempted: str, call: Callable[[], T], patience_s: float) -> T:
    """Return what `call` returns; it is repeated while it is refused for the rate of calls."""
    import httpx
    from daytona import DaytonaError
    from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

    jitter = wait_random_exponential(multiplier=0.5, max=30)

    def pause_s(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        return max(_retry_after_s(error), jitter(state))

    retrying = Retrying(
        retry=retry_if_exception(lambda error: _status(error) == _TOO_MANY),
        wait=pause_s,
        stop=stop_after_delay(patience_s),
        reraise=True,
    )
    try:
        return retrying(call)
    # streams of the SDK let faults of its HTTP client pass
    except (DaytonaError, httpx.HTTPError) as error:
        status = _status(error)
        hint = "; check DAYTONA_API_KEY" if status in (401, 403) else ""
        hint = "; ask for less at a time, or raise the limit" if status == _TOO_MANY else hint
        fault = HarborError(f"daytona: cannot {attempted}: {str(error)[:_SHOWN]}{hint}")
        fault.status = status
        raise fault from None


def _status(error: BaseException) -> int | None:
    """Return what was answered, where an error of the SDK or of its HTTP client is an answer."""
    status = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _retry_after_s(error: BaseException | None) -> float:
    headers: Mapping[str, Any] = getattr(error, "headers", None) or {}
    if (response := getattr(error, "response", None)) is not None:
        headers = response.headers
    texts = (str(value) for name, value in headers.items() if name.lower() == "retry-after")
    return next((float(text) for text in texts if text.isdigit()), 0.0)


class DaytonaExecutor(ContainerExecutor):
    """The executor."""

    name = "daytona"

    def __init__(self, config: DaytonaExecutorConfig, api_key: SecretStr) -> None:
        super().__init__(config.owner)
        self._config = config
        try:
            from daytona import Daytona, DaytonaConfig
        except ImportError:
            raise ConfigError(f"executor 'daytona': its SDK is missing; {install_command('daytona')}") from None
        self._sandboxes: dict[str, Sandbox] = {}
        account = DaytonaConfig(api_key=api_key.get_secret_value(), api_url=config.api_url, target=config.target)
        self._daytona = self._call("open the client", lambda: Daytona(account))
        self.reap()

    def has(self, snapshot_id: str) -> bool:
        snapshot = self._snapshot(snapshot_id) if snapshot_id.startswith(_PREFIX) else None
        return snapshot is not None and snapshot.state not in (*_FAILED, "removing")

    def run(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        config, limits = self._config, rollout.limits
        sizes = {
            "cpu_cores": (limits.cpu_cores, config.cpu_cores),
            "memory_mb": (limits.memory_mb, config.memory_gb << 10),
            "disk_mb": (limits.disk_mb, config.disk_gb << 10),
        }
        if short := [f"{name} {size}, but has {limit}" for name, (size, limit) in sizes.items() if size > limit]:
            message = f"the deployment asks for {'; '.join(short)}; raise the executor's size, and build again"
            raise HarborError(f"daytona: {message}")
        return super().run(rollout, is_cancelled)

    def _find_or_build(self, digest: str, context: BuildContext) -> Built:
        name = f"{_PREFIX}{digest[:12]}"
        snapshot = self._wait_for_snapshot(name)
        if snapshot is not None and snapshot.state in _FAILED:
            self._call("delete a snapshot", lambda: self._daytona.snapshot.delete(name))
            snapshot = None
        return Built(name) if snapshot is not None else Built(name, self._create_snapshot(name, context))

    def _create_snapshot(self, name: str, context: BuildContext) -> str:
        from daytona import CreateSnapshotParams, DaytonaError, Image, Resources

        config, log = self._config, ""

        def add(piece: str) -> None:
            nonlocal log
            log = f"{log}{piece}\n"[-LOG_BYTES:]

        with tempfile.TemporaryDirectory(prefix="graftline-context-") as folder:
            with open_context(context.archive()) as tar:
                tar.extractall(folder, filter="data")
            dockerfile = Path(folder) / DOCKERFILE
            dockerfile.write_text(context.dockerfile, "utf-8")
            try:
                image = Image.from_dockerfile(dockerfile, strict_context=True)
            except (DaytonaError, OSError, ValueError) as error:
                raise DataError(f"the Dockerfile does not build: {error}; mend it") from None
            size = Resources(cpu=config.cpu_cores, memory=config.memory_gb, disk=config.disk_gb)
            params = CreateSnapshotParams(name=name, image=image, resources=size)
            create = partial(self._daytona.snapshot.create, params, on_logs=add, timeout=config.build_timeout_s)
            try:
                self._call("build a snapshot", create)
            except HarborError as error:
                if error.status == _CONFLICT and self._wait_for_snapshot(name) is not None:
                    return log  # another process builds the same
                end = f"The end of the log:\n{log[-_SHOWN_LOG:]}"
                with suppress(HarborError):
                    snapshot = self._snapshot(name)
                    # the state says more than the message; the path is what COPY names
                    if "Path does not exist" in str(error) or (snapshot and snapshot.state == "build_failed"):
                        raise DataError(f"the Dockerfile does not build: {error}; mend it. {end}") from None
                fault = HarborError(f"{error}. {end}" if log else str(error))
                fault.status = error.status
                raise fault from None
        return log

    def _wait_for_snapshot(self, name: str) -> "Snapshot | None":
        """Return a snapshot that is neither on its way nor asleep; None where there is none."""
        until = time.monotonic() + self._config.build_timeout_s
        while (snapshot := self._snapshot(name)) is not None:
            if snapshot.state == "inactive":
                self._call("activate a snapshot", lambda: self._daytona.snapshot.activate(name))
            elif snapshot.state not in (*_COMING, "removing"):
                return snapshot
            if time.monotonic() > until:
                raise HarborError(
                    f"daytona: snapshot {name!r} is {snapshot.state.value!r} for {self._config.build_timeout_s} s, which"
                    " is build_timeout_s; look at it there"
                )
            time.sleep(self._config.poll_s)
        return None

    def _snapshot(self, name: str) -> "Snapshot | None":
        try:
            return self._call("look at a snapshot", lambda: self._daytona.snapshot.get(name))
        except HarborError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def _list(self) -> Iterable[tuple[str, Mapping[str, str]]]:
        from daytona import ListSandboxesQuery

        query = ListSandboxesQuery(labels=dict(self._owner_labels))
        sandboxes = self._call("list sandboxes", lambda: list(self._daytona.list(query)))
        self._sandboxes.update((sandbox.id, sandbox) for sandbox in sandboxes)
        return [(sandbox.id, sandbox.labels) for sandbox in sandboxes]

    def _create(self, spec: ContainerSpec) -> "tuple[str, Callable[[], DaytonaSandbox]]":
        from daytona import CreateSandboxFromSnapshotParams

        lease_min = math.ceil((spec.timeout_s + LEASE_SLACK_S) / 60)
        network = self._config.network if spec.role == "agent" else "none"

        params = CreateSandboxFromSnapshotParams(
            snapshot=spec.snapshot_id,
            labels=self._labels(spec.rollout, spec.role, spec.timeout_s),
            # of what nobody looks at any more, and of what somebody forgot while it works
            auto_stop_interval=lease_min,
            ttl_minutes=lease_min,
            # as soon as it stops
            auto_delete_interval=0,
            network_block_all=network == "none",
        )
        create = partial(self._daytona.create, params, timeout=self._config.start_timeout_s)
        try:
            sandbox = self._call("create a sandbox", create)
        except HarborError as error:
            if error.status == _NOT_FOUND:
                message = f"daytona: snapshot {spec.snapshot_id!r} is gone; build the deployment again"
                raise HarborError(message) from None
            raise
        self._sandboxes[sandbox.id] = sandbox
        return sandbox.id, lambda: DaytonaSandbox(sandbox, spec, self._config, network).fill()

    def _remove(self, container_id: str) -> None:
        if sandbox := self._sandboxes.pop(container_id, None):
            try:
                self._call("delete a sandbox", partial(sandbox.delete, timeout=_CALL_S, wait=True))
            except HarborError as error:
                if error.status != _NOT_FOUND:
                    logger.warning("%s; it ends with its lease", error)

    def _call(self, attempted: str, call: Callable[[], Any]) -> Any:
        return _call(attempted, call, self._config.patience_s)


class DaytonaSandbox:
    """A `Container` that is `sandbox`."""

    def __init__(
        self,
        sandbox: "Sandbox",
        spec: ContainerSpec,
        config: DaytonaExecutorConfig,
        network: str,
    ) -> None:
        self._sandbox, self._spec, self._config = sandbox, spec, config
        self._work = PurePosixPath(self._call("look at a sandbox", sandbox.get_work_dir))
        self.limits_enforced: Mapping[str, Any] = {
            "timeout_s": spec.timeout_s,
            "cpu_cores": sandbox.cpu,
            "memory_mb": sandbox.memory << 10,
            "disk_mb": sandbox.disk << 10,
            "network": network,
        }

    def fill(self) -> "DaytonaSandbox":
        """Put in what the spec has."""
        from daytona import FileUpload

        spec = self._spec
        for part in spec.parts:
            folder = shlex.quote(f"{relative(part)}/.")
            self._must(f"cd {shlex.quote(str(self._work))} && cp -a -- {folder} .")
        contents = dict(spec.inputs)
        for path, content in spec.files.items():
            place = self._work / relative(path)
            # an agent must not bring the verdict along
            if not (spec.role == "verifier" and place.is_relative_to(VERIFIER_FOLDER)):
                contents[str(place)] = content
        contents[_STDIN] = spec.stdin or b""
        folders = {str(PurePosixPath(path).parent) for path in contents}
        if spec.role == "verifier":
            folders.add(VERIFIER_FOLDER)
        self._must(f"mkdir -p {shlex.join(sorted(folders))}")
        uploads = [FileUpload(source=content, destination=path) for path, content in contents.items()]
        self._call("write into a sandbox", lambda: self._sandbox.fs.upload_files(uploads, timeout=_CALL_S))
        return self

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        is_stdio = self._spec.stdin is not None
        output = f"> {_STDOUT} 2> {_STDERR}" if is_stdio else f"> {_STDOUT} 2>&1"
        # the words are those of the inner shell's own arguments, so that no shell reads them
        inner = f'echo $$ > {_GROUP}; "$@" < {_STDIN} {output}; echo $? > {_CODE}'
        words = shlex.join(["setsid", "sh", "-c", inner, "box", *self._spec.words])
        self._must(f"cd {shlex.quote(str(self._work))} && {{ {words} > /dev/null 2>&1 & }}", self._spec.env_vars)
        began = time.monotonic()
        how: Literal["exited", "timeout", "cancelled"] = "exited"
        while (code := self._exit_code()) is None:
            if is_cancelled():
                how = "cancelled"
                break
            if time.monotonic() - began >= self._spec.timeout_s:
                how = "timeout"
                break
            time.sleep(self._config.poll_s)
        seconds = time.monotonic() - began
        self._exec(f"kill -KILL -- -$(cat {_GROUP}) 2> /dev/null")
        if how == "cancelled":
            return ContainerExit(how, None, False, seconds)
        stdout = (self.read(_STDOUT, MAX_RESULT_BYTES) or b"") if is_stdio else b""
        log = self._exec(f"tail -c {KEPT_LOG_BYTES} {_STDERR if is_stdio else _STDOUT}")[1].encode()
        is_out_of_memory = how == "exited" and code == _KILLED and self._is_out_of_memory()
        return ContainerExit(how, code, is_out_of_memory, seconds, stdout, log)

    def read(self, path: str, limit: int) -> bytes | None:
        content = bytearray()

        def fetch() -> None:
            content.clear()
            with closing(self._sandbox.fs.download_file_stream(path, timeout=_CALL_S)) as chunks:
                for chunk in chunks:
                    content.extend(chunk)
                    if len(content) > limit:
                        return

        try:
            self._call(f"read {path!r} of a sandbox", fetch)
        except HarborError as error:
            if error.status in _ABSENT:
                return None
            raise
        return bytes(content[: limit + 1])

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        names = [str(relative(path)) for path in paths]
        if not names:
            return {}
        # what is not there is left out, and tar says so by its code
        self._exec(f"cd {shlex.quote(str(self._work))} && tar -cf {_ARTIFACTS} -- {shlex.join(names)} 2> /dev/null")
        return read_files((self.read(_ARTIFACTS, MAX_ARTIFACT_BYTES * 2) or b"",), tuple(names))

    def _exit_code(self) -> int | None:
        text = self._exec(f"cat {_CODE} 2> /dev/null")[1].strip()
        return int(text) if text.isdigit() and len(text) <= 3 else None

    def _is_out_of_memory(self) -> bool:
        """Return whether the kernel killed something for its memory; a killed process alone does not say."""
        lines = self._exec("cat /sys/fs/cgroup/memory.events 2> /dev/null")[1].splitlines()
        kills = (line.partition(" ")[2].strip() for line in lines if line.startswith("oom_kill "))
        return next(kills, "0") != "0"

    def _must(self, command: str, env_vars: Mapping[str, str] | None = None) -> None:
        code, output = self._exec(command, env_vars)
        if code:
            raise HarborError(f"daytona: {command[:_SHOWN]!r} in a sandbox ends with {code}: {output[:_SHOWN]}")

    def _exec(self, command: str, env_vars: Mapping[str, str] | None = None) -> tuple[int, str]:
        execute = partial(self._sandbox.process.exec, command, env=dict(env_vars or {}) or None, timeout=_CALL_S)
        response = self._call("run a command in a sandbox", execute)
        return response.exit_code, response.result

    def _call(self, attempted: str, call: Callable[[], T]) -> T:
        return _call(attempted, call, self._config.patience_s)
