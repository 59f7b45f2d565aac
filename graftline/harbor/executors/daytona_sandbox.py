"""One sandbox of Daytona: filled, run, read. `daytona.py` creates and deletes it.

What runs is started in the background by one short call and looked at by others, so that no call lasts as long as an
attempt. It knows of the files by which it is looked at, and can lie there about its own end; about a reward it cannot, for
that is said by a box that it never sees.
"""

import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from graftline.core.errors import HarborError
from graftline.harbor.executors.archives import MAX_ARTIFACT_BYTES, files_below, relative
from graftline.harbor.executors.containers import KEPT_LOG_BYTES, VERIFIER_FOLDER, ContainerExit, ContainerSpec
from graftline.harbor.results import MAX_RESULT_BYTES

if TYPE_CHECKING:
    from daytona import Sandbox

T = TypeVar("T")

_FOLDER = "/tmp/.graftline"
_CODE, _GROUP, _STDIN, _STDOUT, _STDERR = (f"{_FOLDER}/{name}" for name in ("code", "group", "stdin", "out", "err"))
_ARTIFACTS = f"{_FOLDER}/artifacts.tar"
_KILLED = 137
_CALL_S = 60
_ABSENT = (400, 403, 404)
_SHOWN = 500
_TOO_MANY = 429


def asked(attempted: str, call: Callable[[], T], patience_s: float) -> T:
    """Return what `call` returns; it is repeated while it is refused for the rate of calls.

    Raises:
        HarborError: it failed; its `status` is that of the answer, where there was one.
    """
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
    for name, value in headers.items():
        if name.lower() == "retry-after" and str(value).isdigit():
            return float(value)
    return 0.0


class DaytonaSandbox:
    """A `Container` that is `sandbox`."""

    def __init__(
        self,
        sandbox: "Sandbox",
        order: ContainerSpec,
        patience_s: float,
        poll_s: float,
        network: str,
        monotonic: Callable[[], float],
    ) -> None:
        self._sandbox, self._order, self._patience_s, self._poll_s = sandbox, order, patience_s, poll_s
        self._monotonic = monotonic
        self._work = PurePosixPath(self._asked("look at a sandbox", sandbox.get_work_dir))
        self.limits_enforced: Mapping[str, Any] = {
            "timeout_s": order.timeout_s,
            "cpu_cores": sandbox.cpu,
            "memory_mb": sandbox.memory << 10,
            "disk_mb": sandbox.disk << 10,
            "network": network,
        }

    def fill(self) -> None:
        """Put in what the order has."""
        from daytona import FileUpload

        order = self._order
        for part in order.parts:
            folder = shlex.quote(f"{relative(part)}/.")
            self._must(f"cd {shlex.quote(str(self._work))} && cp -a -- {folder} .")
        places = {path: content for path, content in order.inputs.items()}
        for path, content in order.files.items():
            place = self._work / relative(path)
            # an agent must not bring the verdict along
            if not (order.role == "verifier" and place.is_relative_to(VERIFIER_FOLDER)):
                places[str(place)] = content
        places[_STDIN] = order.stdin or b""
        folders = {str(PurePosixPath(path).parent) for path in places}
        if order.role == "verifier":
            folders.add(VERIFIER_FOLDER)
        self._must(f"mkdir -p {shlex.join(sorted(folders))}")
        uploads = [FileUpload(source=content, destination=path) for path, content in places.items()]
        self._asked("write into a sandbox", lambda: self._sandbox.fs.upload_files(uploads, timeout=_CALL_S))

    def run(self, is_cancelled: Callable[[], bool]) -> ContainerExit:
        is_stdio = self._order.stdin is not None
        printed = f"> {_STDOUT} 2> {_STDERR}" if is_stdio else f"> {_STDOUT} 2>&1"
        # the words are those of the inner shell's own arguments, so that no shell reads them
        inner = f'echo $$ > {_GROUP}; "$@" < {_STDIN} {printed}; echo $? > {_CODE}'
        words = shlex.join(["setsid", "sh", "-c", inner, "box", *self._order.words])
        self._must(f"cd {shlex.quote(str(self._work))} && {{ {words} > /dev/null 2>&1 & }}", self._order.env_vars)
        began = self._monotonic()
        how, code = "exited", None
        while (code := self._code()) is None:
            if is_cancelled():
                how = "cancelled"
            elif self._monotonic() - began >= self._order.timeout_s:
                how = "timeout"
            if how != "exited":
                break
            time.sleep(self._poll_s)
        seconds = self._monotonic() - began
        self._exec(f"kill -KILL -- -$(cat {_GROUP}) 2> /dev/null")
        if how == "cancelled":
            return ContainerExit("cancelled", None, False, seconds)
        stdout = (self.read(_STDOUT, MAX_RESULT_BYTES) or b"") if is_stdio else b""
        log = self._exec(f"tail -c {KEPT_LOG_BYTES} {_STDERR if is_stdio else _STDOUT}")[1].encode()
        is_out_of_memory = how == "exited" and code == _KILLED and self._is_out_of_memory()
        return ContainerExit("timeout" if how == "timeout" else "exited", code, is_out_of_memory, seconds, stdout, log)

    def read(self, path: str, most: int) -> bytes | None:
        kept = bytearray()

        def fetch() -> None:
            kept.clear()
            with closing(self._sandbox.fs.download_file_stream(path, timeout=_CALL_S)) as chunks:
                for chunk in chunks:
                    kept.extend(chunk)
                    if len(kept) > most:
                        return

        try:
            self._asked(f"read {path!r} of a sandbox", fetch)
        except HarborError as error:
            if error.status in _ABSENT:
                return None
            raise
        return bytes(kept[: most + 1])

    def collect(self, paths: tuple[str, ...]) -> Mapping[str, bytes]:
        names = [str(relative(path)) for path in paths]
        if not names:
            return {}
        # what is not there is left out, and tar says so by its code
        self._exec(f"cd {shlex.quote(str(self._work))} && tar -cf {_ARTIFACTS} -- {shlex.join(names)} 2> /dev/null")
        most = MAX_ARTIFACT_BYTES * 2
        archive = self.read(_ARTIFACTS, most) or b""
        return files_below((archive,), tuple(names))

    def _code(self) -> int | None:
        text = self._exec(f"cat {_CODE} 2> /dev/null")[1].strip()
        return int(text) if text.isdigit() and len(text) <= 3 else None

    def _is_out_of_memory(self) -> bool:
        """Return whether the kernel killed something for its memory; a killed process alone does not say."""
        for line in self._exec("cat /sys/fs/cgroup/memory.events 2> /dev/null")[1].splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return count.strip() != "0"
        return False

    def _must(self, command: str, env_vars: Mapping[str, str] | None = None) -> None:
        code, said = self._exec(command, env_vars)
        if code:
            raise HarborError(f"daytona: {command[:_SHOWN]!r} in a sandbox ends with {code}: {said[:_SHOWN]}")

    def _exec(self, command: str, env_vars: Mapping[str, str] | None = None) -> tuple[int, str]:
        done = self._asked(
            "run a command in a sandbox",
            lambda: self._sandbox.process.exec(command, env=dict(env_vars or {}) or None, timeout=_CALL_S),
        )
        return done.exit_code, done.result

    def _asked(self, attempted: str, call: Callable[[], T]) -> T:
        return asked(attempted, call, self._patience_s)
