"""The door to pyarrow: rows to Parquet files and back."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from graftline.core.errors import ConfigError, install_command

Column = Literal[
    "text", "word", "whole", "number", "flag", "bytes", "key", "keys", "text?", "word?", "whole?", "number?", "flag?"
]  # fmt: skip
"""What a column holds; with "?" a value may be missing. A `word` is a text that many rows share. `key` is an unsigned
64-bit number, `keys` a list of them.
"""

GROUP_ROWS = 8192
"""Rows of one row group: so many are held in memory at once."""


class ParquetError(ValueError):
    """A file is no Parquet file, or lacks a column."""


class ParquetWriter:
    """Writes one file, a row group at a time; under one version of pyarrow equal rows give equal bytes.

    How rows are dealt to calls of `extend` and `append` does not show in the file.
    """

    def __init__(self, path: Path, columns: Mapping[str, Column], compression: Literal["zstd", "lz4"] = "zstd") -> None:
        self._columns = columns
        self._pa = _pyarrow()
        import pyarrow.parquet as pq

        self._writer = pq.ParquetWriter(
            path,
            schema(columns),
            compression=compression,
            # its stubs know only yes and no
            use_dictionary=[name for name, column in columns.items() if column.startswith("word")],  # type: ignore[arg-type]
            # least and greatest of long texts, and dictionaries of them, take as long to make as all the rest
            write_statistics=[
                name for name, column in columns.items() if column not in ("text", "text?", "bytes", "keys")
            ],
        )
        self._tables: list[Any] = []
        self._pending_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._flush(self._pending_rows)
        self._writer.close()

    def extend(self, table: Any) -> None:
        """Add a pyarrow table with the very columns of the file."""
        self._tables.append(table)
        self._pending_rows += table.num_rows
        if self._pending_rows >= GROUP_ROWS:
            self._flush(self._pending_rows - self._pending_rows % GROUP_ROWS)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        iterator = iter(rows)
        while batch := list(islice(iterator, GROUP_ROWS)):
            self.extend(arrow_table({name: [row.get(name) for row in batch] for name in self._columns}, self._columns))

    def _flush(self, rows: int) -> None:
        if rows:
            table = self._pa.concat_tables(self._tables)
            self._writer.write_table(table.slice(0, rows), row_group_size=GROUP_ROWS)
            self._tables = [table.slice(rows)]
            self._pending_rows -= rows


def schema(columns: Mapping[str, Column]) -> Any:
    """Return the pyarrow schema of `columns`."""
    pa = _pyarrow()
    types = {
        **dict.fromkeys(("text", "word"), pa.string()),
        "whole": pa.int64(),
        "number": pa.float64(),
        "flag": pa.bool_(),
        "bytes": pa.binary(),
        "key": pa.uint64(),
        "keys": pa.list_(pa.uint64()),
    }
    return pa.schema(
        pa.field(name, types[column.rstrip("?")], nullable=column.endswith("?")) for name, column in columns.items()
    )


def arrow_table(values: Mapping[str, Any], columns: Mapping[str, Column]) -> Any:
    """Return a pyarrow table of `columns` from their values: sequences, or columns of other tables."""
    pa, target = _pyarrow(), schema(columns)
    arrays = [
        column if isinstance(column := values[name], pa.ChunkedArray) else pa.array(column, type=kind)
        for name, kind in zip(target.names, target.types, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=target)


def filter_rows(table: Any, mask: Any) -> Any:
    """Return the rows of a pyarrow table for which `mask`, an array of flags, is true."""
    return table.filter(_pyarrow().array(mask))


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]], columns: Mapping[str, Column]) -> None:
    """Write `rows` to `path`, in order."""
    with ParquetWriter(path, columns) as writer:
        writer.append(rows)


def read_parquet(path: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of `path`, with all columns or with some."""
    rows: list[dict[str, Any]] = read_table(path, columns).to_pylist()
    return rows


def column_names(path: Path) -> list[str]:
    """Return the names of the columns of `path`, without reading them."""
    return list(_open(path).schema_arrow.names)


def read_table(path: Path, columns: Sequence[str] | None = None) -> Any:
    """Return `path` as a pyarrow table, with all columns or with some."""
    return _open(path).read(columns=None if columns is None else list(columns))


def parquet_tables(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """Yield some columns of `path` as pyarrow tables, a row group at a time."""
    for batch in _open(path).iter_batches(batch_size=GROUP_ROWS, columns=list(columns)):
        yield _pyarrow().Table.from_batches([batch])


def parquet_rows(path: Path, columns: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rows of `path`, a row group at a time; ParquetError if it is damaged, or lacks one of `columns`."""
    try:
        file = _open(path)
        missing = [column for column in columns if column not in file.schema_arrow.names]
        if missing:
            raise ParquetError(f"has no column {missing[0]!r}; found: {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(batch_size=GROUP_ROWS):
            yield from batch.to_pylist()
    except (_pyarrow().ArrowException, OSError, UnicodeDecodeError) as error:
        raise ParquetError(f"is not a whole Parquet file ({str(error).partition(chr(10))[0]})") from None


def _open(path: Path) -> Any:
    _pyarrow()
    import pyarrow.parquet as pq

    # without the dataset layer, which would take folders named `key=value` for columns
    return pq.ParquetFile(path)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ConfigError(f"pyarrow is missing, but Parquet files need it; {install_command('datasets')}") from None
    return pyarrow
