"""`commitpackft`: single-file commits whose messages read like instructions (OctoPack, arXiv 2308.07124).

JSON lines, one folder per language. Rows carry their own licences, three of them copyleft or unknown; rows of new files
have nothing to rewrite.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Outcome
from graftline.datasets.formats import json_lines
from graftline.datasets.readers.base import RawRow, Source, bad_field
from graftline.datasets.readers.commits import CommitRow, edit_of


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    return json_lines(folder, max_line_bytes)


def _outcomes(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[Outcome]:
    try:
        commit = CommitRow.model_validate(row)
    except ValidationError as error:
        return [bad_field(error)]
    return [edit_of(commit, "", name)]


SOURCE = Source(rows=_rows, outcomes=_outcomes)
