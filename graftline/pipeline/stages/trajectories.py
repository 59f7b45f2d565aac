"""The stage `trajectories`: the attempts of all teachers as Parquet."""

from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents
from graftline.core.errors import RecordError
from graftline.core.jsonl import read_lines
from graftline.core.parquet import write_parquet
from graftline.datasets.division import Split
from graftline.pipeline.lineage import Lineage, request_of
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES, step_rows, trajectory_rows
from graftline.rollouts.shards import current_attempts, read_shards, sealed_shards
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import tally


def trajectories(lineage: Lineage, language: Language, split: Split) -> Built:
    """Write the trajectories of all teachers at the tasks of one language and split as Parquet."""
    source = lineage.paths.partition("tasks", language, split)
    folders = _attempted(lineage, language, split)
    records = {f"teacher_trajectories.{name}": folders[name] for name in folders}
    inputs = {name: lineage.verified(folder, "teacher_trajectories") for name, folder in records.items()}
    inputs["tasks"] = lineage.verified(source, "tasks")
    request = request_of("trajectories", f"{language}/{split}", inputs, {})

    def make(partial: Path) -> Contents:
        tasks = list(read_lines(source / "tasks.jsonl", Task))
        shards = (shard for folder in folders.values() for shard in sealed_shards(folder))
        chosen = current_attempts(read_shards(shards), tasks)
        steps = step_rows(chosen.attempts, split)
        write_parquet(partial / "steps.parquet", steps, STEPS)
        write_parquet(partial / "trajectories.parquet", trajectory_rows(chosen.attempts, split), TRAJECTORIES)
        return Contents({**tally(chosen.attempts), "steps": len(steps), **chosen.left_out})

    return lineage.build(lineage.paths.partition("trajectories/parquet", language, split), request, make)


def _attempted(lineage: Lineage, language: Language, split: Split) -> dict[str, Path]:
    """Return the folder of every teacher that attempted these tasks, by name.

    Raises:
        RecordError: there is none.
    """
    if found := {path.name: path for path in lineage.attempted(language, split)}:
        return found
    folder = lineage.paths.partition("trajectories/raw", language, split)
    raise RecordError(
        f"{folder}: has no _meta.json, so it was not made yet; run `graftline run`, or materialize its asset"
    )
