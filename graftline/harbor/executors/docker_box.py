"""A container of a Docker engine as the box of a Harbor task: commands run in it one after the other, by `exec`."""

import io
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from graftline.core.errors import DataError, HarborError
from graftline.harbor.executors.archives import members, read_file
from graftline.harbor.executors.base import LOG_BYTES
from graftline.harbor.executors.docker_container import translate_faults
from graftline.sandbox.containers import CommandEnd

if TYPE_CHECKING:
    from docker import APIClient

ENTRYPOINT = ("sh", "-c", "while :; do sleep 3600; done")
"""What the first process of a box does, behind the entrypoint of its image: nothing, for as long as it is there."""
_GROUP, _OUTPUT, _PRINTED = "/tmp/.graftline-group", "/tmp/.graftline-output", "/tmp/.graftline-printed"
_PRINTING_S = 60.0
_KILLS = "grep '^oom_kill ' /sys/fs/cgroup/memory.events"
_BEGIN = f'echo $$ > {_GROUP}; output="$1"; shift; exec "$@" > "$output" 2>&1 < /dev/null'
_KILL = f'kill -s KILL -- "-$(cat {_GROUP})"'
_KILLED = 137
_FIRST_LOOK_S, _LONGEST_PAUSE_S = 0.02, 0.5
_BRIDGE = "bridge"


class DockerBox:
    """A `Box` of `engine`."""

    def __init__(
        self,
        engine: "APIClient",
        container_id: str,
        workdir: str,
        limits: Mapping[str, Any],
        glance: Callable[[], None],
    ) -> None:
        self._engine, self._id, self._glance = engine, container_id, glance
        self.workdir, self.limits_enforced = workdir, limits
        self._is_public = limits["network"] == _BRIDGE
        self._is_switched = self._is_public

    def run(
        self, words: Sequence[str], env: Mapping[str, str], folder: str, user: str, timeout_s: float, output: str = ""
    ) -> CommandEnd:
        command = ["sh", "-c", _BEGIN, "sh", output or _OUTPUT, *words]
        began = time.monotonic()
        status = self._execute(command, began + timeout_s, dict(env), folder, user)
        seconds = time.monotonic() - began
        if status is None:
            self._print(_KILL)
        printed = self._print(f'tail -c {LOG_BYTES} "$0"', output or _OUTPUT)
        events = self._print(_KILLS) if status == _KILLED else b""
        return CommandEnd(status, printed, seconds, bool(events.strip()) and b"oom_kill 0" not in events)

    def _execute(
        self, command: list[str], deadline: float, env: dict[str, str] | None = None, folder: str = "/", user: str = "0"
    ) -> int | None:
        """Return the status of a command; None where its time was up."""
        with translate_faults("run a command in a container"):
            execution = self._engine.exec_create(self._id, command, environment=env, workdir=folder, user=user)["Id"]
            # what it prints goes to a file: of a line that is attached, the client may lose the beginning
            self._engine.exec_start(execution, detach=True)
        pause_s = _FIRST_LOOK_S
        while True:
            with translate_faults("look at a command in a container"):
                state = self._engine.exec_inspect(execution)
            if not state.get("Running"):
                return int(state.get("ExitCode") or 0)
            if time.monotonic() >= deadline:
                return None
            self._glance()
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def put(self, folder: str, archive: bytes) -> None:
        self._print('mkdir -p "$0"', folder)
        with translate_faults("write into a container"):
            if not self._engine.put_archive(self._id, folder, archive):
                raise HarborError(f"docker: cannot write into {folder!r} of a container")

    def get(self, path: str, limit: int) -> bytes:
        from docker.errors import NotFound

        top, target, remaining = PurePosixPath(path).name, io.BytesIO(), limit
        try:
            with translate_faults("read from a container", (NotFound,)):
                chunks, _ = self._engine.get_archive(self._id, path)
        except NotFound:
            return b""
        with translate_faults("read from a container"), closing(chunks), tarfile.open(fileobj=target, mode="w") as tar:
            count = 0
            for member, content in members(chunks, limit + (64 << 20)):
                name = member.name.strip("/")
                member.name = name if name == top else name.removeprefix(f"{top}/")
                if not (member.isreg() or (member.isdir() and name != top)) or ".." in member.name.split("/"):
                    continue
                remaining -= member.size
                if remaining < 0:
                    raise DataError(f"{path}: more than {limit} bytes")
                tar.addfile(member, content)
                count += 1
        return target.getvalue() if count else b""

    def set_network(self, is_public: bool) -> None:
        if not self._is_switched or is_public == self._is_public:
            return
        with translate_faults("change the network of a container"):
            if is_public:
                self._engine.connect_container_to_network(self._id, _BRIDGE)
            else:
                self._engine.disconnect_container_from_network(self._id, _BRIDGE, force=True)
        self._is_public = is_public

    def _print(self, script: str, *arguments: str) -> bytes:
        """Run a short script as root, and return what it prints."""
        self._execute(
            ["sh", "-c", f"{{ {script}; }} > {_PRINTED} 2> /dev/null", *arguments], time.monotonic() + _PRINTING_S
        )
        with translate_faults("read from a container"):
            chunks, _ = self._engine.get_archive(self._id, _PRINTED)
            with closing(chunks):
                return read_file(chunks, PurePosixPath(_PRINTED).name, LOG_BYTES) or b""
