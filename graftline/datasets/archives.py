"""Archives of package releases: wheels and other zip files, tar files packed with gzip or bzip2.

They are of unknown origin and are only ever read, never unpacked to a disk. Covered: names that leave the folder,
links and devices (left out), several files of one name, encryption, damage, and content that is larger than it looks.
Not covered: what the text in them says.
"""

import bz2
import gzip
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO

from graftline.core.errors import DataError

MAX_ARCHIVE_BYTES = 64 << 20
MAX_CONTENT_BYTES = 256 << 20
"""Of all files together, unpacked."""
MAX_FILES = 50_000
MAX_FILE_BYTES = 2 << 20
"""A relevant file that is larger is left out."""
_CHUNK_BYTES = 1 << 20
_MAX_READ_BYTES = 8 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
"""Not LZMA, whose decoder takes as much memory as a header says."""
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, LookupError, RuntimeError, ValueError)
"""What the readers raise of damaged files; tarfile follows headers of headers by recursion until that is an error."""

Filter = Callable[[PurePosixPath], bool]


def archive_path(registry: str, package: str, version: str) -> str:
    """Return where the archive of a release lies among the raw files; its format shows in its first bytes."""
    return f"{registry}/{package}@{version}.archive"


def files_of(path: Path, is_relevant: Filter) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    """Yield the files of the archive at `path` that are relevant, in its order; None for one that is too large.

    Raises:
        DataError: it is not an archive, is damaged, hostile or too large. Nothing that came before is to be used then.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; fetch the dataset")
    try:
        size = path.stat().st_size
        if size > MAX_ARCHIVE_BYTES:
            raise DataError(f"{path}: is {size} bytes large; at most {MAX_ARCHIVE_BYTES} are read")
        with path.open("rb") as stream:
            yield from _contents(path, stream, is_relevant)
    except _DAMAGE as error:
        raise DataError(f"{path}: is damaged, or no archive ({error}); fetch it again") from None


def _contents(path: Path, stream: IO[bytes], is_relevant: Filter) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    magic = stream.read(4)
    stream.seek(0)
    if magic[:2] == b"PK":
        yield from _in_zip(path, stream, is_relevant)
        return
    is_gzip = magic[:2] == b"\x1f\x8b"
    if not is_gzip and magic[:3] != b"BZh":
        raise DataError(f"{path}: is neither zip nor gzip nor bzip2; expected a release as its registry holds it")
    with TemporaryFile() as plain, gzip.open(stream) if is_gzip else bz2.open(stream) as packed:
        _unpack(path, packed, plain)
        yield from _in_tar(path, plain, is_relevant)


def _in_zip(path: Path, stream: IO[bytes], is_relevant: Filter) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    remaining = MAX_CONTENT_BYTES
    with zipfile.ZipFile(stream) as archive:
        names = _Names(path)
        for member in archive.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            is_file = not member.is_dir() and kind in (0, stat.S_IFREG)
            name = names.check(member.filename, is_file)
            if not is_file or not is_relevant(name):
                continue
            if member.flag_bits & 1 or member.compress_type not in _METHODS:
                raise DataError(
                    f"{path}: {member.filename!r} is encrypted, or packed in a way that is not read;"
                    " expected a release as its registry holds it"
                )
            with archive.open(member) as content:
                text = content.read(MAX_FILE_BYTES + 1)
            remaining -= len(text)
            if remaining < 0:
                raise _too_much(path)
            yield name, text if len(text) <= MAX_FILE_BYTES else None


def _in_tar(path: Path, plain: IO[bytes], is_relevant: Filter) -> Iterator[tuple[PurePosixPath, bytes | None]]:
    names = _Names(path)
    with tarfile.open(fileobj=_Cautious(plain), mode="r:") as archive:  # type: ignore[call-overload]
        for member in archive:
            is_file = member.isreg() and not member.issparse()
            name = names.check(member.name, is_file)
            if not is_file or not is_relevant(name):
                continue
            if member.size > MAX_FILE_BYTES:
                yield name, None
                continue
            content = archive.extractfile(member)
            text = content.read() if content else b""
            if len(text) != member.size:
                raise EOFError(f"{member.name!r} ends too early")
            yield name, text


def _unpack(path: Path, packed: gzip.GzipFile | bz2.BZ2File, plain: IO[bytes]) -> None:
    size = 0
    while chunk := packed.read(_CHUNK_BYTES):
        size += len(chunk)
        if size > MAX_CONTENT_BYTES:
            raise _too_much(path)
        plain.write(chunk)
    plain.seek(0)


def _too_much(path: Path) -> DataError:
    return DataError(f"{path}: holds more than {MAX_CONTENT_BYTES} bytes; a release of that size is not read")


class _Cautious:
    """A file that gives only so much at a time: a header of a tar file may claim to be as long as the whole file."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_READ_BYTES:
            raise tarfile.ReadError(f"a header claims {size} bytes")
        return self._stream.read(size)


class _Names:
    """The names met in one archive."""

    def __init__(self, path: Path) -> None:
        self._path, self._met = path, set[PurePosixPath]()
        self._count = 0

    def check(self, name: str, is_file: bool) -> PurePosixPath:
        """Return `name` as a path, if it is one that stays inside and, for a file, that no other file has."""
        path = PurePosixPath(name)
        self._count += 1
        if self._count > MAX_FILES:
            raise DataError(f"{self._path}: holds more than {MAX_FILES} files; a release of that size is not read")
        if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
            raise DataError(f"{self._path}: {name!r} leaves the archive's folder; do not use this release")
        if is_file and path in self._met:
            raise DataError(f"{self._path}: holds {name!r} twice; do not use this release")
        if is_file:
            self._met.add(path)
        return path
