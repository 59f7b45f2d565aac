"""Many attempts with a journal: what a killed run left is kept, what it left half written is not."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from graftline.core.errors import SandboxError
from graftline.core.jsonl import read_lines
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.collect_many import JOURNAL_NAME, collect_many
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.rollouts.trajectory import AttemptTime, Trajectory
from graftline.sandbox.actions.memory import MemorySandbox


@cache
def attempt(task_json: str) -> Trajectory:
    """Return an attempt by induction, which comes to the same each time, and of which the journal is not told."""
    sandbox = MemorySandbox()
    return collect(Task.model_validate_json(task_json), InductionTeacher(sandbox), sandbox, RolloutConfig())


class Attempts:
    """Attempts that note the tasks they were made at, and that stop before one of them."""

    def __init__(self, stop_at: str = "") -> None:
        self.stop_at, self.made = stop_at, list[str]()

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Trajectory]:
        for task in tasks:
            if task.id == self.stop_at:
                raise SandboxError("broken")
            self.made.append(task.id)
            yield attempt(task.model_dump_json())


@pytest.fixture
def tasks(task_of: Callable[..., Task]) -> list[Task]:
    # one of them cannot be solved, and one holds what some read as line ends
    texts = [("old(1)\n", "new(1)\n"), ("x=1\n", "x = 1\n"), ("old('\u2028\u0085é')\n", "new('\u2028\u0085é')\n")]
    texts += [(f"a(b, {number})\n", f"c(b, {number})\n") for number in range(3)]
    return [task_of(before, wanted, id=f"d:{number}") for number, (before, wanted) in enumerate(texts)]


@pytest.fixture
def whole(tasks: list[Task], tmp_path: Path) -> tuple[list[Trajectory], bytes]:
    """The trajectories and the journal of an undisturbed run."""
    folder = tmp_path / "undisturbed"
    folder.mkdir()
    trajectories = list(collect_many(tasks, Attempts(), folder))
    return trajectories, (folder / JOURNAL_NAME).read_bytes()


def test_trajectories_come_in_the_order_of_the_tasks_and_stand_so_in_the_journal(
    tasks: list[Task], whole: tuple[list[Trajectory], bytes]
) -> None:
    trajectories, journal = whole
    assert [trajectory.task_id for trajectory in trajectories] == [task.id for task in tasks]
    assert [Trajectory.model_validate_json(line) for line in journal.split(b"\n")[:-1]] == trajectories


# nothing, half a line, between two lines, all but the end of the last one
@pytest.mark.parametrize(("lines", "half"), [(0, 0.0), (1, 0.5), (4, 0.0), (6, 0.999)])
def test_a_killed_run_goes_on_where_it_was(
    tasks: list[Task], whole: tuple[list[Trajectory], bytes], tmp_path: Path, lines: int, half: float
) -> None:
    trajectories, journal = whole
    parts = [line + b"\n" for line in journal.split(b"\n")[:-1]] + [b"{never finished}\n"]
    left = b"".join(parts[:lines]) + parts[lines][: int(len(parts[lines]) * half)]
    (tmp_path / JOURNAL_NAME).write_bytes(left)
    attempts = Attempts()
    assert list(collect_many(tasks, attempts, tmp_path)) == trajectories
    assert attempts.made == [task.id for task in tasks[lines:]]
    assert (tmp_path / JOURNAL_NAME).read_bytes() == journal


def test_finished_attempts_are_not_made_again_even_with_other_results(
    tasks: list[Task], whole: tuple[list[Trajectory], bytes], tmp_path: Path
) -> None:
    stored = whole[0][0].model_copy(update={"ending": "stored"})
    (tmp_path / JOURNAL_NAME).write_text(stored.model_dump_json() + "\n", "utf-8")
    assert list(collect_many(tasks, Attempts(), tmp_path)) == [stored, *whole[0][1:]]


def test_a_journal_of_other_tasks_changes_nothing(
    tasks: list[Task], whole: tuple[list[Trajectory], bytes], tmp_path: Path
) -> None:
    other = whole[0][0].model_copy(update={"task_id": "d:other"})
    (tmp_path / JOURNAL_NAME).write_text(other.model_dump_json() + "\n", "utf-8")
    assert list(collect_many(tasks, Attempts(), tmp_path)) == whole[0]


def test_a_sandbox_that_stays_broken_stops_the_run_and_keeps_what_was_made(
    tasks: list[Task], whole: tuple[list[Trajectory], bytes], tmp_path: Path
) -> None:
    with pytest.raises(SandboxError):
        list(collect_many(tasks, Attempts(stop_at="d:3"), tmp_path))
    assert (tmp_path / JOURNAL_NAME).read_bytes().count(b"\n") == 3
    attempts = Attempts()
    assert list(collect_many(tasks, attempts, tmp_path)) == whole[0]
    assert attempts.made == ["d:3", "d:4", "d:5"]
    assert (tmp_path / JOURNAL_NAME).read_bytes() == whole[1]


def test_each_attempt_is_in_the_journal_before_the_next_begins(tasks: list[Task], tmp_path: Path) -> None:
    journal = tmp_path / JOURNAL_NAME
    lines = [journal.read_bytes().count(b"\n") for _ in collect_many(tasks, Attempts(), tmp_path)]
    assert lines == [1, 2, 3, 4, 5, 6]


def test_how_long_attempts_took_is_written_beside_for_all_of_them_once(tasks: list[Task], tmp_path: Path) -> None:
    times = tmp_path / "logs" / "times.jsonl"
    with pytest.raises(SandboxError):
        list(collect_many(tasks, Attempts(stop_at="d:3"), tmp_path, times))
    with times.open("a", encoding="utf-8") as stream:
        stream.write('{"task_id": "half')
    trajectories = list(collect_many(tasks, Attempts(), tmp_path, times))
    found = list(read_lines(times, AttemptTime))
    assert [time.task_id for time in found] == [task.id for task in tasks]
    # the teacher is asked once more than it takes steps where it gives up
    steps = [len(trajectory.steps) + (trajectory.ending == "gave_up") for trajectory in trajectories]
    assert [len(time.answers_ms) for time in found] == steps
    assert all(time.attempt_ms > 0 for time in found)
