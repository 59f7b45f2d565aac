"""The door to the database: SQLite in a file, or PostgreSQL by its URL, with its schema brought up to date.

All state of the service is in it, so that a service that was killed goes on where it was. Writers of SQLite take turns from the
first statement on (`BEGIN IMMEDIATE`): one that only notices at its last statement that somebody else was there before
would have to be sent again.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from graftline.core.errors import ConfigError, HarborError, RecordError, install_command

_WAIT_S = 30.0
_CONNECTIONS = 8
_MIGRATION_LOCK = 0x6766_6872  # PostgreSQL's advisory lock, "gfhr" in ASCII


class Database:
    """Connections to one database; safe to use from many threads."""

    def __init__(self, url: str) -> None:
        """Open what `url` names (`sqlite:///file`, `postgresql://…`), and bring its schema up to date.

        Raises:
            ConfigError: the URL is none of these, or its driver is missing.
            HarborError: the database cannot be reached.
            RecordError: its schema is of a later version.
        """
        self.url = _parse_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        if self.is_sqlite and self.url.database:
            Path(self.url.database).parent.mkdir(parents=True, exist_ok=True)
        arguments: dict[str, Any] = (
            {"connect_args": {"timeout": _WAIT_S}} if self.is_sqlite else {"pool_pre_ping": True}
        )
        self._engine = create_engine(self.url, pool_size=_CONNECTIONS, max_overflow=_CONNECTIONS, **arguments)
        if self.is_sqlite:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", _begin_sqlite)
        try:
            self._migrate()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that writes nothing. Raises HarborError where the database cannot be reached."""
        with self._translate_errors(), self._engine.connect().execution_options(is_reading=True) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, and undone by an error.

        Raises:
            HarborError: the database cannot be reached, or is full.
        """
        with self._translate_errors(), self._engine.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        """Let go of all connections. A second call does nothing."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            # of the error only what the driver says: the statement holds what users sent
            reason = str(error.orig).splitlines()[0] if error.orig else "it does not answer"
            raise HarborError(f"database {self._shown_url}: {reason}; see to it, and ask again") from error

    @property
    def _shown_url(self) -> str:
        return self.url.render_as_string(hide_password=True)

    def _migrate(self) -> None:
        from alembic.config import Config
        from alembic.runtime.environment import EnvironmentContext
        from alembic.script import ScriptDirectory

        folder = str(Path(__file__).parent / "migrations")
        scripts = ScriptDirectory(folder, version_locations=[folder])
        with self.writing() as connection:
            if not self.is_sqlite:
                # several services may start at the same time
                connection.execute(text("SELECT pg_advisory_xact_lock(:turn)"), {"turn": _MIGRATION_LOCK})

            def steps(revision: Any, _: object) -> Any:
                revisions = {script.revision for script in scripts.walk_revisions()}
                if unknown := set(revision) - revisions:
                    raise RecordError(
                        f"database {self._shown_url}: was written by a later version of graftline ({min(unknown)!r})"
                    )
                return scripts._upgrade_revs("head", revision)  # as alembic.command.upgrade does

            environment = EnvironmentContext(Config(), scripts, fn=steps, destination_rev="head")
            environment.configure(connection=connection)
            with environment:
                environment.run_migrations()


def _parse_url(text: str) -> URL:
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend = ""
    if backend == "sqlite":
        return url.set(drivername="sqlite+pysqlite")
    if backend == "postgresql":
        try:
            import psycopg  # noqa: F401
        except ImportError:
            raise ConfigError(f"a database of PostgreSQL needs psycopg; {install_command('harbor')}") from None
        return url.set(drivername="postgresql+psycopg")
    raise ConfigError("the database is neither sqlite:///<file> nor postgresql://<user>@<host>/<name>; mend its URL")


def _prepare_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # or the driver begins transactions of its own
    try:
        connection.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        # another connection that sets it at this moment is not waited for; the mode stays with the file
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise
    for setting in ("synchronous = NORMAL", "foreign_keys = ON", "cache_size = -65536"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    is_reading = connection.get_execution_options().get("is_reading", False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


def is_duplicate(error: DBAPIError) -> bool:
    """Return whether an `IntegrityError` says that there is such a row already."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "sqlite_errorname", "")
    return code in ("23505", "SQLITE_CONSTRAINT_UNIQUE", "SQLITE_CONSTRAINT_PRIMARYKEY")
