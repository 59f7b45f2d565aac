"""What a dataset is to the stages: raw rows, and what becomes of each.

Cleaning is not here: license, length, syntax and duplicates are judged for all datasets alike by `datasets.ingest`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Rejection, RejectReason, RowResult

RowT = TypeVar("RowT")


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as it is stored."""

    file: str
    """Relative to the folder of the raw files."""
    line: int
    """From 1; of a file that has no lines, the position of the row."""
    content: bytes | Mapping[str, Any] | Rejection
    """A line of JSON, a row that is parsed already, or why there is none."""


@dataclass(frozen=True, slots=True)
class Source(Generic[RowT]):
    """How one dataset is read."""

    rows: Callable[[Path, Dataset, int], Iterator[RawRow]]
    """From the folder of the raw files, the dataset's entry and the most bytes a line may have, to its rows in order.

    Raises DataError when a file is not what the dataset holds (another format, a missing column).
    """
    parse: Callable[[Mapping[str, Any]], RowT]
    """From a row as it is stored to its model. Raises ValidationError when it does not fit."""
    convert: Callable[[RowT, str, Dataset], Sequence[RowResult]]
    """From a row, the name and the entry of its dataset to what becomes of it, at least one result."""
    records: Callable[[Path, Dataset, int], int] | None = None
    """How many records the raw files hold, where that is not how many rows are made of them."""
    is_snippet: bool = False
    """Whether texts are parts of files: they are wrapped where they do not parse alone."""
    prefilter: Callable[[RowT], Rejection | None] | None = None
    """Why a row need not even be kept raw, where a dataset is too large to keep; None where it is to be kept."""

    def outcomes(self, row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[RowResult]:
        """Return what becomes of `row` of the dataset called `name`."""
        try:
            return self.convert(self.parse(row), name, dataset)
        except ValidationError as error:  # an edit is stricter than a row: no half surrogate pairs, no empty license
            return [bad_field(error)]

    def reject_unusable(self, row: Mapping[str, Any]) -> Rejection | None:
        """Return why `row` need not be kept raw, if it need not."""
        try:
            return self.prefilter(self.parse(row)) if self.prefilter else None
        except ValidationError as error:
            return bad_field(error)


def bad_field(error: ValidationError) -> Rejection:
    """Return the rejection of a row that is not as its dataset's rows are."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(map(str, fault["loc"]))
    if fault["type"] == "string_unicode":
        return Rejection(RejectReason.NOT_TEXT, f"{field}: holds half a surrogate pair")
    return Rejection(RejectReason.BAD_FIELD, f"{field}: {fault['msg']}")


def row_id(name: str, *key: str) -> str:
    """Return `<name>:<16 hex digits>` for the row of dataset `name` with the natural key `key`."""
    # each part with its length, so that parts never run into one another
    text = "".join([f"{len(part)}:{part}" for part in key])
    return f"{name}:{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=8).hexdigest()}"
