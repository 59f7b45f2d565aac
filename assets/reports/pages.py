"""`reports/datasets` and `reports/teacher`: pages of Markdown, with plots, from the report models.

Not here: the numbers (`models/marts`) and how a page reads (`dataset_page`, `index_page`, `teacher_page`).
https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.outcome import metadata_of, readable_failure
from assets.reports.dataset_files import INDEX, write_datasets
from assets.reports.markdown import Rows, without_pictures
from assets.reports.plots import bars, embedded
from assets.reports.teacher_page import teacher_page
from graftline.hashing import code_version, digest
from graftline.record import Contents, Request, load_record
from graftline.runtime.lineage import Lineage
from resources.warehouse import Warehouse

DATASET_MARTS = (
    "dataset_stats",
    "dataset_funnel",
    "dataset_tokens",
    "dataset_token_bins",
    "dataset_languages",
    "dataset_licences",
    "dataset_drops",
    "dataset_overlaps",
    "dataset_labels",
    "dataset_examples",
)
TEACHER_MARTS = ("teacher_precision", "teacher_steps", "teacher_failures")


def report_assets() -> list[dg.AssetsDefinition]:
    """Return the two reports."""

    @dg.asset(
        key=["reports", "datasets"],
        deps=DATASET_MARTS,
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def dataset_reports(lineage: dg.ResourceParam[Lineage], warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """One page per dataset, and one over all: from rows to splits, lengths, licences, what was dropped and why."""
        used = lineage.catalogue.used
        inputs = {f"raw/{name}": lineage.paths.raw(name) for name in used}
        inputs |= {f"normalized/{name}": lineage.paths.normalized(name) for name in lineage.catalogue.sources}
        return _report(
            lineage, warehouse, "datasets", DATASET_MARTS, inputs,
            lambda folder, marts: write_datasets(folder, lineage, marts),
        )  # fmt: skip

    @dg.asset(
        key=["reports", "teacher"],
        deps=TEACHER_MARTS,
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def teacher_report(lineage: dg.ResourceParam[Lineage], warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """Precision of the teacher by language and dataset, and how its failures end."""

        def write(folder: Path, marts: Mapping[str, Rows]) -> Contents:
            (folder / "precision.png").write_bytes(
                bars(marts["teacher_precision"], ["language", "dataset"], "precision")
            )
            (folder / "metrics.md").write_text(teacher_page(marts), "utf-8")
            return Contents({"rows": len(marts["teacher_precision"])})

        return _report(lineage, warehouse, "teacher", TEACHER_MARTS, {}, write)

    return [dataset_reports, teacher_report]


def _report(
    lineage: Lineage,
    warehouse: Warehouse,
    name: str,
    marts: Sequence[str],
    records: Mapping[str, Path],
    write: Callable[[Path, Mapping[str, Rows]], Contents],
) -> dg.MaterializeResult[Any]:
    with readable_failure():
        # the marts are small; their rows are the input, so that a rebuilt but equal warehouse changes no report
        rows = {mart: warehouse.rows(f"select * from {mart} order by all") for mart in marts}
        inputs = {"marts": digest(rows), **{key: load_record(folder).identity for key, folder in records.items()}}
        request = Request("reports", name, _code(), inputs)
        built = lineage.build(lineage.paths.reports / name, request, lambda folder: write(folder, rows))
    return dg.MaterializeResult(
        metadata={**metadata_of(built), **_shown(built.folder)}, data_version=dg.DataVersion(built.record.identity)
    )


def _shown(folder: Path) -> dict[str, dg.MetadataValue[Any]]:
    """Return pages and plots by name; plots are not in the pages as well, for each is stored with every run."""
    # the index first, if there is one
    pages = sorted(folder.glob("*.md"), key=lambda path: (path.name != INDEX, path.name))
    shown: dict[str, dg.MetadataValue[Any]] = {
        f"page: {path.stem}": dg.MetadataValue.md(without_pictures(path.read_text("utf-8"))) for path in pages
    }
    plots = sorted(folder.glob("*.png"))
    return {**shown, **{f"plot: {path.stem}": dg.MetadataValue.md(embedded(path)) for path in plots}}


def _code() -> str:
    folder = Path(__file__).parent
    own = [path.read_text("utf-8") for path in sorted(folder.glob("*.py"))]
    return digest([code_version("graftline.markdown"), own])[:16]
