"""`graftline train status`: a record in a folder is enough. As the command was first described it is `train --status`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.training.runs import Runs, TrainingRun

RUN = TrainingRun(
    run_id="run-123",
    recipe="sl_basic",
    config={"model": "tiny"},
    config_digest="0",
    dataset={"dataset": "1"},
    examples=3,
    versions={},
    backend="http://127.0.0.1:1",
    total_steps=4,
)


@pytest.mark.parametrize("command", [["train", "--status", "run-123"], ["train", "status", "run-123"]])
def test_a_record_says_how_far_its_run_is(tmp_path: Path, command: list[str]) -> None:
    root = tmp_path / "root"
    (root / "configs" / "manifests").mkdir(parents=True)
    Runs(root / "models" / "adapters" / "tinker").write(RUN)
    done = CliRunner().invoke(main, ["--root", str(root), *command])
    assert done.exit_code == 0, done.output
    assert "run-123" in done.output
    assert "not asked, for no attempt was made" in done.output


def test_the_records_may_be_anywhere(tmp_path: Path) -> None:
    Runs(tmp_path).write(RUN)
    done = CliRunner().invoke(main, ["train", "--status", "run-123", "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "run-123" in done.output


def test_a_run_without_a_record_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    Runs(tmp_path).write(RUN)
    done = CliRunner().invoke(main, ["train", "--status", "run-9", "--output", str(tmp_path)])
    assert done.exit_code == 1
    assert "there is no run 'run-9'" in done.output
    assert "it has run-123" in done.output
