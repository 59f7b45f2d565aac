"""One container of a Docker engine: filled, run, read. `docker.py` makes and removes it."""

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import PurePosixPath
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any, Literal

from graftline.core.errors import HarborError
from graftline.harbor.executors.archives import (
    MAX_ARTIFACT_BYTES,
    file_in,
    files_in,
    packed,
    packed_folder,
    relaid,
    relative,
)
from graftline.harbor.executors.containers import KEPT_LOG_BYTES, VERIFIER_FOLDER, ContainerExit, ContainerSpec
from graftline.harbor.results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from docker import APIClient

_FIRST_LOOK_S, _LONGEST_PAUSE_S, _DEATH_S = 0.01, 0.25, 30.0
_SHOWN = 500
_CONFLICT = 409

_How = Literal["exited", "timeout", "cancelled"]


@contextmanager
def engine_fault(attempted: str, passed_on: tuple[type[Exception], ...] = ()) -> Iterator[None]:
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
        order: ContainerSpec,
        folder: str,
        limits_enforced: Mapping[str, Any],
        monotonic: Callable[[], float],
    ) -> None:
        self._engine, self._id, self._order, self._folder = engine, container_id, order, folder
        self._monotonic = monotonic
        self.limits_enforced = limits_enforced

    def fill(self, user: str) -> None:
        """Put in what the order has; files belong to `user` where that is a number."""
        for part in self._order.parts:
            self._lay(part)
        number = user.partition(":")[0]
        owner = int(number) if number.isdigit() else 0
        for path, content in self._order.inputs.items():
            place = PurePosixPath(path)
            self._put(str(place.parent), packed({place.name: content}, owner))
        if self._order.role == "verifier" and not self.limits_enforced["is_read_only"]:
            self._put("/", packed_folder(VERIFIER_FOLDER.lstrip("/"), 0o777))
        # an agent must not bring the verdict along
        files = {path: each for path, each in self._order.files.items() if not self._is_verdict(path)}
        if files:
            self._put(self._folder, packed(files, owner))

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        stdin = self._order.stdin
        is_stdio = stdin is not None
        line = self._attached() if is_stdio else None
        try:
            with engine_fault("start a container"):
                self._engine.start(self._id)
            began = self._monotonic()
            if line is not None and stdin is not None:
                # a request that is larger than what a pipe holds waits for a reader
                threading.Thread(target=line.send, args=(stdin,), daemon=True).start()
            how, state = self._watched(began, is_cancelled)
            seconds = self._monotonic() - began
        finally:
            if line is not None:
                line.close()
        stdout = self._printed(stdout=True, stderr=False, most=MAX_RESULT_BYTES + 1) if is_stdio else b""
        log = self._printed(stdout=not is_stdio, stderr=True, most=None)
        is_out_of_memory = bool(state.get("OOMKilled"))
        return ContainerExit(how, state.get("ExitCode"), is_out_of_memory, seconds, stdout, log)

    def read(self, path: str, most: int) -> bytes | None:
        with self._archive(path) as chunks:
            return file_in(chunks, PurePosixPath(path).name, most)

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        files: dict[str, bytes] = {}
        for path in paths:
            left = MAX_ARTIFACT_BYTES - sum(map(len, files.values()))
            with self._archive(str(PurePosixPath(self._folder) / relative(path))) as chunks:
                files.update(files_in(chunks, path, left))
        return files

    def _watched(self, began: float, is_cancelled: Callable[[], bool]) -> tuple[_How, Mapping[str, Any]]:
        """Wait for the end, or bring it about."""
        pause_s = _FIRST_LOOK_S
        while True:
            state = self._state()
            if not state.get("Running"):
                if reason := state.get("Error"):
                    raise HarborError(f"docker: the container failed: {reason}")
                return "exited", state
            how: _How | None = "cancelled" if is_cancelled() else None
            if how is None and self._monotonic() - began >= self._order.timeout_s:
                how = "timeout"
            if how is not None:
                return how, self._killed()
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LONGEST_PAUSE_S)

    def _killed(self) -> Mapping[str, Any]:
        """Kill everything in the container, and return its state once that is dead."""
        from docker.errors import APIError

        try:
            with engine_fault("kill a container", (APIError,)):
                self._engine.kill(self._id, "SIGKILL")
        except APIError as error:
            if error.status_code != _CONFLICT:  # which says that it ended by itself just now
                raise HarborError(f"docker: cannot kill a container: {error.explanation}") from None
        until = time.monotonic() + _DEATH_S
        while (state := self._state()).get("Running"):
            if time.monotonic() > until:
                raise HarborError(f"docker: a container that was killed still runs after {_DEATH_S:.0f} s")
            time.sleep(_FIRST_LOOK_S)
        return state

    def _state(self) -> Mapping[str, Any]:
        with engine_fault("look at a container"):
            state: Mapping[str, Any] = self._engine.inspect_container(self._id)["State"]
            return state

    def _attached(self) -> "_Line":
        with engine_fault("attach to a container"):
            stream = self._engine.attach_socket(self._id, {"stdin": 1, "stream": 1})
        # of TLS the client returns the socket itself
        return _Line(getattr(stream, "_sock", stream), stream)

    def _printed(self, stdout: bool, stderr: bool, most: int | None) -> bytes:
        """Return the first `most` bytes of what was printed, or the end of it."""
        kept = bytearray()
        with engine_fault("read what a container printed"):
            frames = self._engine.logs(self._id, stdout=stdout, stderr=stderr, stream=True, follow=False)
            for frame in frames:
                kept += frame
                if most is not None and len(kept) >= most:
                    # of a stream that was read to its end there is nothing to close, and the client fails at it
                    frames.close()
                    break
                if most is None and len(kept) > 4 * KEPT_LOG_BYTES:
                    del kept[:-KEPT_LOG_BYTES]
        return bytes(kept[:most] if most is not None else kept[-KEPT_LOG_BYTES:])

    @contextmanager
    def _archive(self, path: str) -> Iterator[Iterable[bytes]]:
        """Yield the tar of a file or a folder, as it comes; nothing where there is neither."""
        from docker.errors import NotFound

        try:
            with engine_fault("read from a container", (NotFound,)):
                chunks, _ = self._engine.get_archive(self._id, path)
        except NotFound:
            yield ()
            return
        with engine_fault("read from a container"), closing(chunks):
            yield chunks
            # a connection that was read to its end is used again; one with much more to come is not worth it
            deque(islice(chunks, 2), maxlen=0)

    def _lay(self, part: str) -> None:
        """Lay the content of a folder of the image over the working folder; nothing runs yet that could change it."""
        with self._archive(str(PurePosixPath(self._folder) / relative(part))) as chunks, TemporaryFile() as archive:
            if not relaid(chunks, archive):
                raise HarborError(
                    f"docker: folder {part!r} is not in the working folder of the image, {self._folder}; COPY the context"
                    " there"
                )
            archive.seek(0)
            self._put(self._folder, archive)

    def _put(self, folder: str, archive: bytes | IO[bytes]) -> None:
        with engine_fault("write into a container"):
            if not self._engine.put_archive(self._id, folder, archive):
                raise HarborError(f"docker: cannot write into {folder!r} of a container")

    def _is_verdict(self, path: str) -> bool:
        return (PurePosixPath(self._folder) / path).is_relative_to(VERIFIER_FOLDER)


class _Line:
    """A socket that is attached to the input of a container; `stream` is what keeps the client from closing it."""

    def __init__(self, line: socket.socket, stream: Any) -> None:
        self._line, self._stream = line, stream
        line.settimeout(None)

    def send(self, content: bytes) -> None:
        with suppress(OSError):  # who does not read its input has ended, or will
            self._line.sendall(content)
            self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        self._line.close()
        self._stream.close()
