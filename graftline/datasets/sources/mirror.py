"""A mirror: one folder, of any file system, with a folder per dataset, in place of the sources that are not here.

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
from graftline.datasets.formats import decompress_gzip
from graftline.datasets.sources.base import (
    MIRROR_VARIABLE,
    DatasetHub,
    Facts,
    FolderHub,
    RoutingHub,
    entries,
    list_paths,
    matches,
    resolve,
)
from graftline.datasets.sources.folders import open_folder

logger = logging.getLogger(__name__)


def is_mirrored(dataset: Dataset) -> bool:
    """Return whether a mirror stands for the source of `dataset`: folders of the checkout, and registries, stay."""
    # pip and npm have mirrors of their own, in their own settings
    return dataset.reader != "package_releases" and (dataset.url is None or "://" in dataset.url)


def datasets_in_mirror(mirror: str, names: Iterable[str]) -> set[str]:
    """Return those of the datasets called `names` that have a folder in `mirror`.

    Raises:
        ConfigError: there is no such mirror, or it cannot be listed.
    """
    try:
        return set(names) & set(open_folder(mirror, RetryPolicy()).names())
    except (ConfigError, DownloadError) as error:
        raise ConfigError(
            f"{MIRROR_VARIABLE}: {error.__cause__ or error}; expected a folder, or a URL that fsspec knows,"
            " with a folder per dataset in it"
        ) from error


class MirrorHub(RoutingHub):
    """A mirror for the sources that are elsewhere or unknown, and `inner` for the others."""

    def __init__(self, mirror: str, inner: DatasetHub, patience: RetryPolicy, must_match_pins: bool) -> None:
        self._mirror, self._inner = _Mirror(mirror.rstrip("/"), patience, must_match_pins), inner

    def hub_of(self, dataset: Dataset) -> DatasetHub:
        return self._mirror if is_mirrored(dataset) else self._inner


class _Mirror(FolderHub):
    def __init__(self, mirror: str, patience: RetryPolicy, must_match_pins: bool) -> None:
        super().__init__(lambda name, dataset: open_folder(f"{mirror}/{name}", patience), patience)
        self._must_match_pins = must_match_pins

    def is_upstream(self, name: str, dataset: Dataset) -> bool:
        return False

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        folder = self._open(name, dataset)
        paths = list_paths(folder)
        # by the name that the catalog knows, the name it lies there by; of what lies there compressed only, that one
        stored = {path.removesuffix(".gz"): path for path in paths} | {path: path for path in paths}
        targets = resolve(folder.label, dataset, {path: Facts() for path in stored})
        files = {stored[file.path]: DatasetFile(path=stored[file.path]) for file in targets}
        # a file that lies there by its own name has the pins of its own entry
        files |= {file.path: file for file in targets if stored[file.path] == file.path}
        return [files[path] for path in sorted(files)]

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        source = self.source(name, dataset, file.path)
        pins, is_compressed = _pins(file, dataset)
        if self._must_match_pins and not is_compressed:
            fetched = download(source, pins, target, advance, self._patience)
            return replace(fetched, is_upstream=pins.sha256 is not None)
        fetched = download(source, DatasetFile(path=file.path), target, advance, self._patience)
        fault = _content_fault(pins, target) if is_compressed else pin_fault(pins, fetched.size_bytes, fetched.sha256)
        if fault and self._must_match_pins:
            target.unlink()
            raise DownloadError(f"{source.label}: {fault}")
        if fault:
            logger.warning("%s: is not the pinned file, but is used: %s", source.label, fault)
        return replace(fetched, is_upstream=pins.sha256 is not None and not fault)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        source = self.source(name, dataset, file.path)
        pins, is_compressed = _pins(file, dataset)
        if is_compressed and self._must_match_pins and pins.sha256:
            raise DownloadError(
                f"{source.label}: is compressed in the mirror only, so that its pin cannot be checked while it is read;"
                f" keep {pins.path!r} itself there, or set `keep: all` for the dataset"
            )
        if is_compressed:
            pins = DatasetFile(path=file.path)
        return open_stream(source, pins, self._patience, raise_download_error if self._must_match_pins else _warn)


def _pins(file: DatasetFile, dataset: Dataset) -> tuple[DatasetFile, bool]:
    """Return the pins that hold for `file` of the mirror, and whether they are those of what is compressed in it."""
    targets = entries(dataset)
    if not file.path.endswith(".gz") or any(matches(entry.path, file.path) for entry in targets):
        return file, False
    name = file.path.removesuffix(".gz")
    return next((entry for entry in targets if entry.path == name), DatasetFile(path=name)), True


def _content_fault(pins: DatasetFile, compressed: Path) -> str:
    """Return what of the content of a compressed file is not as pinned."""
    if pins.sha256 is None and pins.size_bytes is None:
        return ""
    content, size_bytes = sha256(), 0
    try:
        with compressed.open("rb") as stream:
            for chunk in decompress_gzip(stream):
                content.update(chunk)
                size_bytes += len(chunk)
    except (EOFError, OSError, zlib.error) as error:
        return f"cannot be decompressed ({error}); restore it in the mirror"
    return pin_fault(pins, size_bytes, content.hexdigest())


def _warn(fault: str) -> None:
    logger.warning("is not the pinned file, but is used: %s", fault)
