"""Another hub, whose bytes are counted over all files of a dataset, streamed ones too."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from graftline.core.download import Advance, Download
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import DatasetHub, Observation

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_BUFFER_BYTES = 1 << 20


class CountedHub:
    """`hub`, which tells `advance` how many bytes of the dataset that `files` was asked for last have come."""

    def __init__(self, hub: DatasetHub, advance: Advance) -> None:
        self._hub, self._advance = hub, advance
        self._come_bytes, self._total_bytes, self._files = 0, 0, 0

    def revision(self, name: str, dataset: Dataset) -> str:
        return self._hub.revision(name, dataset)

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        return self._hub.observe(name, dataset, known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return self._hub.is_home(name, dataset)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        files = self._hub.files(name, dataset)
        sizes = [file.size_bytes for file in files if file.size_bytes is not None]
        self._come_bytes, self._files = 0, len(files)
        self._total_bytes = sum(sizes) if len(sizes) == len(files) else 0
        return files

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        def of_all(done: int, total: int) -> None:
            # where the home does not say how large its files are, one file still does when it comes
            advance(self._come_bytes + done, self._total_bytes or (total if self._files == 1 else 0))

        fetched = self._hub.fetch(name, dataset, file, target, of_all)
        self._come_bytes += fetched.size_bytes
        return fetched

    @contextmanager
    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> Iterator[IO[bytes]]:
        with (
            self._hub.stream(name, dataset, file) as inner,
            io.BufferedReader(_Counted(inner, self._read), _BUFFER_BYTES) as stream,
        ):
            yield stream

    def _read(self, size_bytes: int) -> None:
        self._come_bytes += size_bytes
        self._advance(self._come_bytes, self._total_bytes)


class _Counted(io.RawIOBase):
    def __init__(self, inner: IO[bytes], count: Callable[[int], None]) -> None:
        self._inner, self._count = inner, count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        room = memoryview(buffer).cast("B")
        found = self._inner.read(len(room))
        room[: len(found)] = found
        self._count(len(found))
        return len(found)
