"""A real PostgreSQL server on a free loopback port, with a database for every test that asks for one."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Self
from uuid import uuid4

import pytest

_STARTS_WITHIN_S = 240.0
_USERS = ("postgres", "nobody")
"""Whom a server started by root runs as: it refuses to be root."""


def postgres_programs() -> Path:
    """Return the folder of the newest server's programs; PGBIN names another one."""
    if named := os.environ.get("PGBIN"):
        return Path(named)
    for found in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True):
        return found.parent
    if found := shutil.which("initdb"):
        return Path(found).parent
    pytest.skip("no PostgreSQL server: apt-get install postgresql")


class PostgresServer:
    """A server in a folder of its own, which keeps what it holds from one start to the next."""

    def __init__(self, **environment: str) -> None:
        self._programs, self._folder = postgres_programs(), Path(mkdtemp(prefix="graftline-postgres-"))
        self._user, self._variables = _user(), {**_environment(), **environment}
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]

    def __enter__(self) -> Self:
        options = ("-D", self._data, "-U", "graftline", "-A", "trust", "-E", "UTF8", "-N", "--locale=C")
        try:
            self._run(self._programs / "initdb", *options)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end(signal.SIGTERM)
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """Without the name of a database."""
        return f"postgresql://graftline@127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start it, and return when it takes connections."""
        command = (self._programs / "postgres", "-D", self._data, "-p", str(self._port), "-k", self._folder)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-c", "fsync=off"],
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._folder,
                env=self._variables,
            )
        _wait(self._port, self._process)

    def end(self, number: int = signal.SIGQUIT) -> None:
        """End it; by SIGQUIT at once, without a word to whoever is connected."""
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(240)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, *command: str | Path) -> None:
        subprocess.run(command, check=True, capture_output=True, user=self._user, cwd=self._folder, env=_environment())


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the URL of a server, without the name of a database."""
    with PostgresServer() as server:
        yield server.url


def new_database(server: str) -> str:
    """Return the URL of a database that holds nothing yet."""
    import psycopg

    name = f"test_{uuid4().hex}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}/{name}"


def _user() -> str | None:
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _USERS if name in known)


def _environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LC_ALL": "C"}


def _wait(port: int, server: "subprocess.Popen[bytes]") -> None:
    import psycopg

    deadline = time.monotonic() + _STARTS_WITHIN_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(f"postgresql://graftline@127.0.0.1:{port}/postgres", connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the PostgreSQL server did not start")
