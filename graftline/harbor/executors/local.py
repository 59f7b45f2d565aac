"""The executor `local`: boxes are jails of this machine, without a container engine.

A snapshot is the context, unpacked once. A Dockerfile is not carried out: what runs are the programs of this machine that
`programs` names, and the log of a build says which instructions were left out. The working folder of a box is a copy of the
snapshot, also at `/app` and `/workspace`; `/tmp` and `/logs` are its own, and LOGS_DIR names the latter. There is no network.
Where the machine has no namespaces and `required_level` says that `confined` will do, `/tmp` and `/logs` are elsewhere:
arguments that name files there are told where, and TMPDIR and LOGS_DIR say it too.

A verifier gets the artifacts over its own files, but for the file that it runs.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import DataError, HarborError
from graftline.core.processes import default_workers
from graftline.core.secrets import Secrets
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import OUTPUT_PATH, BuildContext, Built, Execution, RolloutSpec
from graftline.harbor.executors.boxes import CancelledError, JailedBox, Jails, Kind, case_limits, case_of, size_mb
from graftline.harbor.executors.containers import ContainerSpec, run_in_containers
from graftline.harbor.messages import find_message
from graftline.harbor.snapshots import Snapshots
from graftline.sandbox import CaseEnd, JailConfig, Verdict
from graftline.sandbox.base import IsolationLevel
from graftline.sandbox.inside.files import TOO_LARGE
from graftline.sandbox.jail import Program, Snapshot

_PREFIX = "local-"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t].*)?")
_OF_COPYING = frozenset({"COPY", "WORKDIR", "LABEL", "MAINTAINER"})
_SHOWN_ERRORS = 500
_ENDED = {
    Verdict.OUTPUT_FLOOD: "it printed without end, and was ended",
    Verdict.VIOLATION: "it made a system call that no box may make, and was ended",
    Verdict.CRASH: "it crashed",
}


class LocalExecutorConfig(Config):
    """Jails of this machine."""

    kind: Literal["local"] = "local"
    jail: Literal["namespaces", "subprocess"] = "namespaces"
    """`subprocess` isolates nothing: for contexts of one's own, with `required_level: none`."""
    required_level: IsolationLevel = "namespaces"
    """Without it nothing is run. `confined` accepts a machine that allows no namespaces."""
    programs: tuple[Program, ...] = Field(default=("python", "shell", "node", "cargo"), strict=False, min_length=1)
    """Programs of this machine that a box may run; what is not installed is refused when it is asked for."""
    runs_own: bool = False
    """Whether a box may run programs of the context or built in it, as tests in Rust are."""
    at_once: int | None = Field(default=None, ge=1, le=256)
    """Boxes that run at the same time; without a number, as many as there are cores."""
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
        self._jails = Jails(jail, config.runs_own, config.at_once or default_workers(), config.jails_kept)
        self._sizes: dict[Path, int] = {}
        self._guard = threading.Lock()

    def build(self, context: BuildContext) -> Built:
        is_new = self._snapshots.path(context.digest) is None
        self._snapshots.add(context.digest, context.archive)
        log = "the context was unpacked\n" if is_new else "the context was there already\n"
        return Built(f"{_PREFIX}{context.digest}", log + _left_out(context.dockerfile))

    def has(self, snapshot_id: str) -> bool:
        return self._folder(snapshot_id) is not None

    def run(self, box: RolloutSpec, is_cancelled: Callable[[], bool]) -> Execution:
        boxes, secrets = _Boxes(), Secrets([], box.secrets.values())
        try:
            execution = run_in_containers(box, lambda order: self._opened(order, boxes, is_cancelled), is_cancelled)
        except CancelledError:
            error = "cancelled while it waited for a free place"
            return Execution(SuccessStatus.FAILURE, failure_cause=FailureCause.CANCELLED, error=error)
        except DataError as error:
            return boxes.refused(secrets.redact(str(error)))
        return boxes.described(execution, box, secrets)

    def close(self) -> None:
        self._jails.close()

    @contextmanager
    def _opened(self, order: ContainerSpec, boxes: "_Boxes", is_cancelled: Callable[[], bool]) -> Iterator[JailedBox]:
        """Give a box that nothing ran in, and keep its end in `boxes`.

        Raises:
            DataError: the deployment or the rollout asks for what no box can give.
            HarborError: there is no box to be had.
        """

        def glance() -> None:
            if is_cancelled():
                raise CancelledError

        boxes.role = order.role
        folder = self._folder(order.snapshot_id)
        if folder is None:
            raise HarborError(f"local: snapshot {order.snapshot_id!r} is gone; build the deployment again")
        size, limits = self._size_mb(folder), order.box.limits
        if size >= limits.disk_mb:
            raise DataError(f"the context takes {size} MB, and disk_mb is {limits.disk_mb}; raise it")
        case = case_of(order, folder, self._config.runs_own)
        kind = Kind(Snapshot(folder), folder.stat().st_ino, case_limits(order, size))
        with self._jails.taken(kind, glance) as jail:
            opened = JailedBox(jail, case, order, self._config.runs_own, lambda: self._jails.is_open)
            yield opened
        boxes.ends[order.role] = opened.end

    def _folder(self, snapshot_id: str) -> Path | None:
        digest = snapshot_id.removeprefix(_PREFIX)
        is_ours = snapshot_id.startswith(_PREFIX) and _DIGEST.fullmatch(digest)
        return self._snapshots.path(digest) if is_ours else None

    def _size_mb(self, folder: Path) -> int:
        with self._guard:
            if folder not in self._sizes:
                self._sizes[folder] = size_mb(folder)
            return self._sizes[folder]


