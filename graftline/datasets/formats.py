"""Files into raw rows: JSON lines, plain or gzip, one JSON document, Parquet, CSV.

Of a damaged file everything before the damage is read, and the rest is one counted rejection.
"""

import codecs
import csv
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from graftline.core.errors import DataError
from graftline.core.parquet import ParquetError, parquet_rows
from graftline.core.record import RECORD_NAME
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Rejection, RejectReason
from graftline.datasets.readers.base import RawRow

MAX_DOCUMENT_BYTES = 512 << 20
_COMPRESSED_BYTES = 1 << 16
_PLAIN_BYTES = 1 << 20


def json_lines(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    """Yield the lines of the `.jsonl` and `.jsonl.gz` files below `folder`, in the order of names; blank ones are none.

    Raises:
        DataError: there is no such file.
    """
    for path in files_in(folder, ".jsonl", ".jsonl.gz"):
        name = path.relative_to(folder).as_posix()
        with path.open("rb") as stream:
            yield from lines_of(stream, name, max_line_bytes)


def files_in(folder: Path, *endings: str) -> list[Path]:
    """Return the files below `folder` whose names end so, in the order of names; DataError if there is none."""
    paths = (path for path in folder.rglob("*") if path.name.endswith(endings) and path.is_file())
    files = sorted(path for path in paths if not path.name.startswith(".") and path.name != RECORD_NAME)
    if not files:
        raise DataError(f"{folder}: holds no file that ends in {' or '.join(endings)}; mend `files` of the dataset")
    return files


class Readable(Protocol):
    """What bytes can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return so many bytes at most; none at the end."""


def lines_of(stream: Readable, name: str, max_line_bytes: int) -> Iterator[RawRow]:
    """Yield the lines of one file of JSON lines; one that is too long, or damaged, is a rejection."""
    chunks = decompress_gzip(stream) if name.endswith(".gz") else iter(lambda: stream.read(_PLAIN_BYTES), b"")
    number, tail, skipped = 0, b"", 0
    fault = ""
    too_long = Rejection(RejectReason.LINE_TOO_LONG, f"more than {max_line_bytes} bytes")
    while True:
        try:
            chunk = next(chunks, b"")
        except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
            chunk, fault = b"", str(error)
        if not chunk:
            break
        if number == 0 and not tail and not skipped:
            chunk = chunk.removeprefix(codecs.BOM_UTF8)  # some programs start a file with one
        *whole, last = chunk.split(b"\n")
        for line in whole:
            number += 1
            line, tail, skipped = tail + line, b"", (skipped + len(tail) + len(line) if skipped else 0)
            if skipped or len(line) > max_line_bytes:
                yield RawRow(name, number, too_long)
                skipped = 0
            elif not _is_blank(line):
                yield RawRow(name, number, line)
        tail += last
        if len(tail) > max_line_bytes:  # it is not held: one line may be all of a large file
            skipped, tail = skipped + len(tail), b""
    if fault:
        detail = f"the file is damaged from here on ({fault})"
        yield RawRow(name, number + 1, Rejection(RejectReason.TRUNCATED_FILE, detail))
    elif skipped:
        yield RawRow(name, number + 1, too_long)
    elif not _is_blank(tail):
        yield RawRow(name, number + 1, tail)


def _is_blank(line: bytes) -> bool:
    return len(line) < 64 and not line.strip()


def decompress_gzip(stream: Readable) -> Iterator[bytes]:
    """Yield the content of a gzip file, up to the very byte at which it is damaged.

    Raises:
        zlib.error, EOFError: there it is damaged, or ends too early.
    """
    member = zlib.decompressobj(wbits=31)
    has_begun = False
    while packed := stream.read(_COMPRESSED_BYTES):
        while packed:
            if member.eof:
                packed = packed.lstrip(b"\0")  # gzip pads with zeros what it writes to tapes
                if not packed:
                    break
                member = zlib.decompressobj(wbits=31)
            has_begun = True
            before = member.copy()
            try:
                # bounded: a few compressed kilobytes may hold gigabytes of zeros
                content = member.decompress(packed, _PLAIN_BYTES)
                packed = member.unconsumed_tail or member.unused_data
            except zlib.error:
                # the decoder gives nothing of a chunk in which it fails, so the chunk is given to it by the byte
                if content := b"".join(_up_to_fault(before, packed)):
                    yield content
                raise
            if content:
                yield content
    if has_begun and not member.eof:
        if content := member.flush():  # what it held back, having given as much as it was asked for
            yield content
        raise EOFError("the compressed file ends before its end-of-stream marker")


def _up_to_fault(member: Any, packed: bytes) -> Iterator[bytes]:
    try:
        for at in range(len(packed)):
            if content := member.decompress(packed[at : at + 1]):
                yield content
    except zlib.error:
        return


def json_document(path: Path) -> Any:
    """Return the value of a file that is one JSON document; DataError if it is too large, or not JSON."""
    import orjson

    size = path.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        raise DataError(f"{path}: {size} bytes; at most {MAX_DOCUMENT_BYTES} are read as one JSON document")
    try:
        return orjson.loads(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    except orjson.JSONDecodeError as error:
        raise DataError(f"{path}: is not JSON ({error}); fetch it again") from None


def table_rows(folder: Path, columns: Sequence[str]) -> Iterator[RawRow]:
    """Yield the rows of the Parquet files below `folder`, in the order of names.

    Raises:
        DataError: there is no such file, one is damaged, or lacks one of `columns`.
    """
    for path in files_in(folder, ".parquet"):
        name = path.relative_to(folder).as_posix()
        try:
            for number, row in enumerate(parquet_rows(path, columns), 1):
                yield RawRow(name, number, row)
        except ParquetError as error:
            raise DataError(f"{path}: {error}; fetch it again, or mend `columns` of the dataset") from None


def lines_or_tables(
    folder: Path, dataset: Dataset, max_line_bytes: int, columns: Sequence[str] | None = None
) -> Iterator[RawRow]:
    """Yield the rows of the Parquet files below `folder`, and then the lines of those of JSON lines.

    Raises:
        DataError: there is neither, or a table is damaged or lacks one of `columns`, by default those of the dataset.
    """
    names = [path.name for path in files_in(folder, ".parquet", ".jsonl", ".jsonl.gz")]
    if any(name.endswith(".parquet") for name in names):
        yield from table_rows(folder, dataset.columns if columns is None else columns)
    if not all(name.endswith(".parquet") for name in names):
        yield from json_lines(folder, dataset, max_line_bytes)


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the rows of a CSV file with the line each ends in.

    Raises:
        DataError: it is not UTF-8, not CSV, or lacks one of `columns`.
    """
    with path.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream, strict=True)
        try:
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise DataError(f"{path}: has no column {missing[0]!r}; found: {', '.join(reader.fieldnames or ())}")
            for row in reader:
                yield reader.line_num, {key: value or "" for key, value in row.items() if isinstance(key, str)}
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: is not a CSV file in UTF-8 ({error}); fetch it again") from None
