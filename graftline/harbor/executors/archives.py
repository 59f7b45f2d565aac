"""Archives between a machine of ours and containers: what goes in, and what comes out of one that nobody trusts.

Of what comes out only regular files and folders count, by the names they were asked for: links, devices and names that
lead elsewhere are left out. Every read has a bound.
"""

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import IO

from graftline.core.errors import DataError, HarborError

MAX_ARTIFACT_BYTES = 64 << 20
"""Of all that travels from an agent's container to its verifier's, together."""
MAX_ARTIFACTS = 20_000
MAX_CONTEXT_BYTES = 4 << 30
"""Of a context, unpacked."""
DOCKERFILE = ".graftline.Dockerfile"
"""What the Dockerfile of a snapshot is called among the files of its context, which may have one of another content."""
_BLOCK = 64 << 10
_OVERHEAD_BYTES = 1 << 20


def pack(files: Mapping[str, bytes], folders: Mapping[str, int] = MappingProxyType({})) -> bytes:
    """Return a tar of `files`, by relative path, with the folders they are in, and of `folders`, by path with their modes.

    Raises:
        HarborError: a path leads out of the folder.
    """
    archive = io.BytesIO()
    above = {folder: 0o755 for path in files for folder in map(str, relative(path).parents) if folder != "."}
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for folder, mode in sorted({**above, **folders}.items()):
            tar.addfile(_member(folder, 0, mode, tarfile.DIRTYPE))
        for path, content in files.items():
            tar.addfile(_member(str(relative(path)), len(content)), io.BytesIO(content))
    return archive.getvalue()


def relative(path: str) -> PurePosixPath:
    """Return `path`, which stays inside the folder it is relative to. Raises HarborError where it does not."""
    place = PurePosixPath(path)
    if place.is_absolute() or ".." in place.parts or not place.parts:
        raise HarborError(f"{path!r}: leads out of the working folder; expected a path below it")
    return place


def read_file(chunks: Iterable[bytes], name: str, limit: int) -> bytes | None:
    """Return the file called `name` of a tar that holds nothing else; None where it is no regular file.

    Of a file that is larger than `limit`, one byte more is read, so that the caller sees that.
    """
    for member, content in members(chunks, limit + _OVERHEAD_BYTES):
        if content is None or member.name.rpartition("/")[2] != name:
            return None
        with _translate_breaks():
            return content.read(limit + 1)
    return None


def read_files(
    chunks: Iterable[bytes],
    paths: tuple[str, ...],
    above: PurePosixPath | None = None,
    limit: int = MAX_ARTIFACT_BYTES,
) -> dict[str, bytes]:
    """Return the files of a tar that are, or are below, one of `paths`; names in it are relative to `above`.

    A tar of one folder names what is in it from the last part of its path on:

        paths src/app, above src, member app/main.py -> src/app/main.py

    Raises:
        DataError: it holds more than may travel.
    """
    tops = [relative(path) for path in paths]
    files: dict[str, bytes] = {}
    remaining = limit
    for member, content in members(chunks, limit + MAX_ARTIFACTS * 2048):
        place = PurePosixPath(member.name) if above is None else above / member.name
        if content is None or place.is_absolute() or ".." in place.parts or not any(map(place.is_relative_to, tops)):
            continue
        remaining -= member.size
        if remaining < 0 or len(files) >= MAX_ARTIFACTS:
            names = ", ".join(paths)
            raise DataError(f"artifacts {names}: more than {limit} bytes or {MAX_ARTIFACTS} files; name less of them")
        with _translate_breaks():
            files[str(place)] = content.read()
    return files


def strip_folder(chunks: Iterable[bytes], target: IO[bytes]) -> bool:
    """Write to `target` the tar of what is in the folder that a tar holds; return whether it holds one.

    It is of an image, so links are kept:

    tasks/, tasks/a, tasks/b/c -> a, b/c
    """
    has_folder = False
    with tarfile.open(fileobj=target, mode="w") as tar:
        for member, content in members(chunks, MAX_CONTEXT_BYTES):
            has_folder = has_folder or member.isdir()
            member.name = member.name.partition("/")[2]
            if member.name and (member.isreg() or member.isdir() or member.issym()):
                with _translate_breaks():
                    tar.addfile(member, content)
    return has_folder


@contextmanager
def open_context(archive: bytes) -> Iterator[tarfile.TarFile]:
    """Yield a context, a tar.gz that the service looked through when it came; DataError where it is none."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            yield tar
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"the context is not a tar.gz that can be unpacked ({error}); package it again") from None


def add_dockerfile(archive: bytes, dockerfile: str, target: IO[bytes]) -> None:
    """Write the tar of `archive`, a context, to `target`, with `dockerfile` in it as `DOCKERFILE`."""
    with open_context(archive) as source, tarfile.open(fileobj=target, mode="w") as tar:
        for member in source:
            if member.name != DOCKERFILE and (member.isreg() or member.isdir() or member.issym()):
                tar.addfile(member, source.extractfile(member) if member.isreg() else None)
        content = dockerfile.encode()
        tar.addfile(_member(DOCKERFILE, len(content)), io.BytesIO(content))


@contextmanager
def _translate_breaks() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, EOFError) as error:
        raise HarborError(
            f"a file out of a container broke off ({error}); look at what the container runs on"
        ) from None


def members(chunks: Iterable[bytes], limit: int) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield what a tar holds, with a stream of each regular file; of a tar that breaks off, what came before."""
    try:
        with tarfile.open(fileobj=_ChunkStream(chunks, limit), mode="r|", bufsize=_BLOCK) as tar:
            for member in tar:
                yield member, tar.extractfile(member) if member.isreg() and not member.issparse() else None
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return


def _member(name: str, size: int, mode: int = 0o644, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.type = size, mode, kind
    return member


class _ChunkStream(io.RawIOBase):
    """Chunks of bytes as one stream that ends after `limit`."""

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self._chunks, self._remaining, self._buffer = iter(chunks), limit, b""

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        missing = self._remaining if size < 0 else min(size, self._remaining)
        while missing > 0:
            self._buffer = self._buffer or next(self._chunks, b"")
            if not self._buffer:
                break
            part, self._buffer = self._buffer[:missing], self._buffer[missing:]
            parts.append(part)
            missing -= len(part)
            self._remaining -= len(part)
        return b"".join(parts)