@dataclass(slots=True)
class _Boxes:
    """What is known of the boxes of one rollout."""

    role: Literal["agent", "verifier"] = "agent"
    """Of the last that was asked for."""
    ends: dict[str, CaseEnd | None] = field(default_factory=dict)

    def refused(self, why: str) -> Execution:
        """Return the end of a rollout that asks for what no box can give; asking again does not help."""
        cause = FailureCause.UNCLASSIFIED if self.role == "agent" else FailureCause.VERIFIER_FAILED
        return Execution(SuccessStatus.APPLY_FAILED, failure_cause=cause, error=f"the {self.role}'s box: {why}")

    def described(self, execution: Execution, box: RolloutSpec, secrets: Secrets) -> Execution:
        """Return `execution` with what the ends of its boxes say besides."""
        details = dict(execution.details)
        if "reported_reward" in details and box.verifier is not None:
            details["agent_said"] = details.pop("reported_reward")
        error = execution.error
        for role, end in self.ends.items():
            if end is None:
                continue
            if end.exit_code:
                details["exit_code" if role == "agent" else "verifier_exit_code"] = end.exit_code
            if execution.reward is None and role == self.role:
                more = _more_of(end, secrets)
                error = "; ".join(filter(None, (error, "" if error and more.endswith(error) else more)))
        return replace(execution, details=details, error=error)


def _more_of(end: CaseEnd, secrets: Secrets) -> str:
    """Return what helps whoever reads that there is no reward."""
    result = OUTPUT_PATH.removeprefix("/")
    why_not = end.left_out.get(result, TOO_LARGE)
    said = [_ENDED.get(end.verdict, ""), "" if why_not == TOO_LARGE else f"{OUTPUT_PATH} {why_not}"]
    if end.exit_code and end.stderr:
        errors = secrets.redact(end.stderr.decode("utf-8", "replace"))
        said.append(f"its last words: {find_message(errors)[:_SHOWN_ERRORS]}")
    return "; ".join(filter(None, said))


def _left_out(dockerfile: str) -> str:
    """Return which instructions of a Dockerfile somebody may miss."""
    joined = re.sub(r"\\[ \t]*\n", " ", dockerfile)
    names = [found[1].upper() for line in joined.splitlines() if (found := _INSTRUCTION.fullmatch(line))]
    missed = sorted(set(names) - _OF_COPYING)
    if not missed:
        return ""
    return f"instructions of the Dockerfile that executor 'local' leaves out: {', '.join(missed)}\n"
