"""A real PostgreSQL server on a free loopback port, with a database for every test that asks for one."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

import pytest

_STARTS_WITHIN_S = 30.0
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


@contextmanager
def postgres_server() -> Iterator[str]:
    """Yield the URL of a server, without the name of a database."""
    programs, folder = postgres_programs(), Path(mkdtemp(prefix="graftline-postgres-"))
    user = _user()
    if user is not None:
        os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    data = folder / "data"
    start = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "graftline",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "-N",
        "--locale=C",
    ]
    subprocess.run(start, check=True, capture_output=True, user=user, cwd=folder, env=_environment())
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), "-p", str(port), "-c", "fsync=off", "-k", str(folder)],
            stdout=log,
            stderr=log,
            user=user,
            cwd=folder,
            env=_environment(),
        )
    try:
        _wait(port, server)
        yield f"postgresql://graftline@127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


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
