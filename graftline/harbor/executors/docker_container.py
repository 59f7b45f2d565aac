"""One container of a Docker engine: filled, run, read. `docker.py` makes and removes it."""

import socket
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal

from graftline.core.errors import HarborError
from graftline.harbor.executors.archives import (
    MAX_ARTIFACT_BYTES,
    pack,
    read_file,
    read_files,
    relative,
    strip_folder,
)
from graftline.harbor.executors.containers import KEPT_LOG_BYTES, VERIFIER_FOLDER, ContainerExit, ContainerSpec
from graftline.harbor.results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from docker import APIClient

_SHOWN = 500
_CONFLICT = 409
_FIRST_LOOK_S, _LONGEST_PAUSE_S, _DEATH_S = 0.01, 0.25, 30.0

_How = Literal["exited", "timeout", "cancelled"]


@contextmanager
def translate_faults(attempted: str, passed_on: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn faults of the engine, and of the way to it, into HarborError; kinds in `passed_on` stay as they are."""
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except passed_on:
        raise
    except APIError as error:
        fault = HarborError(f"docker: cannot {attempted}: {str(error.explanation or error)[:_SHOWN]}")
        fault.status = error.status_code
        raise fault from None
    except (DockerException, RequestException, HTTPError, OSError) as error:
        raise HarborError(
            f"docker: cannot {attempted} ({str(error)[:_SHOWN]}); check that the engine runs, and base_url or DOCKER_HOST"
        ) from None


class DockerContainer:
    """A `Container` of `engine`; `folder` is its working folder."""

    def __init__(
        self,
        engine: "APIClient",
        container_id: str,
        spec: ContainerSpec,
        folder: str,
        limits_enforced: Mapping[str, Any],
    ) -> None:
        self._engine, self._id, self._spec, self._folder = engine, container_id, spec, folder
        self.limits_enforced = limits_enforced

    def fill(self) -> "DockerContainer":
        """Put in what the spec has."""
        for part in self._spec.parts:
            self._lay(part)
        for path, content in self._spec.inputs.items():
            place = PurePosixPath(path)
            self._put(str(place.parent), pack({place.name: content}))
        if self._spec.role == "verifier":
            self._put("/", pack({}, {VERIFIER_FOLDER.lstrip("/"): 0o777}))
        work = PurePosixPath(self._folder)
        # an agent must not bring the verdict along
        files = {
            path: data for path, data in self._spec.files.items() if not (work / path).is_relative_to(VERIFIER_FOLDER)
        }
        if files:
            self._put(self._folder, pack(files))
        return self

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        stdin = self._spec.stdin
        is_stdio = stdin is not None
        with self._attach(stdin) as send:
            with translate_faults("start a container"):
                self._engine.start(self._id)
            began = time.monotonic()
            send()
            how, state = self._wait(began, is_cancelled)
            seconds = time.monotonic() - began
        stdout = self._read_log(stdout=True, stderr=False, limit=MAX_RESULT_BYTES + 1) if is_stdio else b""
        log = self._read_log(stdout=not is_stdio, stderr=True, limit=None)
        return ContainerExit(how, state.get("ExitCode"), bool(state.get("OOMKilled")), seconds, stdout, log)

    def read(self, path: str, limit: int) -> bytes | None:
        with self._archive(path) as chunks:
            return read_file(chunks, PurePosixPath(path).name, limit)

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        files: dict[str, bytes] = {}
        for path in paths:
            remaining = MAX_ARTIFACT_BYTES - sum(map(len, files.values()))
            with self._archive(str(PurePosixPath(self._folder) / relative(path))) as chunks:
                files.update(read_files(chunks, (path,), relative(path).parent, remaining))
        return files

    def _wait(self, began: float, is_cancelled: Callable[[], bool]) -> tuple[_How, Mapping[str, Any]]:
        """Wait for the end, or bring it about."""
        pause_s = _FIRST_LOOK_S
        while True:
            state = self._state()
            if not state.get("Running"):
                if reason := state.get("Error"):
                    raise HarborError(f"docker: the container failed: {reason}")
                return "exited", state
            if is_cancelled():
                return "cancelled", self._kill()
            if time.monotonic() - began >= self._spec.timeout_s:
                return "timeout", self._kill()
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _kill(self) -> Mapping[str, Any]:
        """Kill everything in the container, and return its state once that is dead."""
        try:
            with translate_faults("kill a container"):
                self._engine.kill(self._id, "SIGKILL")
        except HarborError as error:
            if error.status != _CONFLICT:  # which says that it ended by itself just now
                raise
        until = time.monotonic() + _DEATH_S
        while (state := self._state()).get("Running"):
            if time.monotonic() > until:
                raise HarborError(f"docker: a container that was killed still runs after {_DEATH_S:.0f} s")
            time.sleep(_FIRST_LOOK_S)
        return state

    def _state(self) -> Mapping[str, Any]:
        with translate_faults("look at a container"):
            state: Mapping[str, Any] = self._engine.inspect_container(self._id)["State"]
            return state

    @contextmanager
    def _attach(self, stdin: bytes | None) -> Iterator[Callable[[], None]]:
        """Yield what begins to send `stdin` to the container, if there is any."""
        if stdin is None:
            yield lambda: None
            return
        with translate_faults("attach to a container"):
            stream = self._engine.attach_socket(self._id, {"stdin": 1, "stream": 1})
        # of TLS the client returns the socket itself; `stream` keeps it from being closed
        line: socket.socket = getattr(stream, "_sock", stream)
        line.settimeout(None)

        def send() -> None:
            with suppress(OSError):  # a program that does not read its input has ended, or will
                line.sendall(stdin)
                line.shutdown(socket.SHUT_WR)

        try:
            # a request that is larger than what a pipe holds waits for a reader
            yield threading.Thread(target=send, daemon=True).start
        finally:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
            stream.close()

    def _read_log(self, stdout: bool, stderr: bool, limit: int | None) -> bytes:
        """Return the first `limit` bytes of what was printed, or the end of it."""
        content = bytearray()
        with translate_faults("read what a container printed"):
            frames = self._engine.logs(self._id, stdout=stdout, stderr=stderr, stream=True, follow=False)
            for frame in frames:
                content += frame
                if limit is not None and len(content) >= limit:
                    # of a stream that was read to its end there is nothing to close, and the client fails at it
                    frames.close()
                    break
                if limit is None and len(content) > 4 * KEPT_LOG_BYTES:
                    del content[:-KEPT_LOG_BYTES]
        return bytes(content[:limit] if limit is not None else content[-KEPT_LOG_BYTES:])

    @contextmanager
    def _archive(self, path: str) -> Iterator[Iterable[bytes]]:
        """Yield the tar of a file or a folder, as it comes; nothing where there is neither."""
        from docker.errors import NotFound

        try:
            with translate_faults("read from a container", (NotFound,)):
                chunks, _ = self._engine.get_archive(self._id, path)
        except NotFound:
            yield ()
            return
        with translate_faults("read from a container"), closing(chunks):
            yield chunks
            # a connection that was read to its end is used again; one with much more to come is not worth it
            deque(islice(chunks, 2), maxlen=0)

    def _lay(self, part: str) -> None:
        """Lay the content of a folder of the image over the working folder; nothing runs yet that could change it."""
        place = str(PurePosixPath(self._folder) / relative(part))
        with self._archive(place) as chunks, tempfile.TemporaryFile() as archive:
            if not strip_folder(chunks, archive):
                raise HarborError(
                    f"docker: folder {part!r} is not in the working folder of the image, {self._folder}; COPY the context"
                    " there"
                )
            archive.seek(0)
            self._put(self._folder, archive)

    def _put(self, folder: str, archive: bytes | IO[bytes]) -> None:
        with translate_faults("write into a container"):
            if not self._engine.put_archive(self._id, folder, archive):
                raise HarborError(f"docker: cannot write into {folder!r} of a container")
