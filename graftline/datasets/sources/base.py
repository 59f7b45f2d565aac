"""The `DatasetHub` port: the homes of datasets.

A result is a file, whole and of the pinned checksum. A home that cannot be read, or holds something else than was
pinned, is an error: training on other bytes than were asked for is worse than not training.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from graftline.core.download import Advance, Download
from graftline.datasets.catalog import Dataset, DatasetFile

MIRROR_VARIABLE = "GRAFTLINE_DATASET_MIRROR"
"""Names the mirror, in the environment."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What a look at a home found."""

    revision: str
    """The newest revision there is, whatever is pinned."""
    etag: str = ""
    """By which the next look asks whether anything changed; empty where the home has no such thing."""


class DatasetHub(Protocol):
    """Reads the homes of datasets. `name` is that of the dataset in the catalog, by which a mirror knows it.

    Of a dataset that follows its home, `files`, `fetch` and `stream` read the revision that `revision` returned last.
    """

    def revision(self, name: str, dataset: Dataset) -> str:
        """Return what changes when a byte changes that would be fetched for this very entry of the catalog.

        Asks nobody when that is pinned.

        Raises:
            ConfigError: nobody knows the home, or it is not pinned to a revision and has to be.
            DownloadError: the home cannot be read.
        """

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        """Look at what the home holds now; `known` is what the last look found, and is returned when nothing changed.

        One look, without patience: who observes looks again later.

        Raises:
            ConfigError, DownloadError: as `revision`.
            SourceBusyError: the home asks to come back later.
        """

    def is_home(self, name: str, dataset: Dataset) -> bool:
        """Return whether `dataset` is read from its home, and not from a mirror of it, which may hold anything."""

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        """Return the files of `dataset` in its home, patterns resolved, in the order of their paths.

        What the home says of size and checksum is filled in.

        Raises:
            ConfigError, DownloadError: as `revision`, or there is no file for an entry.
        """

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        """Write `file`, one that `files` returned, to `target`, whole and verified, or not at all.

        What a killed fetch left beside `target` is taken up again, and a `target` that is right is left as it is.

        Raises:
            ConfigError: the home wants a token, or terms to be accepted.
            DownloadError: the home cannot be read, or size or checksum are not the pinned ones.
        """

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        """Open `file`, one that `files` returned, for reading once from start to end, keeping nothing.

        The read that finds the end verifies size and checksum.

        Raises:
            ConfigError, DownloadError: as `fetch`.
        """
