"""The executor `local`: containers are jails of this machine, without a container engine.

A snapshot is the context, unpacked once. A Dockerfile is not carried out: what runs are the programs of this machine that
`programs` names, and the log of a build says which instructions were left out. The working folder is a copy of the
snapshot, also at `/app` and `/workspace`; `/tmp` and `/logs` are its own, and LOGS_DIR names the latter. There is no network.
Where the machine has no namespaces and `required_level` says that `confined` will do, `/tmp` and `/logs` are elsewhere:
arguments that name files there name the right place, and TMPDIR and LOGS_DIR say it too.

A jail is for one snapshot and one set of limits, and runs one case at a time; starting it takes a tenth of a second, a case
a few milliseconds. Nothing of a case is left in it, so it is used again. When too many are open, the one that was used
longest ago is closed.

A verifier gets the artifacts over its own files, but for the file that it runs.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import ConfigError, DataError, HarborError, SandboxError
from graftline.core.processes import default_workers
from graftline.core.secrets import Secrets
from graftline.harbor.archive import Snapshots
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import OUTPUT_PATH, BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.containers import (
    KEPT_LOG_BYTES,
    ContainerExit,
    ContainerSpec,
    find_object,
    run_in_containers,
)
from graftline.harbor.executors.entrypoint import WORK, can_travel, case_limits, case_of, check_artifacts
from graftline.harbor.executors.images import ImageStore
from graftline.harbor.executors.local_trials import LocalTrials
from graftline.harbor.executors.trial import CancelledError
from graftline.harbor.results import find_message
from graftline.harbor.task_format.packed import HARBOR_TASK, holds_tasks
from graftline.sandbox import Case, CaseEnd, CaseLimits, Jail, JailConfig, Verdict, open_jail
from graftline.sandbox.base import IsolationLevel
from graftline.sandbox.inside.files import TOO_LARGE
from graftline.sandbox.jail import Program, Snapshot

_PREFIX = "local-"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t].*)?")
_COPYING = frozenset({"COPY", "WORKDIR", "LABEL", "MAINTAINER"})
_SHOWN_ERRORS = 500
_PAGE_BYTES = 4096
_POLL_S, _ENDS_WITHIN_S = 0.2, 10.0
_BROKEN_OFF = {
    Verdict.OUTPUT_FLOOD: "it printed without end, and was ended",
    Verdict.VIOLATION: "it made a system call that no box may make, and was ended",
    Verdict.CRASH: "it crashed",
}
"""Ends after which nothing that was said is believed."""
_TIMEOUTS = (Verdict.WALL_TIMEOUT, Verdict.TIMED_OUT, Verdict.CPU_TIMEOUT)


class LocalExecutorConfig(Config):
    """Jails of this machine."""

    kind: Literal["local"] = "local"
    jail: Literal["namespaces", "subprocess"] = "namespaces"
    """`subprocess` isolates nothing: for contexts of one's own, with `required_level: none`."""
    required_level: IsolationLevel = "namespaces"
    """Without it nothing is run. `confined` accepts a machine that allows no namespaces."""
    programs: tuple[Program, ...] = Field(default=("python", "shell", "node", "cargo"), strict=False, min_length=1)
    """Programs of this machine that a container may run; what is not installed is refused when it is needed."""
    runs_own: bool = False
    """Whether a container may run programs of the context or built in it, as tests in Rust are."""
    at_once: int | None = Field(default=None, ge=1, le=256)
    """Containers that run at the same time; without a number, as many as there are cores."""
    images: dict[str, str] = Field(default={})
    """Root file systems that stand for images, by patterns of their names: `{"ubuntu:*": "/srv/noble.tar"}`. A tar, or a folder in
    the layout of OCI. Harbor tasks run in images that are made of these; only root can make such boxes."""
    network: Literal["none", "host"] = "none"
    """`host` lets boxes of Harbor tasks that ask for a public network share that of this machine, with all that listens here;
    the commands of every Dockerfile do so as well, also of tasks that ask for none."""
    build_timeout_s: int = Field(default=1800, ge=1)
    """Of one command of a Dockerfile."""
    build_disk_mb: int = Field(default=10240, ge=64)
    """What one instruction of a Dockerfile may add; while it is carried out, twice as much must be free."""
    jails_kept: int = Field(default=8, ge=1, le=256)
    """Jails that stay open between rollouts; each is for one snapshot and one set of limits, and takes about 30 MB."""


