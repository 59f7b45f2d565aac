"""The files of the report on datasets: a page and plots for each, and an index."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.reports.dataset_page import dataset_page
from assets.reports.evaluations import evaluations_of
from assets.reports.funnel import steps
from assets.reports.index_page import index_page
from assets.reports.markdown import Rows
from assets.reports.plots import funnel, histogram, shares
from graftline.core.build import Contents
from graftline.core.errors import ConfigError, RecordError
from graftline.core.record import NormalizedRecord
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.raw import raw_record

INDEX = "index.md"


def write_datasets(folder: Path, lineage: Lineage, marts: Mapping[str, Rows]) -> Contents:
    """Write the pages and plots of all datasets in use, from all rows of every mart.

    Raises:
        ConfigError: a dataset is called as the index is.
        RecordError: a record is missing.
    """
    names = list(lineage.catalog.sources)
    if Path(INDEX).stem in names:
        raise ConfigError(f"dataset {Path(INDEX).stem!r}: its page would be {INDEX}, which lists them all; rename it")
    versions: dict[str, str] = {}
    compared: dict[str, dict[str, Any]] = {}
    for name in names:
        raw, normalized = raw_record(lineage, name), _read_normalized_record(lineage, lineage.paths.normalized(name))
        own = {mart: [row for row in rows if row["dataset"] == name] for mart, rows in marts.items()}
        evaluations = evaluations_of(normalized, lineage.paths, lineage.record)
        plots = _write_plots(folder, name, own, normalized)
        (folder / f"{name}.md").write_text(dataset_page(raw, normalized, own, evaluations, plots), "utf-8")
        versions[name] = raw.version
        compared |= {str(row): row for row in evaluations}
    page = index_page(names, versions, marts, list(compared.values()))
    (folder / INDEX).write_text(page, "utf-8")
    return Contents({"rows": len(names)})


def _write_plots(folder: Path, name: str, own: Mapping[str, Rows], record: NormalizedRecord) -> dict[str, str]:
    """Write the plots there is something to show for, and return their names by kind."""
    images = {"funnel": funnel(steps(own["dataset_funnel"]))}
    if own["dataset_token_bins"]:
        images["tokens"] = histogram(own["dataset_token_bins"], record.tokenizer)
    if licenses := [row for row in own["dataset_licenses"] if row["kept"]]:
        images["licenses"] = shares(licenses, "license", "percent_of_kept")
    for kind, image in images.items():
        (folder / f"{name}.{kind}.png").write_bytes(image)
    return {kind: f"{name}.{kind}.png" for kind in images}


def _read_normalized_record(lineage: Lineage, folder: Path) -> NormalizedRecord:
    record = lineage.record(folder)
    if not isinstance(record, NormalizedRecord):
        raise RecordError(
            f"{folder}: holds {record.kind!r}, but 'normalized' was asked for; materialize its asset again"
        )
    return record
