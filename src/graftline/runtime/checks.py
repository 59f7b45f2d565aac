"""What must hold of stored artefacts, as questions whose answer is a list of faults."""

from collections import defaultdict
from pathlib import Path

from pydantic import BaseModel, ValidationError

from graftline.datasets.edit import Edit, Label
from graftline.datasets.tables import EDITS
from graftline.jsonl import read_lines
from graftline.parquet import read_parquet
from graftline.record import verified
from graftline.runtime.lineage import Lineage
from graftline.trajectories.export import STEPS, TRAJECTORIES

_MOST_FAULTS = 20


def invalid_edits(lineage: Lineage, dataset: str) -> list[str]:
    """Return the lines of the normalised `dataset` that are no edits, and no labels."""
    folder = lineage.paths.normalized(dataset)
    faults = [fault for path in sorted(folder.glob("*-*.jsonl")) for fault in _invalid_lines(path, Edit)]
    labels = folder / "labels.jsonl"
    return (faults + (_invalid_lines(labels, Label) if labels.exists() else []))[:_MOST_FAULTS]


def invalid_splits(lineage: Lineage) -> list[str]:
    """Return the lines of the stored splits that are no edits, and Parquet files with other columns."""
    faults = []
    for folder in _stored(lineage, "processed", "splits"):
        faults += _invalid_lines(folder / "edits.jsonl", Edit) + _other_columns(folder / "edits.parquet", set(EDITS))
    return faults[:_MOST_FAULTS]


def leaks(lineage: Lineage) -> list[str]:
    """Return the edits, groups, commits and clusters of near-duplicates that stand in more than one split."""
    where: dict[tuple[str, str], set[str]] = defaultdict(set)
    for folder in _stored(lineage, "processed", "splits"):
        for edit in read_lines(folder / "edits.jsonl", Edit):
            where["edit", edit.id].add(folder.name)
            where["commit", edit.commit].add(folder.name)
            for group in (edit.group, *edit.aliases):
                where["group", group.lower()].add(folder.name)
        for row in read_parquet(folder / "edits.parquet", ["cluster"]):
            where["cluster", row["cluster"]].add(folder.name)
    where.pop(("commit", ""), None)
    found = sorted((what, name, splits) for (what, name), splits in where.items() if len(splits) > 1)
    return [f"{what} {name!r} is in {', '.join(sorted(splits))}" for what, name, splits in found][:_MOST_FAULTS]


def invalid_trajectories(lineage: Lineage) -> list[str]:
    """Return the Parquet files of trajectories with other columns than are documented, or impossible rewards."""
    faults = []
    for folder in _stored(lineage, "trajectories/parquet", "trajectories"):
        faults += _other_columns(folder / "trajectories.parquet", set(TRAJECTORIES))
        faults += _other_columns(folder / "steps.parquet", set(STEPS))
        for row in read_parquet(folder / "steps.parquet"):
            if row["reward"] is not None and not 0 <= row["reward"] <= 1:
                faults.append(f"{row['task_id']} step {row['step']}: reward {row['reward']} is not in [0, 1]")
    return faults[:_MOST_FAULTS]


def verified_steps(lineage: Lineage) -> int:
    """Return the number of verified steps in all stored partitions."""
    folders = _stored(lineage, "trajectories/parquet", "trajectories")
    return sum(verified(folder, "trajectories").counts["verified_steps"] for folder in folders)


def _stored(lineage: Lineage, where: str, kind: str) -> list[Path]:
    folders = [lineage.paths.partition(where, language, split) for language, split in lineage.partitions()]
    present = [folder for folder in folders if folder.exists()]
    for folder in present:
        verified(folder, kind)
    return present


def _invalid_lines(path: Path, model: type[BaseModel]) -> list[str]:
    faults = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            try:
                model.model_validate_json(line)
            except ValidationError as error:
                fault = error.errors(include_url=False)[0]
                faults.append(f"{path}: line {number}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}")
    return faults[:_MOST_FAULTS]


def _other_columns(path: Path, columns: set[str]) -> list[str]:
    rows = read_parquet(path)
    found = set(rows[0]) if rows else columns
    return [] if found == columns else [f"{path}: columns {sorted(found ^ columns)} are missing or unexpected"]