class LocalExecutor:
    """The executor; snapshots lie below `folder`."""

    name = "local"
    needs_dockerfile = False

    def __init__(self, folder: Path, config: LocalExecutorConfig) -> None:
        self._config = config
        self._snapshots = Snapshots(folder)
        jail = JailConfig(kind=config.jail, required_level=config.required_level, programs=config.programs)
        self._jails = JailPool(jail, config.runs_own, config.at_once or default_workers(), config.jails_kept)
        self._sizes_mb: dict[Path, int] = {}
        roots = {name: Path(path) for name, path in config.images.items()}
        images = ImageStore(folder / "images", roots, config.network, config.build_timeout_s, config.build_disk_mb)
        self._trials = LocalTrials(
            images, config.network, config.at_once or default_workers(), lambda: self._jails.is_open
        )

    def build(self, context: BuildContext) -> Built:
        is_new = self._snapshots.path(context.digest) is None
        self._snapshots.add(context.digest, context.archive)
        log = "the context was unpacked\n" if is_new else "the context was there already\n"
        if (folder := self._snapshots.path(context.digest)) is not None and holds_tasks(folder):
            return Built(f"{_PREFIX}{context.digest}", f"{log}images are made when their tasks are run\n")
        joined = re.sub(r"\\[ \t]*\n", " ", context.dockerfile)
        names = {match[1].upper() for line in joined.splitlines() if (match := _INSTRUCTION.fullmatch(line))}
        if missing := sorted(names - _COPYING):
            log += f"instructions of the Dockerfile that executor 'local' leaves out: {', '.join(missing)}\n"
        return Built(f"{_PREFIX}{context.digest}", log)

    def has(self, snapshot_id: str) -> bool:
        return self._folder(snapshot_id) is not None

    def run(self, rollout: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        folder = self._folder(rollout.snapshot_id)
        if rollout.entrypoint == HARBOR_TASK and folder is not None:
            return self._trials.run(rollout, folder, is_cancelled)
        ends, secrets = dict[str, CaseEnd | None](), Secrets([], rollout.secrets.values())
        try:
            execution = run_in_containers(rollout, lambda spec: self._open(spec, ends, is_cancelled), is_cancelled)
        except CancelledError:
            error = "cancelled while it waited for a free place"
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error=error)
        except DataError as error:
            # asking again does not help
            role = next(reversed(ends))
            cause = FailureCause.UNCLASSIFIED if role == "agent" else FailureCause.VERIFIER_FAILED
            reason = f"the {role}'s box: {secrets.redact(str(error))}"
            return Execution(SuccessStatus.APPLY_FAILED, failure_cause=cause, error=reason)
        return _describe(execution, ends, secrets)

    def close(self) -> None:
        self._jails.close()

    @contextmanager
    def _open(
        self, spec: ContainerSpec, ends: dict[str, CaseEnd | None], is_cancelled: Callable[[], bool]
    ) -> "Iterator[JailContainer]":
        """Give a container that nothing ran in, and keep its end in `ends`."""

        def glance() -> None:
            if is_cancelled():
                raise CancelledError

        ends[spec.role] = None
        folder = self._folder(spec.snapshot_id)
        if folder is None:
            raise HarborError(f"local: snapshot {spec.snapshot_id!r} is gone; build the deployment again")
        if folder not in self._sizes_mb:
            # how much memory a copy takes, rounded up
            pages = sum(-(-path.lstat().st_size // _PAGE_BYTES) + 1 for path in folder.rglob("*"))
            self._sizes_mb[folder] = -(-pages * _PAGE_BYTES // (1 << 20))
        size_mb, disk_mb = self._sizes_mb[folder], spec.rollout.limits.disk_mb
        if size_mb >= disk_mb:
            raise DataError(f"the context takes {size_mb} MB, and disk_mb is {disk_mb}; raise it")
        case = case_of(spec, folder, self._config.runs_own)
        kind = JailKind(Snapshot(folder), folder.stat().st_ino, case_limits(spec, size_mb))
        with self._jails.take(kind, glance) as jail:
            container = JailContainer(jail, case, spec, self._config.runs_own, lambda: self._jails.is_open)
            yield container
        ends[spec.role] = container.end

    def _folder(self, snapshot_id: str) -> Path | None:
        digest = snapshot_id.removeprefix(_PREFIX)
        is_ours = snapshot_id.startswith(_PREFIX) and _DIGEST.fullmatch(digest)
        return self._snapshots.path(digest) if is_ours else None


def _describe(execution: Execution, ends: dict[str, CaseEnd | None], secrets: Secrets) -> Execution:
    """Return `execution` with what the ends of its containers say besides."""
    details, error = dict(execution.details), execution.error
    for role, end in ends.items():
        if end is None:
            continue
        if end.exit_code:
            details["exit_code" if role == "agent" else "verifier_exit_code"] = end.exit_code
        if execution.reward is None and role == next(reversed(ends)):
            reason = _describe_end(end, secrets)
            error = "; ".join(filter(None, (error, "" if error and reason.endswith(error) else reason)))
    return replace(execution, details=details, error=error)


def _describe_end(end: CaseEnd, secrets: Secrets) -> str:
    """Return what helps a reader of a rollout without a reward."""
    refused = end.left_out.get(OUTPUT_PATH.removeprefix("/"), TOO_LARGE)
    reasons = [_BROKEN_OFF.get(end.verdict, ""), "" if refused == TOO_LARGE else f"{OUTPUT_PATH} {refused}"]
    if end.exit_code and end.stderr:
        errors = secrets.redact(end.stderr.decode("utf-8", "replace"))
        reasons.append(f"its last words: {find_message(errors)[:_SHOWN_ERRORS]}")
    return "; ".join(filter(None, reasons))


@dataclass(frozen=True, slots=True)
class JailKind:
    """What containers have to have in common to be cases of one jail."""

    snapshot: Snapshot
    inode: int
    """Of the folder: one that was removed and made again is another one."""
    limits: CaseLimits


class JailPool:
    """Open jails by their kind; safe to use from many threads.

    Up to `capacity` stay open, those of the `at_once` cases that run included.
    """

    def __init__(self, config: JailConfig, runs_own: bool, at_once: int, capacity: int) -> None:
        self._config, self._runs_own = config, runs_own
        self._at_once, self._capacity = at_once, max(capacity, at_once)
        self._changed = threading.Condition()
        self._idle: list[tuple[JailKind, Jail]] = []
        self._running = 0
        self.is_open = True

    @contextmanager
    def take(self, kind: JailKind, glance: Callable[[], None]) -> Iterator[Jail]:
        """Give a jail to one caller; `glance` is called while there is none, and may raise.

        Raises:
            HarborError: it does not open, or does not reach the level that is required.
        """
        while (place := self._place(kind)) is None:
            glance()
        jail, oldest = place
        try:
            if oldest is not None:
                oldest.close()
            if jail is None:
                config = self._config.model_copy(update={"limits": kind.limits})
                try:
                    jail = open_jail(config, kind.snapshot, self._runs_own)
                except (SandboxError, ConfigError) as error:
                    raise HarborError(f"local: {error}") from error
            yield jail
        finally:
            with self._changed:
                self._running -= 1
                is_kept = jail is not None and self.is_open
                if is_kept and jail is not None:
                    self._idle.append((kind, jail))
                self._changed.notify_all()
            if jail is not None and not is_kept:
                jail.close()

    def close(self) -> None:
        """Close all of them, once those that are in use were let go: containers look whether they are still open."""
        with self._changed:
            self.is_open = False
            idle, self._idle = self._idle, []
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._running == 0, _ENDS_WITHIN_S)
        for _, jail in idle:
            jail.close()

    def _place(self, kind: JailKind) -> tuple[Jail | None, Jail | None] | None:
        """Return an open jail or None for a new one, and one that has to be closed for that; None where all are in use."""
        with self._changed:
            if self.is_open and self._running >= self._at_once:
                self._changed.wait(_POLL_S)
            if not self.is_open:
                raise HarborError("local: the executor is closed; open another one")
            if self._running >= self._at_once:
                return None
            self._running += 1
            # the last that was used is the one whose memory is still warm
            for index in reversed(range(len(self._idle))):
                if self._idle[index][0] == kind:
                    return self._idle.pop(index)[1], None
            is_full = self._running + len(self._idle) > self._capacity
            return None, self._idle.pop(0)[1] if is_full and self._idle else None


class JailContainer:
    """A case of a jail, as `containers.Container` has it; what it left is read with its end."""

    def __init__(
        self, jail: Jail, case: Case, spec: ContainerSpec, runs_own: bool, is_wanted: Callable[[], bool]
    ) -> None:
        self._jail, self._case, self._spec = jail, case, spec
        self._runs_own, self._is_wanted = runs_own, is_wanted
        self.end: CaseEnd | None = None
        """How it ended; None before that."""

    @property
    def limits_enforced(self) -> Mapping[str, Any]:
        isolation, limits = self._jail.isolation, self._spec.rollout.limits
        features = isolation.features
        return {
            "isolation": isolation.level,
            "implementation": isolation.implementation,
            "features": list(features),
            "timeout_s": self._spec.timeout_s,
            "cpu_cores": min(limits.cpu_cores, len(os.sched_getaffinity(0))),
            "memory_mb": limits.memory_mb,
            "memory_is_of": "all processes together" if "total_memory" in features else "each process",
            "disk_mb": limits.disk_mb if "disk_limits" in features else None,
            "network": "none" if "seccomp" in features else "open",
            "runs_own": self._runs_own,
        }

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        def glance() -> None:
            if not self._is_wanted():
                raise HarborError("local: the executor was closed while the box ran")
            if is_cancelled():
                raise CancelledError

        try:
            end = self.end = self._jail.run(self._case, glance)
        except CancelledError:
            return ContainerExit("cancelled")
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error
        # as shells say it, of what a signal ended
        killed_code = 128 + end.signal if end.signal is not None else 1
        separator = b"\n" if end.stdout and end.stderr and not end.stdout.endswith(b"\n") else b""
        return ContainerExit(
            "timeout" if end.verdict in _TIMEOUTS else "exited",
            end.exit_code if end.verdict is Verdict.OK or end.exit_code is not None else killed_code,
            end.verdict is Verdict.OUT_OF_MEMORY,
            end.usage.wall_s,
            b"" if end.verdict in _BROKEN_OFF else find_object(end.stdout) or b"",
            (end.stdout + separator + end.stderr)[-KEPT_LOG_BYTES:],
            end.usage.files_mb,
        )

    def read(self, path: str, limit: int) -> bytes | None:
        assert self.end is not None
        name = path.removeprefix("/")
        if self.end.verdict in _BROKEN_OFF:
            return None
        if self.end.left_out.get(name) == TOO_LARGE:
            return bytes(limit + 1)
        content = self.end.files.get(name)
        return content if content is None else content[: limit + 1]

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        assert self.end is not None
        check_artifacts(self.end)
        files = {path.removeprefix(WORK): data for path, data in self.end.files.items() if path.startswith(WORK)}
        return {path: data for path, data in files.items() if can_travel(path)}
