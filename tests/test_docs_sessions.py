"""README and the pages that say how to do things, typed at a shell line after line, and what came of it.

The checkout is a small one, with tiny models under the names of the real ones (`tests.scratch_checkout`), and every page is
typed as it stands, in one shell. What a page says to type and is not typed here stands in `NOT_TYPED`, with the reason.
"""

import json
import re
import shutil
from collections.abc import Mapping
from math import log
from pathlib import Path
from statistics import mean

import pytest

pytest.importorskip("tinker", reason="the extra `training` is not installed")
pytest.importorskip("xllamacpp", reason="the extra `embedded` is not installed")

from tests.page_session import Printed, can_leave_the_network, follow, typed_lines
from tests.pages import fences
from tests.scratch_checkout import write_scratch_checkout, write_tiny_models

pytestmark = [
    pytest.mark.long,
    # of a whole page, on a machine that does much else
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not can_leave_the_network(),
        reason="this machine lets no process have a network of its own: run as root, or allow user namespaces",
    ),
]

FETCHES = "fetches hundreds of megabytes"
HOUR = "trains and judges for most of an hour: tests/unit/pipeline/test_closed_loop.py does so with tiny models"
NOT_TYPED: Mapping[str, Mapping[str, str]] = {
    "README.md": {
        "make test": "is this",
        "make closed-loop": HOUR,
        "GRAFTLINE_DATASETS=release_pairs,commitpackft make run": FETCHES,
        "GRAFTLINE_DATASET_MIRROR=s3://bucket/datasets make run": "needs a bucket",
    },
    "docs/training.md": {
        f".venv/bin/dagster asset materialize -m orchestration.definitions --select {selected} --partition first_adapter": (
            "tests/shell/test_training.py materializes recipes"
        )
        for selected in ("'group:training'", "trained_adapter")
    },
}


def rows_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def runs_of(root: Path, recipe: str) -> list[str]:
    """Return the names of the runs that were trained on files that somebody named; what `make run` trains has none."""
    folder = root / "models" / "adapters" / "tinker" / "runs"
    records = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob(f"{recipe}-*.json"))]
    return [record["run_id"] for record in records if record["config"]["data"] is None]


def losses_of(root: Path, recipe: str) -> list[float]:
    """Return the loss of every step of the run of a recipe, whose adapter is there."""
    folder = root / "models" / "adapters" / "tinker"
    [run] = runs_of(root, recipe)
    assert (folder / run / "adapter_model.safetensors").stat().st_size > 0
    return [float(str(row["loss"])) for row in rows_of(folder / "runs" / f"{run}.steps.jsonl") if "loss" in row]


def assert_loss_falls(root: Path, recipe: str) -> None:
    """Assert that the run of a recipe has learnt something."""
    losses = losses_of(root, recipe)
    half = len(losses) // 2
    # batches differ: no single step has to be better than another
    assert mean(losses[half:]) < mean(losses[:half]), losses


def check_readme(root: Path, printed: Mapping[str, Printed]) -> None:
    table = printed["make run"].output
    assert re.search(r"^ +trained_adapter +[1-9]", table, re.M), table
    assert re.search(r"^ +first_adapter +14 +\d+ +\d of [1-4] +\d of [1-4]", table, re.M), table
    assert "Nothing was recomputed" in printed["graftline run"].output
    assert re.search(r"^ +python/train +[1-9]", printed["graftline status"].output, re.M)
    assert "1 match in 1 file would change" in printed["graftline apply rules.yml code"].output
    assert "1 rule from 2 small changes" in printed["graftline mine shop"].output
    attempts = [*(root / "data/trajectories/raw").glob("*/*/openai*/shard-*.jsonl")]
    assert sum(len(rows_of(path)) for path in attempts) >= 6
    assert rows_of(root / "data/exports/sft.jsonl")
    assert_loss_falls(root, "sl_basic")
    rollouts = printed["graftline env run refactoring-python"].output
    assert len(re.findall(r"^ +\d+ .* 1\.0", rollouts, re.M)) == 5, rollouts
    assert re.search(r"1\.0", printed["graftline env eval refactoring-python --seeds 0-4"].output)


def check_training(root: Path, printed: Mapping[str, Printed]) -> None:
    for kind in ("sft", "dpo", "srl"):
        assert rows_of(root / f"data/exports/{kind}.jsonl")
    assert_loss_falls(root, "sl_basic")
    # before its first step a model prefers neither answer
    assert losses_of(root, "dpo")[0] == pytest.approx(log(2), abs=1e-3)
    for recipe in ("srl", "rl_grpo", "distill"):
        [run] = runs_of(root, recipe)
        assert (root / "models" / "adapters" / "tinker" / run / "adapter_model.safetensors").stat().st_size > 0


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Mapping[str, Printed]]:
    """A small checkout in which README was typed, and what that printed."""
    folder = tmp_path_factory.mktemp("sessions")
    root = write_scratch_checkout(folder / "checkout")
    write_tiny_models(root, folder / "models")
    return root, type_page("README.md", root, folder / "logs")


def type_page(page: str, root: Path, logs: Path) -> Mapping[str, Printed]:
    """Type what a page says in `root`; every line of it has to succeed."""
    lines = [*typed_lines([fence for fence in fences() if fence.page == page])]
    left_out = NOT_TYPED.get(page, {})
    assert left_out.keys() <= {line.command for line in lines}
    printed = follow([line for line in lines if line.command not in left_out], root, logs)
    failed = {command: outcome for command, outcome in printed.items() if outcome.status != 0}
    assert not failed, next(f"{command}: {outcome.output[-3000:]}" for command, outcome in failed.items())
    assert all("Traceback" not in outcome.output for outcome in printed.values())
    return printed


def test_the_readme_comes_to_what_it_says(newcomer: tuple[Path, Mapping[str, Printed]]) -> None:
    check_readme(*newcomer)


def test_the_page_on_training_trains(newcomer: tuple[Path, Mapping[str, Printed]], tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(newcomer[0], root, symlinks=True)
    shutil.rmtree(root / "models" / "adapters" / "tinker")
    check_training(root, type_page("docs/training.md", root, tmp_path / "logs"))
