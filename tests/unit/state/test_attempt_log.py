"""The steps of attempts that are under way: who may go on with them, and from where."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.errors import BoundaryError
from graftline.rollouts.state import AttemptLog, StateStore

FIRST, SECOND = '{"step":1}', '{"step":2}'


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AttemptLog]:
    with StateStore(tmp_path / "state.sqlite") as states:
        yield AttemptLog(states)


def phases(log: AttemptLog) -> list[tuple[str, str, str, int, str]]:
    return [(one.key, one.teacher, one.phase, one.steps, one.reason) for one in log.statuses()]


def test_an_attempt_is_resumed_after_the_steps_that_were_added(log: AttemptLog) -> None:
    claim, steps = log.begin("digest", "task#1", "t")
    log.add(claim, 1, FIRST)
    log.interrupt(claim, "nobody answered")
    assert (steps, phases(log)) == ([], [("task#1", "t", "interrupted", 1, "nobody answered")])
    claim, steps = log.begin("digest", "task#1", "t")
    log.add(claim, 2, SECOND)
    assert (steps, log.begin("digest", "task#1", "t")[1]) == ([FIRST], [FIRST, SECOND])


def test_other_settings_or_code_never_resume_an_attempt(log: AttemptLog) -> None:
    claim, _ = log.begin("digest of one", "task#1", "t")
    log.add(claim, 1, FIRST)
    assert log.begin("digest of another", "task#1", "t")[1] == []
    # neither does the first, once it is settled that nobody goes that way any more
    assert log.begin("digest of one", "task#1", "t")[1] == []


def test_a_worker_that_was_taken_for_dead_adds_nothing_to_the_way_of_another(log: AttemptLog) -> None:
    late, _ = log.begin("digest", "task#1", "t")
    claim, _ = log.begin("digest", "task#1", "t")
    with pytest.raises(BoundaryError, match="taken over by another worker"):
        log.add(late, 1, FIRST)
    log.end(late, "verified", 1)
    log.interrupt(late, "nobody answered")
    log.add(claim, 1, SECOND)
    assert (log.begin("digest", "task#1", "t")[1], phases(log)) == ([SECOND], [("task#1", "t", "running", 1, "")])


def test_steps_after_one_that_is_missing_are_deleted(log: AttemptLog) -> None:
    claim, _ = log.begin("digest", "task#1", "t")
    log.add(claim, 1, FIRST)
    log.add(claim, 3, SECOND)
    assert [log.begin("digest", "task#1", "t")[1] for _ in range(2)] == [[FIRST], [FIRST]]


def test_an_attempt_that_ended_has_no_steps_but_how_it_ended(log: AttemptLog) -> None:
    claim, _ = log.begin("digest", "task#1", "t")
    log.add(claim, 1, FIRST)
    log.end(claim, "failed", 1, "max_failed")
    assert phases(log) == [("task#1", "t", "failed", 1, "max_failed")]
    assert log.begin("digest", "task#1", "t")[1] == []
