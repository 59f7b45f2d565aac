"""The log of a run: a line per artifact, and the newest log is that of the last run."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from graftline.core.paths import Paths
from graftline.pipeline.run_log import Outcome, RunLog, last_run


def test_there_is_no_last_run_before_the_first(tmp_path: Path) -> None:
    assert (last_run(Paths(tmp_path)), list(tmp_path.iterdir())) == ([], [])


def test_a_log_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    log = RunLog(Paths(tmp_path), "first")
    log.append("raw", "demo", "not there yet", 1.23456)
    log.append("splits", "python/train", "", 0.0001)
    assert last_run(Paths(tmp_path)) == [
        Outcome("raw", "demo", "not there yet", 1.235),
        Outcome("splits", "python/train", "", 0.0),
    ]


def test_a_line_of_the_log_is_one_object_of_json(tmp_path: Path) -> None:
    RunLog(Paths(tmp_path), "first").append("raw", "demo", "config 'a'\nchanged", 0.5)
    [line] = (tmp_path / "logs" / "runs" / "first.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line) == {
        "stage": "raw",
        "name": "demo",
        "reason": "config 'a'\nchanged",
        "seconds": 0.5,
        "worked_s": 0.0,
    }


def test_two_logs_of_one_run_go_to_one_file(tmp_path: Path) -> None:
    for stage in ("raw", "normalized"):
        RunLog(Paths(tmp_path), "shared").append(stage, "demo", "", 0)
    assert [outcome.stage for outcome in last_run(Paths(tmp_path))] == ["raw", "normalized"]


def test_the_last_run_is_the_one_written_last_whatever_its_name(tmp_path: Path) -> None:
    for age, run in enumerate(("m", "z", "a")):
        log = RunLog(Paths(tmp_path), run)
        log.append("raw", run, "", 0)
        os.utime(log.path, (1000 - age, 1000 - age))
    assert [outcome.name for outcome in last_run(Paths(tmp_path))] == ["m"]


def test_every_run_of_the_lineage_has_a_log_of_its_own(made: Path, run: Callable[..., dict[str, str]]) -> None:
    reasons = run(made)
    found = {f"{outcome.stage} {outcome.name}": outcome.reason for outcome in last_run(Paths(made))}
    assert (found, len(list((made / "logs" / "runs").iterdir()))) == (reasons, 2)


def test_a_run_of_stages_that_are_made_by_themselves_counts_with_the_one_before(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    for number, (run, stage) in enumerate((("a", "raw"), ("b", "tasks"), ("c", "trained"), ("d", "trained"))):
        RunLog(paths, run).append(stage, run, "", 0.0)
        os.utime(paths.logs / "runs" / f"{run}.jsonl", (number, number))
    assert [outcome.name for outcome in last_run(paths)] == ["d"]
    assert [outcome.name for outcome in last_run(paths, {"trained"})] == ["b", "d"]
    assert [outcome.name for outcome in last_run(paths, {"trained", "tasks", "raw"})] == ["d"]
