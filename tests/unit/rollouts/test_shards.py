"""Shards: what was added is there whatever dies, and nobody reads half of it."""

import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.errors import DataError, RecordError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.shards import ShardWriter, latest_by_key, read_shards, sealed_shards
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox


@pytest.fixture
def made(task_of: Callable[..., Task], reading: Any) -> Callable[..., Trajectory]:
    """A function of the number of an attempt that returns it."""
    task = task_of("old(1)\n", "x(1)\n")
    action = PatternAction(pattern="old($A)", rewrite="x($A)")
    return lambda number: collect(task, reading([action]), MemorySandbox(), RolloutConfig(), number)


def test_what_is_sealed_is_read_in_order(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    added = [made(number) for number in range(1, 4)]
    with ShardWriter(tmp_path, "w") as writer:
        for trajectory in added:
            writer.add(trajectory)
    assert list(read_shards(sealed_shards(tmp_path))) == added


def test_an_open_shard_is_hidden_until_it_is_sealed(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    writer = ShardWriter(tmp_path, "w")
    writer.add(made(1))
    before = sealed_shards(tmp_path)
    writer.seal()
    assert (before, [path.name for path in sealed_shards(tmp_path)]) == ([], ["w-00001.jsonl"])


def test_a_shard_that_is_large_enough_is_followed_by_another(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    with ShardWriter(tmp_path, "w", max_bytes=1) as writer:
        for number in range(1, 4):
            writer.add(made(number))
    assert [path.name for path in sealed_shards(tmp_path)] == [f"w-0000{number}.jsonl" for number in range(1, 4)]


def test_a_writer_of_the_same_name_overwrites_nothing(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    for number in (1, 2):
        with ShardWriter(tmp_path, "w") as writer:
            writer.add(made(number))
    assert [trajectory.attempt for trajectory in read_shards(sealed_shards(tmp_path))] == [1, 2]


def test_two_writers_of_one_name_do_not_meet(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    with ShardWriter(tmp_path, "w") as first, ShardWriter(tmp_path, "w") as second:
        first.add(made(1))
        second.add(made(2))
    assert [path.name for path in sealed_shards(tmp_path)] == ["w-00001.jsonl", "w-00002.jsonl"]


def test_threads_may_share_a_writer(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    added = [made(number) for number in range(1, 21)]
    with ShardWriter(tmp_path, "w", max_bytes=10_000) as writer, ThreadPoolExecutor(4) as threads:
        list(threads.map(writer.add, added))
    found = read_shards(sealed_shards(tmp_path))
    assert sorted(trajectory.attempt for trajectory in found) == list(range(1, 21))


KILLED = """
import os, signal, sys
from pathlib import Path
from graftline.rollouts.shards import ShardWriter
from graftline.rollouts.trajectory import Trajectory
writer = ShardWriter(Path(sys.argv[1]), "killed")
writer.add(Trajectory.model_validate_json(sys.stdin.readline()))
[path] = Path(sys.argv[1]).glob(".*.open")
with path.open("ab") as stream:
    stream.write(b'{"schema_version": 5, "task')
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_writer_added_is_kept_without_the_half_line(
    tmp_path: Path, made: Callable[..., Trajectory]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path)], input=made(1).model_dump_json() + "\n", text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL
    assert list(read_shards(sealed_shards(tmp_path))) == [made(1)]
    assert [path.name for path in tmp_path.iterdir()] == ["killed-00001.jsonl"]


def test_a_killed_writer_that_wrote_nothing_whole_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".w-00001.jsonl.open").write_bytes(b'{"schema')
    assert (sealed_shards(tmp_path), list(tmp_path.iterdir())) == ([], [])


def test_of_an_attempt_that_stands_there_twice_the_last_one_counts(made: Callable[..., Trajectory]) -> None:
    first, other = made(1), made(2)
    again = first.model_copy(update={"ending": "max_steps"})
    assert list(latest_by_key([first, other, again]).values()) == [again, other]


def test_a_line_of_another_version_is_named(tmp_path: Path, made: Callable[..., Trajectory]) -> None:
    line = made(1).model_dump_json()
    (tmp_path / "a.jsonl").write_text(line + "\n" + line.replace('"schema_version":5', '"schema_version":2') + "\n")
    with pytest.raises(RecordError) as raised:
        list(read_shards(sealed_shards(tmp_path)))
    assert str(raised.value) == (
        f"{tmp_path}/a.jsonl: line 2 is no trajectory of this version (schema_version: Input should be 5);"
        " move the file away"
    )


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"writer '\.\./w': expected"):
        ShardWriter(tmp_path, "../w")
