"""The door to pyarrow: rows to Parquet files and back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from graftline.errors import ConfigError

Column = Literal["text", "whole", "number", "flag", "text?", "number?"]
"""What a column holds; with "?" a value may be missing."""


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, Column]) -> None:
    """Write `rows` to `path`, in the order given; under one version of pyarrow equal rows give equal bytes."""
    pa = _pyarrow()
    import pyarrow.parquet as pq

    types = {"text": pa.string(), "whole": pa.int64(), "number": pa.float64(), "flag": pa.bool_()}
    schema = pa.schema(
        pa.field(name, types[column.rstrip("?")], nullable=column.endswith("?")) for name, column in columns.items()
    )
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path, compression="zstd")


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Return the rows of `path`."""
    _pyarrow()
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise ConfigError("pyarrow is missing, but Parquet files need it; pip install 'graftline[parquet]'") from None
    return pyarrow
