"""Datasets held in this process."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from graftline.datasets.store.base import checked_name, missing


class MemoryDatasetStore:
    """Datasets in a dictionary: bytes by name.

    Raises:
        DataError: a name cannot be one.
    """

    label = "memory"

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = {checked_name(name): content for name, content in sorted(files.items())}

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in self._files if name.startswith(prefix)]

    def open(self, name: str) -> IO[bytes]:
        return BytesIO(self._content(name))

    def sha256(self, name: str) -> str:
        return sha256(self._content(name)).hexdigest()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        with TemporaryDirectory(prefix="graftline-datasets-") as folder:
            for name, content in self._files.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            yield Path(folder)

    def _content(self, name: str) -> bytes:
        if checked_name(name) not in self._files:
            raise missing(self.label, name, self._files)
        return self._files[name]
