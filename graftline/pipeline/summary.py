"""What lies under a root folder now, from the records alone, and what the last run did to it.

A run of Dagster is over partitions of one kind: what one does is trained, or evaluated, in the next, and both count as the
last one.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graftline.core.errors import RecordError
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, ArtifactRecord, load_record
from graftline.datasets.losses import main_losses
from graftline.pipeline.run_log import last_run
from graftline.pipeline.stages.table import STAGES

_APART = frozenset(name for name, stage in STAGES.items() if stage.is_apart)
"""Made in runs of their own."""
_PARTITION_COLUMNS = {
    "edits": ("splits", "rows"),
    "synthetic": ("synthetic_rules", "rows"),
    "tasks": ("tasks", "rows"),
    "tried": ("trajectories", "rows"),
    "verified": ("trajectories", "verified"),
    "exact": ("trajectories", "level.exact"),
    "verified steps": ("trajectories", "verified_steps"),
}


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage over all its artifacts."""

    stage: str
    artifacts: int
    counts: dict[str, int]
    made: int
    """Artifacts the last run made."""
    unchanged: int
    """Artifacts the last run found unchanged."""
    folder: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The lineage as it is stored."""

    stages: list[StageSummary]
    partitions: dict[str, dict[str, int]]
    """Edits, tasks and trajectories by `language/split`."""
    adapters: dict[str, dict[str, int]]
    """What the adapter of each recipe was trained on, and how many tasks are solved without and with it."""
    warnings: list[str] = field(default_factory=list)
    """Of which datasets most rows are lost to one reason."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        values = asdict(self)
        return {**values, "stages": {stage.pop("stage"): stage for stage in values["stages"]}}


def summarize(paths: Paths) -> Summary:
    """Return the summary of what is stored below `paths`; unreadable artifacts are left out."""
    records = {**_records(paths.data), **_records(paths.reports), **_records(paths.adapters)}
    outcomes = last_run(paths, _APART)
    stages = []
    for stage in STAGES:
        of_stage = {folder: record for folder, record in records.items() if record.kind == stage}
        counts: Counter[str] = Counter()
        for record in of_stage.values():
            counts.update(record.counts)
        is_made = [bool(outcome.reason) for outcome in outcomes if outcome.stage == stage]
        folder = paths.relative(Path(os.path.commonpath(of_stage))) if of_stage else ""
        stages.append(
            StageSummary(stage, len(of_stage), dict(counts), sum(is_made), len(is_made) - sum(is_made), folder)
        )
    partitions: dict[str, dict[str, int]] = defaultdict(dict)
    for record in records.values():
        for column, (kind, count) in _PARTITION_COLUMNS.items():
            if record.kind == kind:
                partitions[record.name][column] = record.counts.get(count, 0)
    adapters = {record.name: dict(record.counts) for record in records.values() if record.kind == "trained_adapter"}
    warnings = [str(loss) for loss in main_losses(records.values())]
    return Summary(stages, dict(sorted(partitions.items())), dict(sorted(adapters.items())), warnings)


def _records(data: Path) -> dict[Path, ArtifactRecord]:
    records = {}
    for path in sorted(data.rglob(RECORD_NAME)):
        if any(part.startswith(".") for part in path.relative_to(data).parts):
            continue
        try:
            records[path.parent] = load_record(path.parent)
        except RecordError:
            continue
    return records


def tables(summary: Summary) -> list[tuple[str, list[str], Sequence[tuple[str, ...]]]]:
    """Return the summary as titled tables of text."""
    stages = [
        (
            stage.stage,
            f"{stage.counts.get('rows', 0):,}",
            ", ".join(f"{key.partition('.')[2]} {count}" for key, count in stage.counts.items() if _is_loss(key)),
            str(stage.made),
            str(stage.unchanged),
            stage.folder,
        )
        for stage in summary.stages
        if stage.artifacts
    ]
    partitions = list(summary.partitions.items())
    if partitions:
        total = {column: sum(counts.get(column, 0) for _, counts in partitions) for column in _PARTITION_COLUMNS}
        partitions.append(("all", total))
    rows = [(name, *(f"{counts.get(column, 0):,}" for column in _PARTITION_COLUMNS)) for name, counts in partitions]
    adapters = [
        (
            name,
            *(f"{counts[count]:,}" for count in ("examples", "trained_tokens")),
            *(f"{counts[count]} of {counts['tasks']}" for count in ("solved_before", "solved_after")),
        )
        for name, counts in summary.adapters.items()
    ]
    titled: list[tuple[str, list[str], Sequence[tuple[str, ...]]]] = [
        ("Lineage", ["stage", "rows", "left out", "made", "unchanged", "files"], stages),
        ("Splits", ["language/split", *_PARTITION_COLUMNS], rows),
    ]
    if adapters:
        columns = ["recipe", "examples", "trained tokens", "solved before", "solved after"]
        titled.append(("Adapters, on tasks of packages and repositories held out", columns, adapters))
    return titled


def verdict(summary: Summary) -> str:
    """Return in a sentence what the last run did."""
    n_made = sum(stage.made for stage in summary.stages)
    unchanged = sum(stage.unchanged for stage in summary.stages)
    if not n_made and not unchanged:
        return "No run is on record; start one with `make run` or `graftline run`."
    if not n_made:
        return f"Nothing was recomputed: all {unchanged} artifacts have the inputs, configuration and code they had."
    return f"Artifacts: {n_made} made, {unchanged} unchanged."


def _is_loss(key: str) -> bool:
    # version 0.1.0 called tasks that are not valid unsound
    return key.startswith(("dropped.", "invalid.", "unsound.", "not_kept."))
