"""The stages of datasets, one by one: fetch, normalize, divide and split.

What is made here is what `graftline run` makes, and finds unchanged; only that no jail is opened for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.filesize import decimal

from graftline.core.build import Built
from graftline.core.errors import GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import RECORD_NAME, DatasetRecord, load_record
from graftline.datasets.losses import main_losses
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.dataset_views.listing import datasets_named, partitions_named, short_version, sources_named
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.stages.table import make


@dataclass
class BuildReport:
    """What a command made or found unchanged, and what it could not make."""

    built: list[Built] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def as_dict(self, paths: Paths) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        artifacts = [
            {
                "stage": built.record.kind,
                "name": built.record.name,
                "reason": built.reason,
                "version": built.record.version if isinstance(built.record, DatasetRecord) else None,
                "counts": built.record.counts,
                "size_bytes": _size_bytes(built),
                "folder": paths.relative(built.folder),
                "identity": built.record.identity,
            }
            for built in self.built
        ]
        return {"artifacts": artifacts, "warnings": self.warnings(), "faults": self.faults}

    def warnings(self) -> list[str]:
        """Return of which datasets most rows are lost to one reason."""
        return [str(loss) for loss in main_losses(built.record for built in self.built)]

    def table(self) -> Table:
        """Return one row per artifact."""
        rows = []
        for built in self.built:
            record = built.record
            losses = [
                f"{key.partition('.')[2]} {count:,}"
                for key, count in record.counts.items()
                if key.startswith(("dropped.", "not_kept."))
            ]
            rows.append(
                (
                    record.kind,
                    record.name,
                    f"made: {built.reason}" if built.reason else "unchanged",
                    short_version(record.version) if isinstance(record, DatasetRecord) else "",
                    f"{record.counts.get('rows', 0):,}",
                    ", ".join(losses),
                    decimal(_size_bytes(built)),
                )
            )
        return "Artifacts", ["stage", "name", "became", "version", "rows", "left out", "size"], rows


def _size_bytes(built: Built) -> int:
    return sum(file.size_bytes for file in built.record.files.values())


def fetch(paths: Paths, manifest: Manifest, names: Sequence[str], progress: Progress) -> BuildReport:
    """Fetch the raw files of the datasets called `names`, or of those in use; one that fails does not stop the others."""
    with open_lineage(paths, manifest, advance=progress.advance) as lineage:
        chosen = datasets_named(lineage.catalog, names)
        return _make_each(lineage, progress, "raw", ((name,) for name in chosen))


def build(
    paths: Paths, manifest: Manifest, names: Sequence[str], language: str | None, part: str | None, progress: Progress
) -> BuildReport:
    """Normalize the datasets called `names`, or those in use; then, unless some are named or one fails, write changes and splits.

    The splits are those of `language` and `part`; None stands for each.
    """
    with open_lineage(paths, manifest, advance=progress.advance) as lineage:
        evaluations = [name for name, dataset in lineage.catalog.used.items() if dataset.is_evaluation]

        def prepare(name: str) -> None:
            for needed in (name, *evaluations):
                if not (paths.raw(needed) / RECORD_NAME).exists():
                    raise RecordError(
                        f"dataset {needed!r}: is not fetched yet; run 'graftline data fetch {needed}' first"
                    )
            rows = load_record(paths.raw(name)).counts.get("rows", 0)
            lineage.advance = lambda done, _: progress.advance(done, rows)

        partitions = partitions_named(lineage.catalog, language, part)
        chosen = sources_named(lineage.catalog, names)
        report = _make_each(lineage, progress, "normalized", ((name,) for name in chosen), prepare)
        if names or report.faults:
            return report
        lineage.advance = progress.advance
        over_all = [_make_over_all(lineage, progress, stage) for stage in ("division", "repository_changes")]
        splits = _make_each(lineage, progress, "splits", partitions)
        return BuildReport([*report.built, *over_all, *splits.built], splits.faults)


def _make_over_all(lineage: Lineage, progress: Progress, stage: str) -> Built:
    progress.start(stage, "all")
    built = make(stage, lineage)
    progress.finish(built.reason)
    return built


def _make_each(
    lineage: Lineage,
    progress: Progress,
    stage: str,
    artifacts: Iterable[tuple[str, ...]],
    prepare: Callable[..., None] = lambda *names: None,
) -> BuildReport:
    report = BuildReport()
    for names in artifacts:
        progress.start(stage, "/".join(names))
        try:
            prepare(*names)
            report.built.append(make(stage, lineage, *names))
        except GraftlineError as error:
            progress.fail()
            report.faults.append(str(error))
        else:
            progress.finish(report.built[-1].reason)
    return report
