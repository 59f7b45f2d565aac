"""What is shown of changes that span a repository: their sources, how many there are, a few of them, and what was left out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from graftline.core.errors import ConfigError, RecordError
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record, load_verified
from graftline.datasets.catalog import NO_LICENSE, Catalog, license_by_pattern
from graftline.datasets.repository_changes.change import ChangeRejectReason, RepositoryChange
from graftline.datasets.repository_changes.write import REJECTED_TABLE, TABLE
from graftline.datasets.splits import SPLITS
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.dataset_views.listing import partitions_named

NAME = "repository_changes"
"""By which commands that take the name of a dataset know them."""
ALL_REASONS = "all"


def list_sources(paths: Paths, catalog: Catalog) -> dict[str, Any]:
    """Return where changes are read from, and what is stored of them: counts, empty where nothing is."""
    config = catalog.repository_changes
    releases = [name for name, dataset in catalog.sources.items() if dataset.holds_releases and config.releases]
    sources = [{"kind": "releases", "from": name, "license": "per row"} for name in releases]
    for repository in config.repositories:
        license = repository.license or license_by_pattern(config.licenses, repository.name, NO_LICENSE)
        place = f"{repository.name} {repository.range}".strip()
        sources.append({"kind": "git", "from": place, "license": license})
    sources += [{"kind": "mirror", "from": mirror, "license": "per repository"} for mirror in config.mirrors]
    sources += [{"kind": "records", "from": record, "license": "per record"} for record in config.records]
    is_stored = (paths.repository_changes / RECORD_NAME).exists()
    return {"sources": sources, "stored": dict(load_record(paths.repository_changes).counts) if is_stored else {}}


def sources_table(listing: Mapping[str, Any]) -> Table:
    """Return one row per source."""
    stored = listing["stored"].get("rows")
    title = "Repository changes" + ("" if stored is None else f", {stored:,} stored")
    columns = ["kind", "from", "license"]
    return title, columns, [tuple(source[column] for column in columns) for source in listing["sources"]]


def change_stats(paths: Paths, is_needed: bool = False) -> dict[str, Any] | None:
    """Return how many changes there are, by language and split, under which licenses, and why others were left out.

    None where none are stored; RecordError then if that `is_needed`.
    """
    if not is_needed and not (paths.repository_changes / RECORD_NAME).exists():
        return None
    folder = _verified_folder(paths)
    counts = load_record(folder).counts
    rows = list(read_parquet(folder / TABLE))
    cells: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        cell = cells.setdefault((row["language"], row["split"]), Counter())
        cell.update({name: row[name] for name in ("files", "places", "untouched")})
        cell.update({"changes": 1, "answerable": int(row["answerable"] is True)})
    return {
        "candidates": counts["rows_in"],
        "changes": counts["rows"],
        "repositories": counts["repositories"],
        "cells": [
            {"language": language, "split": split, **cells[language, split]}
            for language, split in sorted(cells, key=lambda cell: (cell[0], SPLITS.index(cell[1])))
        ],
        "licenses": dict(Counter(row["license"] for row in rows).most_common()),
        "instructions": dict(Counter(row["instruction_source"] for row in rows).most_common()),
        "dropped": {key.partition(".")[2]: count for key, count in counts.items() if key.startswith("dropped.")},
        "skipped": {key.partition(".")[2]: count for key, count in counts.items() if key.startswith("skipped.")},
    }


def change_tables(stats: Mapping[str, Any]) -> list[Table]:
    """Return the numbers by language and split, and what was left out."""
    measures = ["changes", "files", "places", "untouched", "answerable"]
    cells = [
        (cell["language"], cell["split"], *(f"{cell[measure]:,}" for measure in measures)) for cell in stats["cells"]
    ]
    reasons = [("candidate", reason, f"{count:,}") for reason, count in stats["dropped"].items()]
    reasons += [
        ("file or commit", reason.replace("_", " "), f"{count:,}") for reason, count in stats["skipped"].items()
    ]
    shares = [("license", name, f"{count:,}") for name, count in stats["licenses"].items()]
    shares += [("instruction", name, f"{count:,}") for name, count in stats["instructions"].items()]
    title = f"Repository changes: {stats['changes']:,} of {stats['repositories']:,} repositories"
    return [
        (title, ["language", "split", *measures], cells),
        ("Their licenses and instructions", ["", "", "number"], shares),
        ("Left out of repository changes", ["what", "reason", "number"], reasons),
    ]


def sample_changes(
    paths: Paths, catalog: Catalog, number: int, language: str | None, split: str | None, seed: int | None
) -> list[dict[str, Any]]:
    """Return `number` of the stored changes of a language and split, each with its split.

    By chance with a `seed`, in the order they are stored; without one those that can be done from their instruction, and have nearest
    to the median number of places, first.
    """
    partitions_named(catalog, language, split)
    folder = _verified_folder(paths)
    rows = []
    offsets: Counter[str] = Counter()
    for row in read_parquet(folder / TABLE, ["split", "language", "line_bytes", "places", "answerable"]):
        if split in (None, row["split"]) and language in (None, row["language"]):
            rows.append({**row, "offset": offsets[row["split"]]})
        offsets[row["split"]] += row["line_bytes"]
    if seed is None:
        middle = median(row["places"] for row in rows) if rows else 0
        order = sorted(rows, key=lambda row: (row["answerable"] is not True, abs(row["places"] - middle)))[:number]
    else:
        order = [rows[index] for index in sorted(Random(seed).sample(range(len(rows)), min(number, len(rows))))]
    return [
        {"split": row["split"], **_read_change(folder, row["split"], row["offset"], row["line_bytes"])} for row in order
    ]


def _read_change(folder: Path, split: str, offset: int, size: int) -> dict[str, Any]:
    with (folder / f"{split}.jsonl").open("rb") as stream:
        stream.seek(offset)
        return RepositoryChange.model_validate_json(stream.read(size)).model_dump(mode="json")


def sample_rejected(paths: Paths, number: int, reason: str, seed: int) -> list[dict[str, Any]]:
    """Return `number` of the candidates that were left out for `reason`, as the other datasets show what they leave out."""
    reasons = [str(known_reason) for known_reason in ChangeRejectReason]
    if reason not in (ALL_REASONS, *reasons):
        raise ConfigError(f"reason {reason!r} is unknown; known: {', '.join((ALL_REASONS, *reasons))}")
    rows = [
        {"dataset": NAME, "where": f"{row['repo']} {row['commit']}".strip(), "reason": row["reason"], "detail": row["detail"]}
        for row in read_parquet(_verified_folder(paths) / REJECTED_TABLE)
        if reason in (ALL_REASONS, row["reason"])
    ]  # fmt: skip
    chosen: Sequence[int] = sorted(Random(seed).sample(range(len(rows)), min(number, len(rows))))
    return [rows[index] for index in chosen]


def _verified_folder(paths: Paths) -> Path:
    folder = paths.repository_changes
    if not (folder / RECORD_NAME).exists():
        raise RecordError(f"{NAME}: are not made yet; run 'graftline data build' first")
    load_verified(folder, NAME)
    return folder
