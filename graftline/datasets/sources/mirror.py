"""A mirror: one folder, of any file system, with a folder per dataset, in place of the homes that are not here.

For sites without a network, and for tests. A file may lie there compressed, as `<path>.gz`, where `<path>` itself is
absent: it keeps that name, and a pin then means what is in it.
"""

import logging
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import IO

from graftline.core.download import Advance, Download, download, open_stream, pin_fault, raise_download_error
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.formats import gunzipped
from graftline.datasets.sources.base import MIRROR_VARIABLE, DatasetHub, Observation
from graftline.datasets.sources.filesystem import FilesystemFolder, open_folder
from graftline.datasets.sources.folder import listed_paths, observed, revision_of
from graftline.datasets.sources.listing import Facts, entries, matches, resolved

logger = logging.getLogger(__name__)


def is_mirrored(dataset: Dataset) -> bool:
    """Return whether a mirror stands for the home of `dataset`: folders of the checkout, and registries, stay."""
    # pip and npm have mirrors of their own, in their own settings
    return dataset.reader != "package_releases" and (dataset.home is None or "://" in dataset.home)


def held_by_mirror(mirror: str, names: Iterable[str]) -> set[str]:
    """Return those of the datasets called `names` that have a folder in `mirror`.

    Raises:
        ConfigError: there is no such mirror.
        DownloadError: it cannot be listed.
    """
    try:
        return set(names) & set(open_folder(mirror, RetryPolicy()).names())
    except (ConfigError, DownloadError) as error:
        raise ConfigError(
            f"{MIRROR_VARIABLE}: {error.__cause__ or error}; expected a folder, or a URL that fsspec knows,"
            " with a folder per dataset in it"
        ) from error


class MirrorHub:
    """A mirror for the homes that are elsewhere or unknown, and `inner` for the others."""

    def __init__(self, mirror: str, inner: DatasetHub, patience: RetryPolicy, must_match_pins: bool) -> None:
        self._mirror, self._inner, self._patience = mirror.rstrip("/"), inner, patience
        self._must_match_pins = must_match_pins

    def revision(self, name: str, dataset: Dataset) -> str:
        if not is_mirrored(dataset):
            return self._inner.revision(name, dataset)
        folder = self._folder(name)
        return revision_of(folder, _files(folder, dataset))

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        if not is_mirrored(dataset):
            return self._inner.observe(name, dataset, known)
        folder = self._folder(name)
        return observed(folder, _files(folder, dataset), known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return not is_mirrored(dataset) and self._inner.is_home(name, dataset)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        return _files(self._folder(name), dataset) if is_mirrored(dataset) else self._inner.files(name, dataset)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        if not is_mirrored(dataset):
            return self._inner.fetch(name, dataset, file, target, advance)
        source = self._folder(name).source(file.path)
        pins, is_compressed = _pins(file, dataset)
        if self._must_match_pins and not is_compressed:
            fetched = download(source, pins, target, advance, self._patience)
            return replace(fetched, is_upstream=pins.sha256 is not None)
        unpinned = DatasetFile(path=file.path)
        fetched = download(source, unpinned, target, advance, self._patience)
        fault = _inner_fault(pins, target) if is_compressed else pin_fault(pins, fetched.size_bytes, fetched.sha256)
        if fault and self._must_match_pins:
            target.unlink()
            raise DownloadError(f"{source.label}: {fault}")
        if fault:
            logger.warning("%s: is not the pinned file, but is used: %s", source.label, fault)
        return replace(fetched, is_upstream=pins.sha256 is not None and not fault)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        if not is_mirrored(dataset):
            return self._inner.stream(name, dataset, file)
        source = self._folder(name).source(file.path)
        pins, is_compressed = _pins(file, dataset)
        if is_compressed and self._must_match_pins and pins.sha256:
            raise DownloadError(
                f"{source.label}: is compressed in the mirror only, so that its pin cannot be checked while it is read;"
                f" keep {pins.path!r} itself there, or set `keep: all` for the dataset"
            )
        if is_compressed:
            pins = DatasetFile(path=file.path)
        return open_stream(source, pins, self._patience, raise_download_error if self._must_match_pins else _tolerate)

    def _folder(self, name: str) -> FilesystemFolder:
        return open_folder(f"{self._mirror}/{name}", self._patience)


def _files(folder: FilesystemFolder, dataset: Dataset) -> list[DatasetFile]:
    """Return the files of `dataset` in `folder`; of what lies there compressed only, the compressed one."""
    paths = listed_paths(folder)
    # by the name that the catalog knows, the name it lies there by
    stored = {path.removesuffix(".gz"): path for path in paths} | {path: path for path in paths}
    files = resolved(folder.label, dataset, {path: Facts() for path in stored})
    found = {stored[file.path]: DatasetFile(path=stored[file.path]) for file in files}
    # a file that lies there by its own name has the pins of its own entry
    found |= {file.path: file for file in files if stored[file.path] == file.path}
    return [found[path] for path in sorted(found)]


def _pins(file: DatasetFile, dataset: Dataset) -> tuple[DatasetFile, bool]:
    """Return the pins that hold for `file` of the mirror, and whether they are those of what is compressed in it."""
    wanted = entries(dataset)
    if not file.path.endswith(".gz") or any(matches(entry.path, file.path) for entry in wanted):
        return file, False
    name = file.path.removesuffix(".gz")
    return next((entry for entry in wanted if entry.path == name), DatasetFile(path=name)), True


def _inner_fault(pins: DatasetFile, compressed: Path) -> str:
    content, size_bytes = sha256(), 0
    if pins.sha256 is None and pins.size_bytes is None:
        return ""
    try:
        with compressed.open("rb") as stream:
            for piece in gunzipped(stream):
                content.update(piece)
                size_bytes += len(piece)
    except (EOFError, OSError, zlib.error) as error:
        return f"cannot be decompressed ({error}); restore it in the mirror"
    return pin_fault(pins, size_bytes, content.hexdigest())


def _tolerate(fault: str) -> None:
    logger.warning("is not the pinned file, but is used: %s", fault)
