"""The `StateStore`: the states of many agents in one SQLite file, for many processes and threads of one machine.

Of two writes of a state at once, the second sees what the first one wrote. What was written stays when the process is
killed; after a power cut, or a crash of the system, the last writes may be missing, and the file holds what it held
before them. It must lie on a file system of this machine: SQLite's write-ahead log does not work over a network.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from graftline.core.clock import Clock, utc_now
from graftline.core.errors import BoundaryError, ConfigError, DataError, RecordError
from graftline.core.tokens import count_tokens
from graftline.rollouts.state.state import State, StateUpdate

MAX_KEY_CHARACTERS = 256
_LEAST_SQLITE = (3, 37)
_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of a state without reading it."""

    key: str
    version: int
    """How many times it was changed."""
    written_at: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True)
class Change:
    """What one write made different."""

    version: int
    written_at: str
    changed: Mapping[str, Any]
    """The fields that became different, as they were from then on."""


class StateStore:
    """States by key: the id of a task, or `<id>#<attempt>` where there are several attempts at it.

    Threads may share one; a process that was forked opens its own.
    """

    def __init__(self, path: Path, clock: Clock = utc_now) -> None:
        """Open `path`, or make it, and bring its schema up to date.

        Raises:
            ConfigError: it is a database of another program.
            RecordError: it is damaged, or was written by a later version.
            BoundaryError: it cannot be opened or written.
        """
        self._path = path
        self._clock = clock
        self._process = os.getpid()
        self._thread = Lock()
        if sqlite3.sqlite_version_info < _LEAST_SQLITE:
            raise BoundaryError(f"SQLite {sqlite3.sqlite_version}: the state store needs 3.37 or later; update Python")
        with ExitStack() as opened:
            self._turns = _lock_file(path)
            opened.callback(os.close, self._turns)
            with self._access():
                # no implicit transactions, and any thread: `_thread` lets in one at a time
                self._connection = sqlite3.connect(path, _WAIT_S, isolation_level=None, check_same_thread=False)
            opened.callback(self._connection.close)
            with self._access(), self._turn():
                self._prepare()
            self._opened = opened.pop_all()

    def load(self, key: str) -> State:
        """Return the state under `key`; an empty one if there is none.

        Raises:
            RecordError: what is stored there is no state.
        """
        with self._access():
            return self._read(check_key(key))[1]

    def save(self, key: str, state: State) -> None:
        """Put `state` in the place of what is stored under `key`."""
        self._replace(check_key(key), lambda before: state)

    def update(self, key: str, update: StateUpdate) -> State:
        """Merge `update` into the state under `key`, and return what is stored from then on."""
        count_tokens("")  # reads the vocabulary, once and for a second, in which nobody else should have to wait
        return self._replace(check_key(key), lambda before: before.apply(update))

    def history(self, key: str) -> list[Change]:
        """Return every change of the state under `key`, oldest first; writes that changed nothing are not among them."""
        sql = "SELECT version, written_at, changed FROM changes WHERE key = ? ORDER BY version"
        with self._access():
            rows = self._connection.execute(sql, (check_key(key),)).fetchall()
        return [Change(version, written_at, from_json(changed)) for version, written_at, changed in rows]

    def entries(self) -> list[Entry]:
        """Return what is stored, by key."""
        with self._access():
            rows = self._connection.execute("SELECT key, version, written_at FROM states ORDER BY key").fetchall()
        return [Entry(*row) for row in rows]

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, for `attempts.AttemptLog` to read its tables."""
        with self._access():
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction that nobody else writes beside; it is undone where the block raises."""
        with self._access(), self._turn(), self._transaction():
            yield self._connection

    def now(self) -> str:
        """Return the time by the clock of the store: ISO 8601, UTC."""
        return self._clock().isoformat()

    def close(self) -> None:
        """Let go of the file; what was written is in it."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _prepare(self) -> None:
        migrate(self._connection, self._path, self._clock)  # first: it refuses a file that is not ours
        mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise BoundaryError(
                f"{self._path}: SQLite's write-ahead log does not work here (it stayed at {mode!r});"
                " put the file on a disk of this machine"
            )
        self._connection.execute("PRAGMA synchronous = NORMAL")

    def _read(self, key: str) -> tuple[int, State]:
        row = self._connection.execute("SELECT version, state FROM states WHERE key = ?", (key,)).fetchone()
        if row is None:
            return 0, State()
        try:
            return row[0], State.model_validate_json(row[1])
        except ValidationError as error:
            fault = error.errors(include_url=False, include_input=False)[0]
            path = ".".join(map(str, fault["loc"])) or "(whole text)"
            raise RecordError(
                f"{self._path}: what is stored under {key!r} is no state ({path}: {fault['msg'].lower()});"
                " rows of this key in the tables states and changes have to be deleted, and the task starts over"
            ) from None

    def _replace(self, key: str, change: Callable[[State], State]) -> State:
        """Store what `change` makes of the state under `key`, and return it.

        Most states have one writer: what is to be written is worked out before the file is held, and worked out once more
        if somebody else wrote in between.
        """
        with self._access():
            version, before = self._read(key)
            after = change(before)
            if after == before:
                return after
            row = self._row(key, version, before, after)
            with self._turn(), self._transaction():
                if not self._is_put(row):
                    version, before = self._read(key)
                    after = change(before)
                    if after != before:
                        self._is_put(self._row(key, version, before, after))
            return after

    def _row(self, key: str, version: int, before: State, after: State) -> dict[str, Any]:
        names = [name for name in State.model_fields if getattr(before, name) != getattr(after, name)]
        return {
            "key": key,
            "version": version + 1,
            "now": self.now(),
            "state": after.model_dump_json(exclude_defaults=True),
            "changed": to_json({name: getattr(after, name) for name in names}).decode(),
        }

    def _is_put(self, row: Mapping[str, Any]) -> bool:
        """Return whether `row` was written; it was not if what is stored is no longer of the version before."""
        written = self._connection.execute(
            "INSERT INTO states (key, version, written_at, state) VALUES (:key, :version, :now, :state)"
            " ON CONFLICT (key) DO UPDATE"
            " SET version = excluded.version, written_at = excluded.written_at, state = excluded.state"
            " WHERE states.version = excluded.version - 1",
            row,
        )
        if written.rowcount:
            self._connection.execute(
                "INSERT INTO changes (key, version, written_at, changed) VALUES (:key, :version, :now, :changed)", row
            )
        return bool(written.rowcount)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        # SQLite itself has no queue: who finds the file busy sleeps, and looks again when others have come in between.
        # The kernel wakes who waits for this lock at once, and lets go of it when its holder dies.
        fcntl.flock(self._turns, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._turns, fcntl.LOCK_UN)

    @contextmanager
    def _access(self) -> Iterator[None]:
        if os.getpid() != self._process:
            raise RuntimeError("a StateStore does not survive a fork; open one in the process that uses it")
        with self._thread:
            try:
                yield
            except sqlite3.ProgrammingError:
                raise  # a mistake of the caller, as using what is closed
            except sqlite3.OperationalError as error:
                raise BoundaryError(
                    f"{self._path}: cannot be read or written ({error}); see whether another program holds it, the disk"
                    " is full, or this user may not write there"
                ) from error
            except sqlite3.DatabaseError as error:
                raise RecordError(
                    f"{self._path}: is not the SQLite database it should be ({error});"
                    " put a copy back, or move the file away, and its tasks start over"
                ) from error


def check_key(key: str) -> str:
    """Return `key` if a state may be stored under it.

    Raises:
        DataError: it is empty, too long, or holds what no terminal shows.
    """
    if not 1 <= len(key) <= MAX_KEY_CHARACTERS or not key.isprintable():
        raise DataError(
            f"state key {key[:40]!r}: expected 1 to {MAX_KEY_CHARACTERS} printable characters, got {len(key)};"
            " use the id of the task, or <id>#<attempt>"
        )
    return key


def _lock_file(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise BoundaryError(
            f"{path}: cannot be opened ({error.strerror}); name a file in a folder that this user may write to"
        ) from None


APPLICATION_ID = 0x67667374
"""In the header of the file, by which it is told from databases of other programs; "gfst" in ASCII."""


MIGRATIONS: Mapping[str, Sequence[str]] = {
    "states and their changes": (
        """
            CREATE TABLE states (
                key TEXT PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 256),
                version INTEGER NOT NULL CHECK (version > 0),
                written_at TEXT NOT NULL,
                state TEXT NOT NULL CHECK (json_valid(state))
            ) STRICT
            """,
        """
            CREATE TABLE changes (
                key TEXT NOT NULL,
                version INTEGER NOT NULL CHECK (version > 0),
                written_at TEXT NOT NULL,
                changed TEXT NOT NULL CHECK (json_valid(changed)),
                PRIMARY KEY (key, version)
            ) STRICT, WITHOUT ROWID
            """,
    ),
    "attempts and their steps": (
        """
            CREATE TABLE attempts (
                identity TEXT PRIMARY KEY,
                key TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 256),
                teacher TEXT NOT NULL,
                claim INTEGER NOT NULL CHECK (claim > 0),
                steps INTEGER NOT NULL CHECK (steps >= 0),
                phase TEXT NOT NULL CHECK (phase IN ('running', 'interrupted', 'failed', 'verified')),
                reason TEXT NOT NULL,
                written_at TEXT NOT NULL
            ) STRICT
            """,
        "CREATE INDEX attempts_by_key ON attempts (key)",
        """
            CREATE TABLE steps (
                identity TEXT NOT NULL,
                number INTEGER NOT NULL CHECK (number > 0),
                step TEXT NOT NULL CHECK (json_valid(step)),
                PRIMARY KEY (identity, number)
            ) STRICT
            """,
    ),
}
"""Steps from a schema to the next, by name: the statements of each."""


def migrate(
    connection: sqlite3.Connection, path: Path, clock: Clock, migrations: Mapping[str, Sequence[str]] = MIGRATIONS
) -> None:
    """Take all steps that the file has not seen yet, or none of them; `connection` commits by itself.

    Raises:
        ConfigError: the file is a database of another program.
        RecordError: the file was written by a version of graftline that knows more steps.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = _taken(connection, path)
        names = [*migrations]
        if done != names[: len(done)]:
            unknown = next(name for number, name in enumerate(done) if names[number : number + 1] != [name])
            raise RecordError(
                f"{path}: its schema has the step {unknown!r}, which this version does not know; expected at most"
                f" {names[-1]!r}: update graftline, or name another file"
            )
        for number, name in enumerate(names[len(done) :], len(done) + 1):
            for statement in migrations[name]:
                connection.execute(statement)
            row = (number, name, clock().isoformat())
            connection.execute("INSERT INTO migrations (number, name, taken_at) VALUES (?, ?, ?)", row)
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _taken(connection: sqlite3.Connection, path: Path) -> list[str]:
    """Return the names of the steps that were taken, having made the table that says so."""
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() != (0,):
            raise ConfigError(f"{path}: is a database of another program; expected a state store: name another file")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(
            "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, taken_at TEXT NOT NULL) STRICT"
        )
    return [name for (name,) in connection.execute("SELECT name FROM migrations ORDER BY number")]
