"""`reports/datasets` and `reports/teacher`: pages of Markdown, with plots, from the report models.

Not here: the numbers (`models/marts`) and how a page reads (`assets.reports.markdown`).
https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.outcome import metadata_of, readable_failure
from assets.reports.markdown import dataset_page, teacher_page
from assets.reports.plots import bars, embedded
from graftline.hashing import digest
from graftline.record import Contents, Request, load_record
from graftline.runtime.lineage import Lineage
from resources.warehouse import Warehouse

Marts = Mapping[str, list[dict[str, Any]]]


def report_assets() -> list[dg.AssetsDefinition]:
    """Return the two reports."""

    @dg.asset(
        key=["reports", "datasets"],
        deps=["dataset_stats", "dataset_licences", "dataset_drops"],
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def dataset_reports(lineage: dg.ResourceParam[Lineage], warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """One page per dataset: sizes, licences, what was dropped and why."""
        names = sorted(lineage.catalogue.datasets)

        def write(folder: Path, marts: Marts) -> Contents:
            for name in names:
                own = {mart: [row for row in rows if row["dataset"] == name] for mart, rows in marts.items()}
                (folder / f"{name}.md").write_text(
                    dataset_page(name, own, load_record(lineage.paths.raw(name))), "utf-8"
                )
            return Contents({"rows": len(names)})

        raw = {f"raw/{name}": load_record(lineage.paths.raw(name)).identity for name in names}
        return _report(
            lineage, warehouse, "datasets", ["dataset_stats", "dataset_licences", "dataset_drops"], write, raw
        )

    @dg.asset(
        key=["reports", "teacher"],
        deps=["teacher_precision", "teacher_steps", "teacher_failures"],
        group_name="reports",
        kinds={"markdown"},
        owners=["team:data"],
        pool="duckdb",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def teacher_report(lineage: dg.ResourceParam[Lineage], warehouse: Warehouse) -> dg.MaterializeResult[Any]:
        """Precision of the teacher by language and dataset, and how its failures end."""

        def write(folder: Path, marts: Marts) -> Contents:
            (folder / "precision.png").write_bytes(
                bars(marts["teacher_precision"], ["language", "dataset"], "precision")
            )
            (folder / "metrics.md").write_text(teacher_page(marts), "utf-8")
            return Contents({"rows": len(marts["teacher_precision"])})

        return _report(lineage, warehouse, "teacher", ["teacher_precision", "teacher_steps", "teacher_failures"], write)

    return [dataset_reports, teacher_report]


def _report(
    lineage: Lineage,
    warehouse: Warehouse,
    name: str,
    marts: list[str],
    write: Callable[[Path, Marts], Contents],
    inputs: Mapping[str, str] | None = None,
) -> dg.MaterializeResult[Any]:
    # the marts are small; their rows are the input, so that a rebuilt but equal warehouse changes no report
    rows = {mart: warehouse.rows(f"select * from {mart} order by all") for mart in marts}
    request = Request("reports", name, _code(), {"marts": digest(rows), **(inputs or {})})
    with readable_failure():
        built = lineage.build(lineage.paths.reports / name, request, lambda folder: write(folder, rows))
    page = sorted(built.folder.glob("*.md"))[0]
    plots = {path.stem: dg.MetadataValue.md(embedded(path)) for path in sorted(built.folder.glob("*.png"))}
    return dg.MaterializeResult(
        metadata={**metadata_of(built), "page": dg.MetadataValue.md(page.read_text("utf-8")), **plots},
        data_version=dg.DataVersion(built.record.identity),
    )


def _code() -> str:
    folder = Path(__file__).parent
    return digest([path.read_text("utf-8") for path in sorted(folder.glob("*.py"))])[:16]
