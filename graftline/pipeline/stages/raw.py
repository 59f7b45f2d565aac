"""The stage `raw`: the files of a dataset, unchanged, with where they came from."""

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path

from graftline.core.build import Built, Contents
from graftline.core.download import Download
from graftline.core.errors import RecordError
from graftline.core.hashing import digest
from graftline.core.record import ArtifactRecord, DatasetRecord
from graftline.datasets.catalog import Dataset
from graftline.datasets.raw_rows import fetch_usable_rows, number_of_rows
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import stage_code


def raw(lineage: Lineage, name: str) -> Built:
    """Fetch the files of the dataset called `name`, unchanged."""
    dataset = lineage.dataset(name)
    revision = lineage.ports.dataset_hub.revision(name, dataset)
    config = dataset.model_dump(
        mode="json", include={"url", "version", "license", "files", "follow", "keep", "packages"}
    )
    request = request_of("raw", name, {"source": revision}, config, stage_code("raw", dataset.reader))
    folder = lineage.paths.raw(name)
    # what reads the files fetches them; to say that they are unchanged takes their record alone
    return lineage.build(folder, request, lambda partial: _fetch(lineage, name, dataset, revision, partial), False)


def _fetch(lineage: Lineage, name: str, dataset: Dataset, revision: str, folder: Path) -> Contents:
    hub, max_line_bytes = lineage.ports.dataset_hub, lineage.catalog.cleaning.max_line_bytes
    files = hub.files(name, dataset)
    old = _still_good(lineage, name, revision) if dataset.keep == "all" else None
    fetched: list[Download] = []
    counts: Counter[str] = Counter()
    sizes = [file.size_bytes for file in files if file.size_bytes is not None]
    come_bytes, total_bytes = 0, sum(sizes) if len(sizes) == len(files) else 0

    def advance(done_bytes: int, file_bytes: int = 0) -> None:
        # where the source does not say how large its files are, one file still does when it comes
        lineage.advance(come_bytes + done_bytes, total_bytes or (file_bytes if len(files) == 1 else 0))

    for file in files:
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        if dataset.keep == "wanted":
            fetched_file, of_file = fetch_usable_rows(hub, name, dataset, file, target, max_line_bytes, advance)
            counts.update(of_file)
        else:
            if old is not None and not target.exists() and file.path in old.files:
                # the source holds what it held: only the code changed
                with suppress(OSError):  # where there are no links, it is fetched
                    os.link(lineage.paths.raw(name) / file.path, target)
            fetched_file = hub.fetch(name, dataset, file, target, advance)
        fetched.append(fetched_file)
        come_bytes += fetched_file.size_bytes
    is_upstream = all(file.is_upstream for file in fetched)
    sums = sorted(file.sha256 for file in fetched)
    version = revision if dataset.follow else dataset.version
    if dataset.keep == "all":
        counts["rows_in"] = counts["rows"] = number_of_rows(folder, dataset, max_line_bytes)
    contract = {
        "source": name,
        # what a mirror holds may go by the names of the revision without being it
        "version": version if is_upstream else f"{version}+mirror.{digest(sums)[:12]}",
        "license": dataset.license,
        "downloaded_at": lineage.clock().isoformat(),
        "sha256": sums[0] if len(sums) == 1 else digest(sums),
        "num_records": counts.pop("rows_in"),
    }
    return Contents({"rows": counts.pop("rows"), "files": len(files), **dict(sorted(counts.items()))}, contract)


def _still_good(lineage: Lineage, name: str, revision: str) -> ArtifactRecord | None:
    """Return the record of the raw files, if they are those of `revision`."""
    try:
        record = lineage.read_input(lineage.paths.raw(name), "raw")
    except RecordError:
        return None
    return record if record.inputs.get("source") == revision else None


def raw_record(lineage: Lineage, name: str) -> DatasetRecord:
    """Return the record of the raw files of the dataset called `name`."""
    folder = lineage.paths.raw(name)
    record = lineage.record(folder)
    if not isinstance(record, DatasetRecord):
        raise RecordError(f"{folder}: holds {record.kind!r}, but a dataset was asked for")
    return record
