"""The `sqlite` vector store: one file, searched by sqlite-vec, every entry looked at.

It is the one door to apsw and sqlite-vec. The file holds nothing that cannot be made again: one of another version, or
of a process that was killed at its first writing, counts as empty.
"""

import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import apsw
import sqlite_vec

from graftline.core.errors import RecordError
from graftline.rollouts.retrieval.base import Neighbor, Vector, VectorEntry, alike, check_question

_VERSION = 1
_BUSY_MS = 60_000
_NAME = re.compile(r"[a-z][a-z_]{0,30}")
_MAX_FOUND = 4096


class SqliteVectorStore:
    """Keeps entries in the file `path`, which comes to be with the first of them; several processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._connection: apsw.Connection | None = None

    @property
    def identity(self) -> str:
        with self._transaction() as connection:
            return _identity(connection)

    def replace(self, identity: str, entries: Iterable[VectorEntry]) -> None:
        # which of equally near entries are found depends on their rows
        rows = sorted(alike(entries), key=lambda entry: entry.key)
        labels = [*rows[0].labels] if rows else []
        if unfit := [label for label in labels if not _NAME.fullmatch(label)]:
            raise ValueError(f"label {unfit[0]!r} is no lower-case word")
        columns = "".join(f", label_{label} text" for label in labels)
        dimensions = len(rows[0].vector) if rows else 0
        with self._transaction("BEGIN IMMEDIATE") as connection:
            connection.execute("DROP TABLE IF EXISTS entries; DROP TABLE IF EXISTS made_from")
            connection.execute("CREATE TABLE made_from (identity TEXT, dimensions INTEGER, labels TEXT) STRICT")
            connection.execute("INSERT INTO made_from VALUES (?, ?, ?)", (identity, dimensions, json.dumps(labels)))
            connection.pragma("user_version", _VERSION)
            if not rows:
                return
            vectors = f"vector float[{dimensions}] distance_metric=cosine"
            connection.execute(f"CREATE VIRTUAL TABLE entries USING vec0({vectors}{columns}, +key text, +content text)")
            marks = ", ".join("?" * (3 + len(labels)))
            connection.executemany(
                f"INSERT INTO entries (vector{''.join(f', label_{label}' for label in labels)}, key, content)"
                f" VALUES ({marks})",
                # what says nothing is near to nothing, and has no angle
                (
                    (_blob(entry.vector), *entry.labels.values(), entry.key, entry.content)
                    for entry in rows
                    if any(entry.vector)
                ),
            )

    def nearest(
        self,
        vector: Vector,
        count: int,
        having: Mapping[str, str] | None = None,
        lacking: Mapping[str, str] | None = None,
    ) -> list[Neighbor]:
        same, other = dict(having or {}), dict(lacking or {})
        with self._transaction() as connection:
            if not _identity(connection):
                return []
            [(dimensions, labels)] = connection.execute("SELECT dimensions, labels FROM made_from")
            if not dimensions:
                return []
            check_question(len(vector), {*same, *other}, dimensions, json.loads(labels))
            if not any(vector):
                return []
            conditions = [*(f"label_{name} = ?" for name in same), *(f"label_{name} != ?" for name in other)]
            rows = connection.execute(
                "SELECT key, content, distance FROM entries WHERE vector MATCH ? AND k = ?"
                f"{''.join(f' AND {condition}' for condition in conditions)} ORDER BY distance",
                (_blob(vector), min(count, _MAX_FOUND), *same.values(), *other.values()),
            )
            return sorted((Neighbor(*row) for row in rows), key=lambda entry: (entry.distance, entry.key))

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextmanager
    def _transaction(self, begin: str = "BEGIN") -> Iterator[apsw.Connection]:
        with self._lock:
            try:
                self._connection = connection = self._connection or _connect(self._path)
                connection.execute(begin)
                try:
                    yield connection
                    connection.execute("COMMIT")
                finally:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
            except apsw.Error as error:
                raise RecordError(
                    f"{self._path}: cannot be used as a store of vectors ({error}); delete it, and it is made again"
                ) from error
            except OSError as error:
                raise RecordError(f"{self._path}: cannot be written ({error.strerror}); mend its folder") from error


def _connect(path: Path) -> apsw.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(_BUSY_MS)
    connection.enable_load_extension(True)
    connection.load_extension(sqlite_vec.loadable_path())
    connection.enable_load_extension(False)
    _log_ahead(connection)
    return connection


def _log_ahead(connection: apsw.Connection) -> None:
    """Change to a write-ahead log: readers find the earlier entries while others are written."""
    last_try = time.monotonic() + _BUSY_MS / 1000
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            # of two that change a new file at the same time, SQLite refuses one at once, whatever its timeout says
            if time.monotonic() > last_try:
                raise
            time.sleep(0.01)


def _identity(connection: apsw.Connection) -> str:
    if connection.pragma("user_version") != _VERSION:
        return ""
    [(identity,)] = connection.execute("SELECT identity FROM made_from")
    return str(identity)


def _blob(vector: Vector) -> bytes:
    return vector.tobytes()
