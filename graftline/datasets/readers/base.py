"""What a dataset is to the stages: raw rows, and what becomes of each.

Cleaning is not here: licence, length, syntax and duplicates are judged for all datasets alike by `datasets.ingest`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Drop, DropReason, Outcome


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as it is stored."""

    file: str
    """Relative to the folder of the raw files."""
    line: int
    """From 1; of a file that has no lines, the position of the row."""
    content: bytes | Mapping[str, Any] | Drop
    """A line of JSON, a row that is parsed already, or why there is none."""


def _everything(row: Mapping[str, Any]) -> Drop | None:
    return None


@dataclass(frozen=True, slots=True)
class Source:
    """How one dataset is read."""

    rows: Callable[[Path, Dataset, int], Iterator[RawRow]]
    """From the folder of the raw files, the dataset's entry and the most bytes a line may have, to its rows in order.

    Raises DataError when a file is not what the dataset holds (another format, a missing column).
    """
    outcomes: Callable[[Mapping[str, Any], str, Dataset], Sequence[Outcome]]
    """From a row, the name and the entry of its dataset to what becomes of it, at least one outcome."""
    records: Callable[[Path, Dataset, int], int] | None = None
    """How many records the raw files hold, where that is not how many rows are made of them."""
    is_snippet: bool = False
    """Whether texts are parts of files: they are wrapped where they do not parse alone."""
    unwanted: Callable[[Mapping[str, Any]], Drop | None] = _everything
    """Why a row need not even be kept raw, where a dataset is too large to keep; None where it is wanted."""


def bad_field(error: ValidationError) -> Drop:
    """Return the drop of a row that is not as its dataset's rows are."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(map(str, fault["loc"]))
    if fault["type"] == "string_unicode":
        return Drop(DropReason.NOT_TEXT, f"{field}: holds half a surrogate pair")
    return Drop(DropReason.BAD_FIELD, f"{field}: {fault['msg']}")
