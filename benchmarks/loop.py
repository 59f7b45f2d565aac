"""What it costs to close the loop: orchestration and records, prompt optimization, grading.

* `overhead_percent`: of a Dagster run of about five minutes that trains an adapter and judges it, the wall time that is not
  spent making files, relative to what is: Dagster, records, checksums, locks. `lineage_overhead_percent` is that of the run
  before it, from raw data to trajectories, which is shorter and has many more artifacts, and whose dbt models count as overhead;
* `no_op_s`: the same two runs with nothing changed, by one command as `make run` has it;
* `graded_s`: 1,000 tasks with 4 answers each, graded (`benchmarks.graded_answers`);
* `gepa_of_bare`: rollouts a minute that an optimization evaluates, of what the bare pool answers (`benchmarks.gepa_rollouts`).

Peer: making the files alone, and asking the pool alone, both of the same runs.

    python -m benchmarks.loop [--quick]

`--quick` takes 60 rows of each language, a recipe of a few steps, and few rollouts: it shows that all of it runs.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import gepa_rollouts, graded_answers
from benchmarks.lineage import CHECKOUT, prepared, run_jobs, timed
from benchmarks.machine import machine
from graftline.core.paths import Paths
from graftline.pipeline.run_log import last_run

_RECIPE = "first_adapter"
_EPOCHS = 3
"""Enough for a run of about five minutes on two cores; that of `make run` has one."""
_QUICK_ROWS, _QUICK_STEPS, _QUICK_TASKS = 60, 3, 20
_TASKS, _ATTEMPTS = 1000, 4
_OF_TRAINING = ("sft_dataset", "trained_adapter")


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows, steps and rollouts: shows that it runs")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="graftline-bench-") as folder:
        figures, peers = measure(Path(folder), quick)
    print(json.dumps({"name": "loop", "figures": figures, "peers": peers, "machine": machine()}))


def measure(folder: Path, quick: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claims, and those of the peers."""
    root = prepared(folder / "root", _QUICK_ROWS if quick else None)
    environment = _environment(root, folder / "home", quick)
    lineage_s, _ = timed(run_jobs("lineage"), environment)
    lineage_worked_s = sum(outcome.worked_s for outcome in last_run(Paths(root)))
    training_s, _ = timed(run_jobs("training"), environment)
    worked_s = sum(outcome.worked_s for outcome in last_run(Paths(root)) if outcome.stage in _OF_TRAINING)
    no_op_s, _ = timed(run_jobs("lineage", "training"), environment)
    graded = graded_answers.measure(_QUICK_TASKS if quick else _TASKS, _ATTEMPTS, root)
    gepa = gepa_rollouts.measure(gepa_rollouts.QUICK if quick else gepa_rollouts.FULL)
    figures = {
        "run_s": training_s,
        "overhead_percent": _percent(training_s, worked_s),
        "lineage_run_s": lineage_s,
        "lineage_overhead_percent": _percent(lineage_s, lineage_worked_s),
        "no_op_s": no_op_s,
        "graded_answers": graded["answers"],
        "graded_s": graded["wall_s"],
        "gepa_rollouts_per_minute": gepa["rollouts_per_minute"],
        "gepa_of_bare": gepa["of_bare"],
        "gepa_paid_twice": gepa["twice"],
    }
    peers = {
        "making the files alone": {"run_s": round(worked_s, 2), "lineage_run_s": round(lineage_worked_s, 2)},
        "the bare pool": {"chats_per_minute": gepa["chats_per_minute"]},
    }
    return figures, peers


def _environment(root: Path, home: Path, quick: bool) -> dict[str, str]:
    """Prepare a recipe and a home of Dagster, and return the environment of the commands over them."""
    recipe = root / "configs" / "recipes" / f"{_RECIPE}.yaml"
    recipe.parent.mkdir()
    text = (CHECKOUT / "configs" / "recipes" / f"{_RECIPE}.yaml").read_text("utf-8")
    length = f"max_steps: {_QUICK_STEPS}" if quick else f"epochs: {_EPOCHS}"
    recipe.write_text(f"{text}{length}\n", "utf-8")
    models = CHECKOUT / "data" / "models"
    if models.is_dir():
        # weights are fetched once
        (root / "data" / "models").symlink_to(models)
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster.yaml", home)
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")}
    ours = {"GRAFTLINE_ROOT": str(root), "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1"}
    return {**kept, **ours, "GRAFTLINE_DATASETS": "release_pairs"}


def _percent(wall_s: float, worked_s: float) -> float:
    return round(100 * (wall_s - worked_s) / worked_s, 2)


if __name__ == "__main__":
    main()
