"""`editpackft`: the commits of CommitPackFT whose Python still means something without leading comments (arXiv 2312.12450).

Parquet, or JSON lines where it was converted. The texts were altered, so that only commit and file say which row of
CommitPackFT a row was made from. EditPackFT has a column `instruction`; EditPackFT-Multi has not.
"""

from graftline.datasets.formats import lines_or_tables
from graftline.datasets.readers.base import Source
from graftline.datasets.readers.commitpackft import CommitRow, edit_of


class EditPackRow(CommitRow):
    """A row as it is stored."""

    instruction: str | None = None


SOURCE = Source(
    lines_or_tables, EditPackRow.model_validate, lambda row, name, dataset: [edit_of(row, row.instruction or "", name)]
)
