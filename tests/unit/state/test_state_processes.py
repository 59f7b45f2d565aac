"""The store of states under many processes, and under processes that are killed in the middle."""

import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from graftline.rollouts.state import State, StateStore

WRITER = """
import sys
from pathlib import Path
from graftline.rollouts.state import StateStore, StateUpdate
path, name, times = sys.argv[1:]
with StateStore(Path(path)) as store:
    for number in range(1, int(times) + 1):
        step = f"{name}{number}"
        store.update("a", StateUpdate(goals=[f"goal {step}"], history=[step], next_focus=step))
        print(number, flush=True)
"""
ENDLESS = "1000000"


def test_no_update_of_many_processes_to_the_same_state_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, "150"], stdout=subprocess.DEVNULL)
        for name in "bcde"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0, 0]

    with StateStore(path) as store:
        changes = store.history("a")
    assert sorted(change.changed["next_focus"] for change in changes) == sorted(
        f"{name}{number}" for name in "bcde" for number in range(1, 151)
    )
    # each came upon what the one before had left
    assert [change.changed["history"][-2:] for change in changes[1:]] == [
        [earlier.changed["next_focus"], later.changed["next_focus"]] for earlier, later in pairwise(changes)
    ]


@pytest.mark.parametrize("steps", [1, 25, 60])
def test_after_a_kill_the_store_holds_all_that_was_said_to_be_written_and_nothing_by_half(
    tmp_path: Path, steps: int
) -> None:
    path = tmp_path / "state.sqlite"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "s", ENDLESS], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(steps):
            writer.stdout.readline()
        writer.kill()
        said = steps + len(writer.stdout.readlines())

    assert writer.returncode == -signal.SIGKILL
    with StateStore(path) as store:
        state, changes = store.load("a"), store.history("a")
    last = len(changes)
    # one more may have been written than was said
    assert last in (said, said + 1)
    assert [change.changed["next_focus"] for change in changes] == [f"s{number}" for number in range(1, last + 1)]
    assert state == State(
        goals=(f"goal s{last}",),
        history=tuple(f"s{number}" for number in range(max(last - 2, 1), last + 1)),
        next_focus=f"s{last}",
    )
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
