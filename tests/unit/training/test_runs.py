import fcntl
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from graftline.core.errors import ConfigError, RecordError
from graftline.training.runs import Runs, RunState, StepMetrics, TrainingRun


def run(**values: Any) -> TrainingRun:
    given = {
        "run_id": "one",
        "recipe": "sl_basic",
        "config": {},
        "config_digest": "c",
        "dataset": {"dataset": "d"},
        "examples": 3,
        "versions": {},
        "backend": "http://127.0.0.1:1",
        "total_steps": 9,
    }
    return TrainingRun(**{**given, **values})


def step(number: int, **values: Any) -> StepMetrics:
    given = {"loss": 1.0, "tokens": 4, "trained_tokens": 2, "learning_rate": 0.1, "seconds": 0.5}
    return StepMetrics(step=number, **{**given, **values})


def test_an_unknown_run_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    Runs(tmp_path).write(run())
    with pytest.raises(ConfigError, match=r"there is no run 'two' in .*; it has one$"):
        Runs(tmp_path).get("two")


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 129])
def test_what_cannot_be_an_id_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not made of"):
        Runs(tmp_path).find(name)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"run_id": "one"}'])
def test_a_record_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    Runs(tmp_path).write(run())
    (tmp_path / "runs" / "one.json").write_text(text, "utf-8")
    with pytest.raises(RecordError, match=r"one\.json: is no record of a run"):
        Runs(tmp_path).get("one")


def test_steps_are_taken_back_and_a_torn_line_is_none(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.write(run())
    for number in range(4):
        runs.add_step("one", step(number))
    with runs.steps_path("one").open("a") as stream:
        stream.write('{"step": 4, "lo')
    assert [one.step for one in runs.steps("one")] == [0, 1, 2, 3]
    runs.keep_steps("one", 2)
    assert runs.steps("one") == [step(0), step(1)]


def test_a_run_is_trained_by_one_process_at_a_time(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with runs.lock("one"), pytest.raises(ConfigError, match="is being trained by another process"), runs.lock("one"):
        pass
    assert opened_below(tmp_path) == 0
    with runs.lock("one"):
        assert opened_below(tmp_path) == 1
    assert opened_below(tmp_path) == 0


def test_a_run_whose_process_is_gone_is_interrupted_whatever_its_record_says(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    with runs.lock("one"):
        assert runs.state(run()) == RunState("running")
    found = runs.state(run(next_step=7))
    assert found.status == "interrupted"
    assert (
        "its process was killed, or the machine stopped; `graftline train resume one` goes on from step 7"
        in found.detail
    )


def test_of_a_run_of_another_machine_is_told_what_is_known(tmp_path: Path) -> None:
    runs, elsewhere = Runs(tmp_path), run(host="far")
    found = runs.state(elsewhere, host="here")
    assert found.status == "unknown"
    assert "last trained on the machine 'far'; whether it still is cannot be seen from here" in found.detail
    assert runs.state(elsewhere, host="far").status == "interrupted"
    with runs.lock("one"):  # as a lock of a file system that several machines share
        assert runs.state(elsewhere, host="here").status == "running"


@pytest.mark.parametrize("status", ["done", "stopped_early", "interrupted", "failed"])
def test_a_run_that_ended_is_what_its_record_says(tmp_path: Path, status: str) -> None:
    ended = run(status=status, error="why", host="far")
    assert Runs(tmp_path).state(ended) == RunState(status, "why")  # type: ignore[arg-type]


def opened_below(folder: Path) -> int:
    """Return how many descriptors of this process, in which other tests have theirs, are of files below a folder."""
    return sum(link.resolve().is_relative_to(folder) for link in Path("/proc/self/fd").iterdir())


def test_who_looks_whether_a_run_is_trained_keeps_nobody_from_training_it(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert not runs.is_trained("a")
    assert not (tmp_path / "runs").exists()
    with runs.lock("a"):
        assert runs.is_trained("a")
    assert not runs.is_trained("a")
    # as of a look that has not ended yet
    with (tmp_path / "runs" / ".a.lock").open() as looked:
        fcntl.flock(looked, fcntl.LOCK_SH)
        ending = Timer(0.05, lambda: fcntl.flock(looked, fcntl.LOCK_UN))
        ending.start()
        with runs.lock("a"):
            assert runs.is_trained("a")
        ending.join()
