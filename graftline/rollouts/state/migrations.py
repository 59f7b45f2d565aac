"""The schema of the state store, as steps that are taken once each, in order, with their record in the same transaction.

A step that was released is never changed: what is to be different comes as one more at the end.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.core.clock import Clock
from graftline.core.errors import ConfigError, RecordError

APPLICATION_ID = 0x67667374
"""In the header of the file, by which it is told from databases of other programs; "gfst" in ASCII."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step from a schema to the next."""

    name: str
    statements: tuple[str, ...]


MIGRATIONS = (
    Migration(
        "states and their changes",
        (
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
    ),
    Migration(
        "attempts and their steps",
        (
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
    ),
)


def migrate(
    connection: sqlite3.Connection, path: Path, clock: Clock, migrations: Sequence[Migration] = MIGRATIONS
) -> None:
    """Take all steps that the file has not seen yet, or none of them; `connection` commits by itself.

    Raises:
        ConfigError: the file is a database of another program.
        RecordError: the file was written by a version of graftline that knows more steps.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        taken = _taken(connection, path)
        known = [migration.name for migration in migrations]
        if taken != known[: len(taken)]:
            unknown = next(name for number, name in enumerate(taken) if known[number : number + 1] != [name])
            raise RecordError(
                f"{path}: its schema has the step {unknown!r}, which this version does not know; expected at most"
                f" {known[-1]!r}: update graftline, or name another file"
            )
        for number, migration in enumerate(migrations[len(taken) :], len(taken) + 1):
            for statement in migration.statements:
                connection.execute(statement)
            row = (number, migration.name, clock().isoformat())
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
