"""Raw files as rows, before anything is made of them: how many there are, and which are worth keeping."""

import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO

from graftline.core.download import Download
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_file
from graftline.core.record import write_atomically
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.decontaminate import evaluation_files, texts_in
from graftline.datasets.edit import Rejection
from graftline.datasets.formats import lines_of
from graftline.datasets.ingest import parse_row
from graftline.datasets.readers import source_of
from graftline.datasets.sources.base import DatasetHub

_DRAINED_BYTES = 1 << 20


def number_of_rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> int:
    """Return how many rows the raw files in `folder` have, as far as they can be read.

    Raises:
        DataError: they are not what the dataset holds.
    """
    if dataset.is_evaluation:
        rows = {(path, place) for path in evaluation_files(folder) for place, _ in texts_in(path)}
        if not rows:
            raise DataError(f"{folder}: holds no row of a .jsonl, .jsonl.gz or .parquet file; mend `files`")
        return len(rows)
    source = source_of(dataset.reader)
    if source.records is not None:
        return source.records(folder, dataset, max_line_bytes)
    return sum(1 for _ in source.rows(folder, dataset, max_line_bytes))


def fetch_usable_rows(
    hub: DatasetHub,
    name: str,
    dataset: Dataset,
    file: DatasetFile,
    target: Path,
    max_line_bytes: int,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> tuple[Download, dict[str, int]]:
    """Read `file` from its source as it comes, keep the rows its reader can use in `target`, and return their counts.

    The rows are kept as they are, byte for byte; what is left out is counted by reason. A file that was read to its end
    by a killed call is not read again. `advance` is called with how much of it was read.

    Raises:
        DataError: the file is no JSON lines.
        ConfigError, DownloadError: as `DatasetHub.stream`.
    """
    if not file.path.endswith((".jsonl", ".jsonl.gz")):
        raise DataError(f"{name}: {file.path}: only files of JSON lines can be read with `keep: wanted`")
    done = target.with_name(f".{target.name}.counts")
    if done.exists() and target.exists():
        stored = json.loads(done.read_text("utf-8"))
        if stored["kept_sha256"] == sha256_file(target):
            return Download(**stored["fetched"]), stored["counts"]
    source = source_of(dataset.reader)
    counts: Counter[str] = Counter(rows_in=0, rows=0)
    partial = target.with_name(f".{target.name}.partial")
    packed = target.name.endswith(".gz")
    with partial.open("wb") as raw, hub.stream(name, dataset, file) as stream:
        # without a name and a time, so that equal rows give equal bytes
        output = gzip.GzipFile("", "wb", 6, raw, mtime=0) if packed else raw
        counted = _CountedStream(stream, advance)
        for row in lines_of(counted, file.path, max_line_bytes):
            counts["rows_in"] += 1
            content = parse_row(row.content) if isinstance(row.content, bytes) else row.content
            reason = content if isinstance(content, Rejection) else source.reject_unusable(content)
            if reason is None and isinstance(row.content, bytes):
                counts["rows"] += 1
                output.write(row.content + b"\n")
            elif reason is not None:
                counts[f"not_kept.{reason.reason}"] += 1
        while counted.read(_DRAINED_BYTES):
            pass  # of a damaged file the rest was not read; its sums are those of the whole
        if packed:
            output.close()
        raw.flush()
        os.fsync(raw.fileno())
    partial.replace(target)
    sha256 = counted.sha256.hexdigest()
    is_upstream = sha256 == file.sha256 if file.sha256 else hub.is_upstream(name, dataset)
    fetched = Download(sha256, counted.size_bytes, is_upstream)
    stored = {"kept_sha256": sha256_file(target), "counts": dict(counts), "fetched": asdict(fetched)}
    write_atomically(done, json.dumps(stored))
    return fetched, dict(counts)


class _CountedStream:
    """What is read of a stream, with its size and checksum."""

    def __init__(self, stream: IO[bytes], advance: Callable[[int], None]) -> None:
        self._stream, self._advance = stream, advance
        self.sha256, self.size_bytes = hashlib.sha256(), 0

    def read(self, size: int, /) -> bytes:
        content = self._stream.read(size)
        self.sha256.update(content)
        self.size_bytes += len(content)
        self._advance(self.size_bytes)
        return content
