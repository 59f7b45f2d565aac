"""The schema of the store: which steps are taken, with their record, or none of them."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from graftline.core.errors import RecordError
from graftline.rollouts.state import AttemptLog, State, StateStore
from graftline.rollouts.state.store import MIGRATIONS, migrate

THEN = datetime(2026, 1, 1, tzinfo=UTC)
ADDED = {"a column": ("ALTER TABLE states ADD COLUMN extra TEXT", "UPDATE states SET extra = 'x'")}
FAILING = {"half of it": ("CREATE TABLE other (a) STRICT, WITHOUT ROWID", "CREATE TABLE states (a)")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(path, isolation_level=None)
    yield opened
    opened.close()


def migrated(connection: sqlite3.Connection, path: Path, migrations: Mapping[str, Sequence[str]] = MIGRATIONS) -> None:
    migrate(connection, path, lambda: THEN, migrations)


def dump(connection: sqlite3.Connection) -> list[str]:
    return [*connection.iterdump(), *map(str, connection.execute("PRAGMA application_id"))]


def test_a_fresh_file_gets_the_whole_schema_with_its_record(connection: sqlite3.Connection, path: Path) -> None:
    migrated(connection, path)

    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    records = connection.execute("SELECT * FROM migrations").fetchall()
    assert tables == [("attempts",), ("changes",), ("migrations",), ("states",), ("steps",)]
    assert records == [
        (1, "states and their changes", "2026-01-01T00:00:00+00:00"),
        (2, "attempts and their steps", "2026-01-01T00:00:00+00:00"),
    ]


def test_steps_are_taken_once(connection: sqlite3.Connection, path: Path) -> None:
    migrated(connection, path)
    before = dump(connection)
    migrated(connection, path)

    assert dump(connection) == before


def test_an_old_file_is_brought_up_to_date_with_what_it_holds(path: Path, connection: sqlite3.Connection) -> None:
    with StateStore(path) as store:
        store.save("a", State(goals=("b",)))
    migrated(connection, path, {**MIGRATIONS, **ADDED})

    assert connection.execute("SELECT key, extra FROM states").fetchall() == [("a", "x")]
    taken = connection.execute("SELECT name FROM migrations").fetchall()
    assert taken == [(name,) for name in {**MIGRATIONS, **ADDED}]


def test_states_of_a_file_without_attempts_are_read_as_ever(path: Path, connection: sqlite3.Connection) -> None:
    migrated(connection, path, dict([*MIGRATIONS.items()][:1]))
    connection.execute("INSERT INTO states VALUES ('a', 1, '2026-01-01T00:00:00+00:00', '{\"goals\":[\"b\"]}')")
    with StateStore(path) as store:
        assert (store.load("a"), AttemptLog(store).begin("digest", "a", "t")[1]) == (State(goals=("b",)), [])


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, connection: sqlite3.Connection) -> None:
    with StateStore(path) as store:
        store.save("a", State(goals=("b",)))
    before = dump(connection)
    with pytest.raises(sqlite3.OperationalError):
        migrated(connection, path, {**MIGRATIONS, **ADDED, **FAILING})

    assert dump(connection) == before


def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(path: Path, connection: sqlite3.Connection) -> None:
    migrated(connection, path, {**MIGRATIONS, **ADDED})
    before = dump(connection)
    with pytest.raises(RecordError) as refusal:
        StateStore(path)

    assert str(refusal.value) == (
        f"{path}: its schema has the step 'a column', which this version does not know; expected at most"
        " 'attempts and their steps': update graftline, or name another file"
    )
    assert dump(connection) == before
