"""What lies under a root folder now, from the records alone, and what the last run did to it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.errors import RecordError
from graftline.paths import Paths
from graftline.record import RECORD_NAME, Record, load_record
from graftline.runtime.run_log import last_run

STAGES = ("raw", "normalized", "splits", "synthetic_rules", "tasks", "teacher_trajectories", "trajectories")


@dataclass(frozen=True, slots=True)
class StageSummary:
    """One stage over all its artefacts."""

    stage: str
    artefacts: int
    counts: dict[str, int]
    made: int
    """Artefacts the last run made."""
    unchanged: int
    """Artefacts the last run found unchanged."""
    folder: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The lineage as it is stored."""

    stages: list[StageSummary]
    partitions: dict[str, dict[str, int]]
    """Verified, exact and tried trajectories by `language/split`."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        stages = {
            stage.stage: {
                "artefacts": stage.artefacts,
                "made": stage.made,
                "unchanged": stage.unchanged,
                "folder": stage.folder,
                "counts": stage.counts,
            }
            for stage in self.stages
        }
        return {"stages": stages, "partitions": self.partitions}


def summarize(paths: Paths) -> Summary:
    """Return the summary of what is stored below `paths.data`; unreadable artefacts are left out."""
    records = _records(paths.data)
    outcomes = last_run(paths)
    stages = []
    for stage in STAGES:
        of_stage = {folder: record for folder, record in records.items() if record.kind == stage}
        counts: Counter[str] = Counter()
        for record in of_stage.values():
            counts.update(record.counts)
        made = [bool(outcome.reason) for outcome in outcomes if outcome.stage == stage]
        folder = paths.relative(_common(paths.data, list(of_stage))) if of_stage else ""
        stages.append(StageSummary(stage, len(of_stage), dict(counts), sum(made), len(made) - sum(made), folder))
    partitions = {
        record.name: {
            "tried": record.counts["rows"],
            "verified": record.counts["verified"],
            "exact": record.counts.get("level.exact", 0),
            "verified_steps": record.counts["verified_steps"],
        }
        for record in records.values()
        if record.kind == "trajectories"
    }
    return Summary(stages, dict(sorted(partitions.items())))


def _records(data: Path) -> dict[Path, Record]:
    found = {}
    for path in sorted(data.rglob(RECORD_NAME)):
        if any(part.startswith(".") for part in path.relative_to(data).parts):
            continue
        try:
            found[path.parent] = load_record(path.parent)
        except RecordError:
            continue
    return found


def _common(data: Path, folders: list[Path]) -> Path:
    common = folders[0]
    for folder in folders[1:]:
        while not folder.is_relative_to(common):
            common = common.parent
    return common if common.is_relative_to(data) else data


def tables(summary: Summary) -> list[tuple[str, list[str], Sequence[tuple[str, ...]]]]:
    """Return the summary as titled tables of text."""
    stages = [
        (
            stage.stage,
            f"{stage.counts.get('rows', 0):,}",
            ", ".join(f"{key.partition('.')[2]} {count}" for key, count in stage.counts.items() if _is_loss(key)),
            f"{stage.made} made, {stage.unchanged} unchanged" if stage.made or stage.unchanged else "",
            stage.folder,
        )
        for stage in summary.stages
        if stage.artefacts
    ]
    partitions = [
        (name, *(f"{counts[key]:,}" for key in ("tried", "verified", "exact", "verified_steps")))
        for name, counts in summary.partitions.items()
    ]
    total = {
        key: sum(counts[key] for counts in summary.partitions.values())
        for key in ("tried", "verified", "exact", "verified_steps")
    }
    if partitions:
        partitions.append(("all", *(f"{count:,}" for count in total.values())))
    return [
        ("Lineage", ["stage", "rows", "left out", "last run", "files"], stages),
        ("Trajectories", ["language/split", "tried", "verified", "exact", "verified steps"], partitions),
    ]


def _is_loss(key: str) -> bool:
    return key.startswith(("dropped.", "unsound."))
