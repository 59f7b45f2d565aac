"""`editpackft`: the commits of CommitPackFT whose Python still means something without leading comments (arXiv 2312.12450).

Parquet, or JSON lines where it was converted. The texts were altered, so that only commit and file say which row of
CommitPackFT a row was made from. EditPackFT has a column `instruction`; EditPackFT-Multi has not.
"""

from collections.abc import Iterator
from pathlib import Path

from graftline.datasets.catalog import Dataset
from graftline.datasets.formats import files_in, json_lines, table_rows
from graftline.datasets.readers.base import RawRow, Source
from graftline.datasets.readers.commitpackft import CommitRow, edit_of


class EditPackRow(CommitRow):
    """A row as it is stored."""

    instruction: str | None = None


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    lines = (".jsonl", ".jsonl.gz")
    endings = {".parquet" if path.name.endswith(".parquet") else lines for path in files_in(folder, ".parquet", *lines)}
    if ".parquet" in endings:
        yield from table_rows(folder, dataset.columns)
    if lines in endings:
        yield from json_lines(folder, dataset, max_line_bytes)


SOURCE = Source(
    _rows, EditPackRow.model_validate, lambda row, name, dataset: [edit_of(row, row.instruction or "", name)]
)
