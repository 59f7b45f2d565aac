"""A run that is killed in the middle of a stage, started again, ends in the files of an undisturbed run."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from tests.killed_runs import contents, kill_when, run_again

BIN = Path(sys.executable).parent
LANGUAGES = ("java", "python")


@pytest.fixture(scope="module")
def sample() -> list[dict[str, Any]]:
    """Rows enough for stages that take a moment: 8 of each language."""
    path = Path(__file__).resolve().parents[2] / "data" / "samples" / "release_pairs.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    return [row for language in LANGUAGES for row in [row for row in rows if row["language"] == language][:8]]


def journal_lines(root: Path) -> int:
    journals = (root / "data" / "trajectories" / "raw").glob("*/*/.*.partial-*/.journal.jsonl")
    try:
        return sum(path.read_bytes().count(b"\n") for path in journals)
    except FileNotFoundError:  # finished between listing and reading
        return 0


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, sample: list[dict[str, Any]], new_checkout: Any
) -> dict[str, str]:
    other = new_checkout(tmp_path_factory.mktemp("undisturbed") / "checkout")
    other.configure(per_partition=2, workers=2, languages=LANGUAGES)
    other.write(sample)
    done = CliRunner().invoke(main, ["--root", str(other.root), "run"])
    assert done.exit_code == 0, done.output
    return contents(other.root / "data")


# the same in make test, by one moment of a stage that is made anew and with the other stages of it
@pytest.mark.parametrize("stage", [pytest.param("tasks", marks=pytest.mark.long), "teacher_trajectories"])
def test_a_killed_run_started_again_ends_in_the_same_files(
    stage: str, small_checkout: Any, sample: list[dict[str, Any]], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=2, workers=2, languages=LANGUAGES)
    small_checkout.write(sample)
    root = small_checkout.root
    in_the_middle = {
        "tasks": lambda: any((root / "data" / "tasks").glob("*/.*.partial-*")),
        "teacher_trajectories": lambda: journal_lines(root) >= 5,
    }
    command = [str(BIN / "graftline"), "--root", str(root), "run"]
    kill_when(command, {**os.environ}, tmp_path, in_the_middle[stage])
    assert not (root / "data" / "trajectories" / "parquet").exists()
    run_again(command, {**os.environ}, tmp_path)
    assert contents(root / "data") == undisturbed


@pytest.mark.long  # by an interruption in make test: tests/unit/pipeline/test_lineage_stages.py
def test_what_was_collected_before_the_kill_is_not_collected_again(
    small_checkout: Any, sample: list[dict[str, Any]], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=2, workers=2, languages=LANGUAGES)
    small_checkout.write(sample)
    command = [str(BIN / "graftline"), "--root", str(small_checkout.root), "run"]
    kill_when(command, {**os.environ}, tmp_path, lambda: journal_lines(small_checkout.root) >= 5)
    [journal] = (small_checkout.root / "data" / "trajectories" / "raw").glob("*/*/.*.partial-*/.journal.jsonl")
    before = journal.read_bytes()
    # a line that no teacher would write: it is in the result only if the journal was believed
    first, rest = before.split(b"\n", 1)
    marked = {**json.loads(first), "ending": "marked"}
    journal.write_bytes(json.dumps(marked).encode() + b"\n" + rest)
    run_again(command, {**os.environ}, tmp_path)
    stored = (small_checkout.root / "data" / "trajectories" / "raw").glob("*/*/induction/shard-*.jsonl")
    assert sum(path.read_text("utf-8").count('"ending":"marked"') for path in stored) == 1


@pytest.mark.long  # by the command in make test, above; Dagster runs the same stages
def test_a_killed_dagster_run_started_again_ends_in_the_same_files(
    checkout: Path, small_checkout: Any, sample: list[dict[str, Any]], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=2, workers=2, languages=LANGUAGES)
    small_checkout.write(sample)
    root = small_checkout.root
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text((checkout / "dagster.yaml").read_text("utf-8"), "utf-8")
    environment = {**os.environ, "GRAFTLINE_ROOT": str(root), "DAGSTER_HOME": str(home)}
    printed = subprocess.run(
        [sys.executable, "-m", "assets.partitions"], env=environment, cwd=checkout, capture_output=True, check=True
    )
    whole_range = printed.stdout.decode().strip()
    command = [
        str(BIN / "dagster"), "asset", "materialize", "-m", "orchestration.definitions",
        "--select", "+key:trajectories or key:label_tasks", "--partition-range", whole_range,
    ]  # fmt: skip
    kill_when(command, environment, checkout, lambda: journal_lines(root) >= 5)
    run_again(command, environment, checkout)
    assert contents(root / "data") == undisturbed
