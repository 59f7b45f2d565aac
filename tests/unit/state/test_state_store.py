"""The store of states in one process: what is loaded, what is written, what is remembered, what is refused."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest

from graftline.core.errors import BoundaryError, ConfigError, DataError, RecordError
from graftline.rollouts.state import Change, Entry, State, StateStore, StateUpdate
from graftline.rollouts.state.store import MIGRATIONS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Minutes:
    """A clock that goes on by a minute whenever it is looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> datetime:
        self.looks += 1
        return NOON + timedelta(minutes=self.looks - (len(MIGRATIONS) - 1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[StateStore]:
    with StateStore(path, clock=Minutes()) as opened:
        yield opened


def sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement)
    connection.close()


def test_what_is_saved_is_loaded(store: StateStore) -> None:
    state = State(goals=("ä </state>",), history=("b\n\x00",), next_focus="c")
    store.save("a", state)

    assert store.load("a") == state


def test_the_history_says_when_what_became_different(store: StateStore) -> None:
    # every step of the schema looks at the clock once; the last one at 12:01
    store.update("a", StateUpdate(goals=["g"], history=["one"]))
    store.update("b", StateUpdate(goals=["of another"]))
    store.update("a", StateUpdate(history=["two"], next_focus="f"))
    store.save("a", State(history=("one", "two")))

    assert store.history("a") == [
        Change(1, "2026-01-01T12:02:00+00:00", {"goals": ["g"], "history": ["one"]}),
        Change(2, "2026-01-01T12:04:00+00:00", {"history": ["one", "two"], "next_focus": "f"}),
        Change(3, "2026-01-01T12:05:00+00:00", {"goals": [], "next_focus": ""}),
    ]


def test_a_write_that_changes_nothing_leaves_no_trace(store: StateStore) -> None:
    update = StateUpdate(goals=["b"])
    for _ in range(2):
        store.update("a", update)
    store.save("a", State(goals=("b",)))
    store.save("never used", State())

    assert (len(store.history("a")), store.entries()) == (1, [Entry("a", 1, "2026-01-01T12:02:00+00:00")])


def test_entries_are_listed_by_key_with_how_often_and_when(store: StateStore) -> None:
    for key in ("b", "a#2", "a#10", "b"):
        store.update(key, StateUpdate(history=[f"{len(store.entries())} {key}"]))

    assert store.entries() == [
        Entry("a#10", 1, "2026-01-01T12:04:00+00:00"),
        Entry("a#2", 1, "2026-01-01T12:03:00+00:00"),
        Entry("b", 2, "2026-01-01T12:05:00+00:00"),
    ]


@pytest.mark.parametrize("key", ["", "x" * 257, "a\nb", "a\x00", "\ud800"])
def test_other_keys_are_refused(store: StateStore, key: str) -> None:
    with pytest.raises(DataError) as refusal:
        store.update(key, StateUpdate())

    assert str(refusal.value) == (
        f"state key {key[:40]!r}: expected 1 to 256 printable characters, got {len(key)};"
        " use the id of the task, or <id>#<attempt>"
    )


def test_threads_may_share_a_store(store: StateStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: store.update("a", StateUpdate(history=[f"b{n}"])), range(200)))

    said = [change.changed["history"][-1] for change in store.history("a")]
    assert sorted(said) == sorted(f"b{number}" for number in range(200))


def test_a_write_that_fails_in_the_middle_is_not_there_and_the_next_one_works(store: StateStore, path: Path) -> None:
    store.save("a", State(goals=("b",)))
    # as if a change with the next number were there already: the state is written, its change is refused
    sql(path, "INSERT INTO changes VALUES ('a', 2, 'then', '{}')")
    with pytest.raises(RecordError, match="UNIQUE constraint failed"):
        store.save("a", State(goals=("c",)))
    sql(path, "DELETE FROM changes WHERE written_at = 'then'")
    store.save("a", State(goals=("d",)))

    assert [change.changed for change in store.history("a")] == [{"goals": ["b"]}, {"goals": ["d"]}]


def test_a_row_that_is_no_state_is_named_with_what_to_do(store: StateStore, path: Path) -> None:
    store.save("it's", State(goals=("b",)))
    sql(path, """UPDATE states SET state = '{"goals":[""]}'""")

    with pytest.raises(RecordError) as refusal:
        store.load("it's")

    assert str(refusal.value) == (
        f"""{path}: what is stored under "it's" is no state (goals.0: string should have at least 1 character);"""
        " rows of this key in the tables states and changes have to be deleted, and the task starts over"
    )


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"notes\n" * 1000)
    with pytest.raises(RecordError) as refusal:
        StateStore(path)

    assert str(refusal.value) == (
        f"{path}: is not the SQLite database it should be (file is not a database);"
        " put a copy back, or move the file away, and its tasks start over"
    )
    assert path.read_bytes() == b"notes\n" * 1000


def test_a_database_of_another_program_is_refused_and_left_alone(path: Path) -> None:
    path.parent.mkdir()
    sql(path, "CREATE TABLE notes (text)")
    before = path.read_bytes()
    with pytest.raises(ConfigError) as refusal:
        StateStore(path)

    assert str(refusal.value) == (
        f"{path}: is a database of another program; expected a state store: name another file"
    )
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(BoundaryError) as refusal:
        StateStore(tmp_path / "state" / "state.sqlite")

    assert str(refusal.value) == (
        f"{tmp_path / 'state' / 'state.sqlite'}: cannot be opened (File exists);"
        " name a file in a folder that this user may write to"
    )


def test_a_database_that_another_program_holds_is_waited_for(store: StateStore, path: Path) -> None:
    # not through the store, so that nothing but SQLite's own lock stands in the way
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    writer = Thread(target=lambda: store.save("a", State(goals=("b",))))
    writer.start()
    writer.join(0.2)
    was_waiting = writer.is_alive()
    holder.execute("ROLLBACK")
    holder.close()
    writer.join()

    assert (was_waiting, store.load("a")) == (True, State(goals=("b",)))


def test_a_forked_process_may_not_use_the_store_of_its_parent(path: Path) -> None:
    program = """
import os, sys
from pathlib import Path
from graftline.rollouts.state import StateStore
store = StateStore(Path(sys.argv[1]))
if os.fork() == 0:
    try:
        store.load("a")
    except RuntimeError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "a StateStore does not survive a fork; open one in the process that uses it"
