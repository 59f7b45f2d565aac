"""What version 0.1.0 stored is read: a root that it made is shown, verified, traced, and brought up to date.

`stored/root-0.1.0.tar.gz` is that root: 27 rows of the shipped sample under the licenses of data/samples/NOTICE, everything up to two
adapters made of them by `graftline run`, and an evaluation by `graftline eval run`.
"""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main

ARCHIVE = Path(__file__).with_name("stored") / "root-0.1.0.tar.gz"
MADE_AGAIN_BY_A_RUN = {
    *("raw", "normalized", "division", "splits", "repository_changes", "label_tasks", "synthetic_rules", "tasks"),
    *("teacher_trajectories", "trajectories", "sft_dataset", "trained_adapter"),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def graftline(root: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(main, ["--root", str(root), *arguments])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def test_every_artifact_is_verified(root: Path) -> None:
    assert graftline(root, "check").splitlines()[-1].endswith("checked, 0 faulty")


def test_rows_attempts_adapters_and_evaluations_are_shown(root: Path) -> None:
    stages = graftline(root, "status", "--json")["stages"]
    counts = {name: stage["counts"] for name, stage in stages.items()}
    assert (counts["splits"]["rows"], counts["tasks"]["rows"], counts["trajectories"]["verified"]) == (27, 37, 36)
    assert "| verified | 4 | 0 |" in graftline(root, "eval", "report", "teachers")
    edits = graftline(root, "datasets", "sample", "--json")["edits"]
    assert {edit["license"] for edit in edits} == {"MIT", "BSD-3-Clause"}


def test_an_adapter_is_traced_to_its_rows_and_their_licenses(root: Path) -> None:
    lineage = graftline(root, "lineage", "tiny", "--rows", "--json")
    assert len(lineage["rows"]) == 8
    assert "BSD-2-Clause" in graftline(root, "licenses", "seen")


def test_a_run_brings_it_up_to_date_and_comes_to_the_same(root: Path) -> None:
    before = graftline(root, "status", "--json")["stages"]
    graftline(root, "run")
    after = graftline(root, "status", "--json")["stages"]
    assert {name for name, stage in after.items() if stage["made"]} == MADE_AGAIN_BY_A_RUN
    compared = ("splits", "synthetic_rules", "tasks", "trajectories", "sft_dataset")
    counts = {name: dict(after[name]["counts"]) for name in compared}
    names = [name for name in counts["tasks"] if name.startswith(("instructions.", "comment_only"))]
    assert {name: counts["tasks"].pop(name) for name in names} == {
        "instructions.release_pairs.rule.answerable": 26,
        "instructions.release_pairs.none.unanswerable": 1,
        "instructions.synthetic_rules.rule.answerable": 10,
        "comment_only": 2,
    }
    # the attempts at tasks that had no instruction are of other tasks than those of now, and stay beside the new ones
    assert counts["trajectories"].pop("not_kept.other_task") == 27
    # which tells nobody who reads it what to do, or asks for other words and no other code, is not trained on
    assert (counts.pop("sft_dataset")["rows"], before["sft_dataset"]["counts"]["rows"]) == (30, 32)
    assert counts == {name: before[name]["counts"] for name in counts}
