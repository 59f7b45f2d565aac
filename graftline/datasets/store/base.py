"""The `DatasetStore` port: datasets that are trained on, by name; each a file of JSON lines.

A result is a dataset as it is, whatever its rows are like: `training/examples.py` and what recipes read them with judge those.
That there is none of a name is an error, for a recipe that names it cannot do without. Where datasets come from is another
port, `DatasetHub`.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Protocol

from graftline.core.errors import DataError
from graftline.core.paths import portable

SUFFIX = ".jsonl"
"""Ends the names of datasets."""
_MOST_LISTED = 8


class DatasetStore(Protocol):
    """Reads datasets. Safe to use from several threads."""

    @property
    def label(self) -> str:
        """What messages call it."""

    def names(self, prefix: str = "") -> list[str]:
        """Return the names that begin with `prefix`, sorted.

        Raises:
            DataError: the store cannot be read.
        """

    def open(self, name: str) -> IO[bytes]:
        """Open a dataset for reading; who asked closes it.

        Raises:
            DataError: there is none of this name, or it cannot be read.
        """

    def sha256(self, name: str) -> str:
        """Return the digest of the bytes of a dataset, in hexadecimal.

        Raises:
            DataError: as `open`.
        """

    def folder(self) -> AbstractContextManager[Path]:
        """Give a folder in which every dataset is the file of its name, not to be written to, until the end of the block.

        Raises:
            DataError: as `names`.
        """


def checked_name(name: str) -> str:
    """Return `name`.

    Raises:
        DataError: it cannot be the name of a dataset.
    """
    path = portable(name)
    if str(path) != name or any(part.startswith(".") for part in path.parts) or path.suffix != SUFFIX:
        raise DataError(
            f"dataset name {name!r}: has an empty part, one that begins with a dot, or does not end in {SUFFIX}; use a"
            " plain relative path such as 'data/exports/sft.jsonl'"
        )
    return name


def missing(label: str, name: str, known: Iterable[str]) -> DataError:
    """Return the error that there is no dataset called `name`; some that are there are named."""
    first = [*known]
    listed = ", ".join(first[:_MOST_LISTED]) + (
        f" and {len(first) - _MOST_LISTED} more" if len(first) > _MOST_LISTED else ""
    )
    return DataError(f"{label}: has no dataset {name!r}; it has {listed or 'none'}")
