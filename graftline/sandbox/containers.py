"""Containers of this machine: the layers of an image as a root, and commands that run in it (`inside.container_server`).

Only root can make one, for the files of images belong to many users. Nothing but the kernel stands between a container and
the machine: weaker than a virtual machine, as with any container engine. Where control groups can be had, memory, processes
and processor time of all that runs in it are limited together; its disk, where a file system can be made in a file.
"""

import json
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.inner_process import InnerProcess
from graftline.sandbox.inside.container_server import KEPT_BYTES
from graftline.sandbox.jail.cgroups import ControlGroup
from graftline.sandbox.jail.served import CaseFolder, end_all
from graftline.sandbox.jail.visible import interpreter

Network = Literal["none", "host"]
"""None but its own loopback, or that of the machine, with all that listens there."""
_START_S, _MARGIN_S, _SAVING_S = 60.0, 60.0, 1800.0
_HEAD_BYTES, _LOOK_S = 1 << 16, 0.1
_PROCESSES = 4096
_EMPTY = ".empty"


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command in a container ended."""

    status: int | None
    """None where its time was up; negative for a signal."""
    output: bytes
    """The end of what it printed."""
    seconds: float
    is_out_of_memory: bool = False


class LinuxContainer:
    """One container, started at once. Not safe to use from several threads."""

    def __init__(
        self,
        layers_folder: Path,
        layers: Sequence[str],
        *,
        upper: Path | None = None,
        archive: Path | None = None,
        network: Network = "none",
        memory_mb: int = 4096,
        disk_mb: int | None = 10240,
        cores: int = 2,
    ) -> None:
        """Start it on `layers`, the lowest first, which are folders below `layers_folder`.

        Args:
            layers_folder: Holds the layers, and nothing that a container changes.
            layers: Their names.
            upper: Takes what is changed, to be a layer itself, once `save` is called; without it, that is gone with the
                container.
            archive: What `unpack` unpacks.
            network: What it reaches.
            memory_mb: Of all of its processes, with the files that they keep in memory.
            disk_mb: Of what it changes; None for no limit.
            cores: Whose time it may use.

        Raises:
            SandboxError: it does not start; the message says what is missing.
        """
        self.features: tuple[str, ...] = ("namespaces", "seccomp")
        self.network, self.memory_mb, self.disk_mb, self.cores = network, memory_mb, disk_mb, cores
        if os.getuid() != 0:
            raise SandboxError("a container of an image: only root can make one here; or take the executor docker")
        self._server: InnerProcess | None = None
        self._group: ControlGroup | None = None
        self._case_folder = CaseFolder(None)
        self._folder = Path(self._case_folder.path)
        self._folder.chmod(0o755)
        try:
            self._start(layers_folder, layers, upper, archive, memory_mb, disk_mb, cores)
        except OSError as error:
            self.close()
            raise SandboxError(f"a container of an image does not start ({error!r})") from error
        except BaseException:
            self.close()
            raise

    def _start(
        self,
        layers_folder: Path,
        layers: Sequence[str],
        upper: Path | None,
        archive: Path | None,
        memory_mb: int,
        disk_mb: int | None,
        cores: int,
    ) -> None:
        (layers_folder / _EMPTY).mkdir(exist_ok=True)
        for name in ("root", "disk"):
            (self._folder / name).mkdir()
        # beside what it is copied to, for the temporary folder may be in memory
        place = upper.parent if upper else self._folder
        disk = _make_disk(place / "disk.ext4", disk_mb) if disk_mb else None
        is_changed_in_place = upper is not None and disk is None
        self._group = ControlGroup(f"c{secrets.token_hex(4)}", memory_mb, _PROCESSES, cores)
        self.features += (*self._group.features, *(("disk_limits",) if disk else ()))
        settings = {
            "layers_folder": str(layers_folder),
            "layers": [*reversed(layers), _EMPTY],
            "upper": str(upper if is_changed_in_place else self._folder / "disk" / "upper"),
            "disk": disk and str(disk),
            "saved": None if upper is None or is_changed_in_place else str(upper),
            "root": str(self._folder / "root"),
            "archive": archive and str(archive),
            "shares_network": self.network == "host",
        }
        python = interpreter(is_other_user=False)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
        self._server = InnerProcess(python.command("graftline.sandbox.inside.container_server"), environment)
        self._group.add(self._server.pid)
        deadline = time.monotonic() + _START_S
        try:
            self._server.send(json.dumps(settings).encode(), deadline)
            answer = json.loads(self._server.receive(_HEAD_BYTES, deadline))
        except (OSError, ValueError, EOFError) as error:
            raise SandboxError(f"a container of an image does not start ({error!r})") from error
        if "error" in answer:
            raise SandboxError(f"a container of an image does not start ({answer['error']})")

    def run(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        folder: str = "/",
        user: str = "",
        timeout_s: float,
        output: str = "",
        glance: Callable[[], None] | None = None,
    ) -> CommandEnd:
        """Run a command to its end or that of its time; what it leaves running goes on.

        `output` is the file of the container that takes what it prints. `glance` is called a few times a second; what it raises
        ends the container, and is raised. SandboxError if the container failed.
        """
        request = {"op": "run", "words": [*words], "env": dict(env), "folder": folder, "user": user}
        kills = self._group.kills if self._group else 0
        answer, printed = self._ask({**request, "timeout_s": timeout_s, "output": output}, b"", timeout_s, glance)
        is_short = bool(self._group and self._group.kills > kills)
        return CommandEnd(answer["status"], printed, float(answer["seconds"]), is_short)

    def put(self, folder: str, archive: bytes) -> None:
        """Unpack a tar into a folder of the container. DataError if it cannot be."""
        self._ask({"op": "put", "folder": folder}, archive)

    def unpack(self) -> None:
        """Unpack the archive that it was started with. DataError if it cannot be."""
        self._ask({"op": "unpack"}, None, timeout_s=1800)

    def get(self, path: str, limit: int) -> bytes:
        """Return a tar of the regular files at or below a path, named relative to it; empty where there is nothing.

        Raises:
            DataError: it cannot be read, or has more than `limit` bytes.
        """
        return self._ask({"op": "get", "path": path, "limit": limit}, None, most=2 * limit + (64 << 20))[1]

    def save(self) -> None:
        """End all that runs in it, and have `upper` hold what it changed. DataError if that cannot be copied."""
        try:
            self._ask({"op": "save"}, None, _SAVING_S)
        finally:
            self.close()

    def close(self) -> None:
        """End all that runs in it, and remove what it changed. A second call does nothing."""
        end_all(self._server, self._group, self._case_folder)
        self._server = self._group = None

    def _ask(
        self,
        request: Mapping[str, Any],
        body: bytes | None,
        timeout_s: float = 0.0,
        glance: Callable[[], None] | None = None,
        most: int = KEPT_BYTES,
    ) -> tuple[dict[str, Any], bytes]:
        if self._server is None:
            raise SandboxError("a container of an image: is closed")
        deadline = time.monotonic() + timeout_s + _MARGIN_S
        try:
            self._server.send(json.dumps(request).encode(), deadline)
            if request["op"] == "put":
                self._server.send(body or b"", deadline)
            while glance and not self._server.is_ready(_LOOK_S) and time.monotonic() < deadline:
                glance()
            answer: dict[str, Any] = json.loads(self._server.receive(_HEAD_BYTES, deadline))
            content = self._server.receive(most, deadline)
        except (OSError, ValueError, EOFError) as error:
            self.close()
            raise SandboxError(f"a container of an image: its first process is gone ({error!r})") from error
        except BaseException:
            self.close()
            raise
        if "error" in answer:
            raise DataError(answer["error"])
        return answer, content


def _make_disk(path: Path, size_mb: int) -> Path | None:
    """Return a file that holds an empty file system of a size; None where this machine cannot mount one."""
    program = shutil.which("mkfs.ext4", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if program is None or not Path("/dev/loop-control").exists():
        return None
    with path.open("wb") as file:
        file.truncate(size_mb << 20)
    with suppress(OSError, subprocess.CalledProcessError):
        options = ["-q", "-F", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard"]
        subprocess.run([program, *options, path], check=True, capture_output=True)
        return path
    return None
