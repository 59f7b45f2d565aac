"""A run that is killed in the middle of a stage, started again, ends in the files of an undisturbed run."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from graftline.hashing import sha256_file

BIN = Path(sys.executable).parent
TIMEOUT_S = 120
STAMPED = ("written_at", "downloaded_at")


@pytest.fixture(scope="module")
def sample() -> list[dict[str, Any]]:
    """Rows enough for stages that take a moment: 25 of each language."""
    path = Path(__file__).resolve().parents[2] / "data" / "samples" / "release_pairs.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    languages = ("java", "javascript", "python")
    return [row for language in languages for row in [row for row in rows if row["language"] == language][:25]]


def contents(data: Path) -> dict[str, str]:
    """Digest of every stored file; of records without the time they were written at."""
    found = {}
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data).as_posix()
        if not path.is_file() or name.startswith(("samples/", "warehouse/")):
            continue
        if path.name == "_meta.json":
            record = json.loads(path.read_text("utf-8"))
            found[name] = json.dumps(
                {key: value for key, value in record.items() if key not in STAMPED}, sort_keys=True
            )
        else:
            found[name] = sha256_file(path)
    return found


def kill_when(
    command: list[str], environment: dict[str, str], cwd: Path, is_time: Callable[[], bool]
) -> psutil.Process:
    """Start `command`, kill it with SIGKILL as soon as `is_time`; fail if that time never comes."""
    process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while not is_time():
            assert process.poll() is None, "it ended before it could be killed"
            assert time.monotonic() < deadline, "the stage to be disturbed never began"
            time.sleep(0.001)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert [child.cmdline() for child in alive] == [], "children outlive the killed run"
    return process


def run_again(command: list[str], environment: dict[str, str], cwd: Path) -> None:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr


def journal_lines(root: Path) -> int:
    journals = (root / "data" / "trajectories" / "raw").glob("*/.*.partial-*/.journal.jsonl")
    try:
        return sum(path.read_bytes().count(b"\n") for path in journals)
    except FileNotFoundError:  # finished between listing and reading
        return 0


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, sample: list[dict[str, Any]], new_checkout: Any
) -> dict[str, str]:
    other = new_checkout(tmp_path_factory.mktemp("undisturbed") / "checkout")
    other.configure(per_partition=4, workers=2)
    other.write(sample)
    run_again([str(BIN / "graftline"), "--root", str(other.root), "run"], {**os.environ}, other.root)
    return contents(other.root / "data")


@pytest.mark.parametrize("stage", ["tasks", "teacher_trajectories"])
def test_a_killed_run_started_again_ends_in_the_same_files(
    stage: str, small_checkout: Any, sample: list[dict[str, Any]], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=4, workers=2)
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


def test_what_was_collected_before_the_kill_is_not_collected_again(
    small_checkout: Any, sample: list[dict[str, Any]], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=4, workers=2)
    small_checkout.write(sample)
    command = [str(BIN / "graftline"), "--root", str(small_checkout.root), "run"]
    kill_when(command, {**os.environ}, tmp_path, lambda: journal_lines(small_checkout.root) >= 5)
    [journal] = (small_checkout.root / "data" / "trajectories" / "raw").glob("*/.*.partial-*/.journal.jsonl")
    before = journal.read_bytes()
    # a line that no teacher would write: it is in the result only if the journal was believed
    first, rest = before.split(b"\n", 1)
    marked = {**json.loads(first), "ending": "marked"}
    journal.write_bytes(json.dumps(marked).encode() + b"\n" + rest)
    run_again(command, {**os.environ}, tmp_path)
    stored = (small_checkout.root / "data" / "trajectories" / "raw").glob("*/*/trajectories.jsonl")
    assert sum(path.read_text("utf-8").count('"ending":"marked"') for path in stored) == 1


def test_a_killed_dagster_run_started_again_ends_in_the_same_files(
    checkout: Path, small_checkout: Any, sample: list[dict[str, Any]], undisturbed: dict[str, str], tmp_path: Path
) -> None:
    small_checkout.configure(per_partition=4, workers=2)
    small_checkout.write(sample)
    root = small_checkout.root
    home = tmp_path / "dagster_home"
    home.mkdir()
    (home / "dagster.yaml").write_text((checkout / "dagster.yaml").read_text("utf-8"), "utf-8")
    environment = {**os.environ, "GRAFTLINE_ROOT": str(root), "DAGSTER_HOME": str(home)}
    command = [
        str(BIN / "dagster"), "asset", "materialize", "-m", "orchestration.definitions",
        "--select", "*", "--partition-range", "java|train...python|test",
    ]  # fmt: skip
    kill_when(command, environment, checkout, lambda: journal_lines(root) >= 5)
    run_again(command, environment, checkout)
    assert contents(root / "data") == undisturbed
