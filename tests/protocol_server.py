"""A process on loopback that speaks the dialect of vLLM's server, with faults on demand.

    with ProtocolServer(latency_s=0.5) as server:
        ...                                                    # an actor at server.url
        server.become(latency_s=0.5, faults=[Fault(status=429, retry_after="1")])
        assert server.seen().ids == {"a": 1}
        server.kill()
        server.start()                                         # again at the same address, without its adapters

The program that it runs is `protocol_program.py`.
"""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tests.protocol_program import Behavior, Fault

__all__ = ["Behavior", "Fault", "ProtocolServer", "Seen"]

_CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Seen:
    """What the server saw since it was started or made as new."""

    ids: Mapping[str, int]
    """How often a chat of this `X-Request-Id` began, faults included."""
    answered: Mapping[str, int]
    """How often one of this id was answered to its end."""
    aborted: int
    """Chats whose client went away before the answer."""
    bodies: Sequence[Mapping[str, Any]]
    """What was asked, the newest thousand."""
    paths: Mapping[str, int]
    """Requests by method and path, without those of the tests."""
    adapters: Mapping[str, str]
    """Folders of the loaded adapters."""
    connections: int
    """Over which chats came."""
    cpu_s: float


class ProtocolServer:
    """The process; `url` is where it is, the same after every start."""

    def __init__(self, **behavior: Any) -> None:
        self._behavior = Behavior(**behavior)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        # without the packages of the environment it starts in a third of the time
        command = [sys.executable, "-S", "-E", "-m", "tests.protocol_program", "--port", str(self.port)]
        self._process = subprocess.Popen(command, cwd=_CHECKOUT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(self._behavior)).encode() + b"\n")
        self._process.stdin.flush()
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """End it as SIGKILL does: connections are cut, adapters are gone."""
        if self._process is None:
            return
        self._process.kill()
        # pipes are closed by its end
        self._process.communicate()
        self._process = None

    def freeze(self) -> None:
        """Stop it, alive and with open sockets."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def become(self, **behavior: Any) -> None:
        """Behave so from the next request on; what is not given is as by default."""
        self._behavior = Behavior(**behavior)
        self._call("/behavior", json.dumps(asdict(self._behavior)).encode())

    def renew(self, **behavior: Any) -> None:
        """Be as if just started, which takes longer."""
        if self._process is None:
            self._behavior = Behavior(**behavior)
            self.start()
        else:
            self._call("/renewal", b"")
            self.become(**behavior)

    def seen(self) -> Seen:
        return Seen(**json.loads(self._call("/seen")))

    def _call(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(f"{self.url}{path}", body, timeout=30) as response:
            content: bytes = response.read()
            return content
