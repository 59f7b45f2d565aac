"""Archives between a machine of ours and containers: what goes in, and what comes out of one that nobody trusts.

Of what comes out only regular files and folders count, by the names they were asked for: links, devices and names that
lead elsewhere are left out. Every read has a bound.
"""

import io
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePosixPath
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


def packed(files: Mapping[str, bytes], user: int = 0, mode: int = 0o644) -> bytes:
    """Return a tar of `files`, by relative path, with the folders they are in.

    Raises:
        HarborError: a path leads out of the folder.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        folders = {folder for path in files for folder in map(str, relative(path).parents) if folder != "."}
        for folder in sorted(folders):
            tar.addfile(_member(folder, 0, user, 0o755, tarfile.DIRTYPE))
        for path, content in files.items():
            tar.addfile(_member(str(relative(path)), len(content), user, mode), io.BytesIO(content))
    return archive.getvalue()


def packed_folder(path: str, mode: int) -> bytes:
    """Return a tar of one empty folder."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(_member(path, 0, 0, mode, tarfile.DIRTYPE))
    return archive.getvalue()


def relative(path: str) -> PurePosixPath:
    """Return `path`, which stays inside the folder it is relative to.

    Raises:
        HarborError: it does not.
    """
    found = PurePosixPath(path)
    if found.is_absolute() or ".." in found.parts or not found.parts:
        raise HarborError(f"{path!r}: leads out of the working folder; expected a path below it")
    return found


def file_in(chunks: Iterable[bytes], name: str, most: int) -> bytes | None:
    """Return the file called `name` of a tar that holds nothing else; None where it is no regular file.

    Of a file that is larger than `most`, one byte more is read, so that whoever looks sees that.
    """
    for member, content in _members(chunks, most + _OVERHEAD_BYTES):
        if content is None or member.name.rpartition("/")[2] != name:
            return None
        with _unbroken():
            return content.read(most + 1)
    return None


def files_in(chunks: Iterable[bytes], path: str, most: int = MAX_ARTIFACT_BYTES) -> dict[str, bytes]:
    """Return the files of a tar of `path`, a file or a folder, by path relative to where `path` is relative to.

    A tar names what is in it from the last part of `path` on:

        path src/app, member app/main.py -> src/app/main.py

    Raises:
        DataError: it holds more than may travel.
    """
    above = relative(path).parent
    return _files(chunks, (path,), most, lambda name: above / name)


def files_below(chunks: Iterable[bytes], paths: tuple[str, ...], most: int = MAX_ARTIFACT_BYTES) -> dict[str, bytes]:
    """Return the files of a tar that are, or are below, one of `paths`, by their names in it.

    Raises:
        DataError: it holds more than may travel.
    """
    return _files(chunks, paths, most, PurePosixPath)


def _files(
    chunks: Iterable[bytes], paths: tuple[str, ...], most: int, place: Callable[[str], PurePosixPath]
) -> dict[str, bytes]:
    tops = [relative(path) for path in paths]
    files: dict[str, bytes] = {}
    left = most
    for member, content in _members(chunks, most + MAX_ARTIFACTS * 2048):
        found = place(member.name)
        if content is None or found.is_absolute() or ".." in found.parts or not any(map(found.is_relative_to, tops)):
            continue
        left -= member.size
        if left < 0 or len(files) >= MAX_ARTIFACTS:
            names = ", ".join(paths)
            raise DataError(f"artifacts {names}: more than {most} bytes or {MAX_ARTIFACTS} files; name less of them")
        with _unbroken():
            files[str(found)] = content.read()
    return files


def relaid(chunks: Iterable[bytes], target: IO[bytes]) -> bool:
    """Write to `target` the tar of what is in the folder that a tar holds; return whether it holds one.

    It is of an image, so links are kept:

    tasks/, tasks/a, tasks/b/c -> a, b/c
    """
    is_there = False
    with tarfile.open(fileobj=target, mode="w") as tar:
        for member, content in _members(chunks, MAX_CONTEXT_BYTES):
            is_there = is_there or member.isdir()
            member.name = member.name.partition("/")[2]
            if member.name and (member.isreg() or member.isdir() or member.issym()):
                with _unbroken():
                    tar.addfile(member, content)
    return is_there


def with_dockerfile(archive: bytes, dockerfile: str, target: IO[bytes]) -> None:
    """Write the tar of `archive`, a tar.gz, to `target`, with `dockerfile` in it as `DOCKERFILE`.

    Raises:
        DataError: it is no tar.gz, or unpacks to more than a context may have.
    """
    left = MAX_CONTEXT_BYTES
    try:
        with (
            tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as source,
            tarfile.open(fileobj=target, mode="w") as tar,
        ):
            for member in source:
                if member.name == DOCKERFILE or not (member.isreg() or member.isdir() or member.issym()):
                    continue
                left -= member.size
                if left < 0:
                    raise DataError(f"the context unpacks to more than {MAX_CONTEXT_BYTES} bytes; leave files out")
                tar.addfile(member, source.extractfile(member) if member.isreg() else None)
            content = dockerfile.encode()
            tar.addfile(_member(DOCKERFILE, len(content), 0, 0o644), io.BytesIO(content))
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"the context is not a tar.gz ({error}); package it again") from None


@contextmanager
def _unbroken() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, OSError, EOFError) as error:
        raise HarborError(
            f"a file out of a container broke off ({error}); look at what the container runs on"
        ) from None


def _members(chunks: Iterable[bytes], most: int) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield what a tar holds, with a stream of each regular file; of a tar that breaks off, what came before."""
    try:
        with tarfile.open(fileobj=_Chunks(chunks, most), mode="r|", bufsize=_BLOCK) as tar:
            for member in tar:
                yield member, tar.extractfile(member) if member.isreg() and not member.issparse() else None
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return


def _member(name: str, size: int, user: int, mode: int, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.type = size, mode, kind
    member.uid = member.gid = user
    return member


class _Chunks(io.RawIOBase):
    """Chunks of bytes as one stream that ends after `most`."""

    def __init__(self, chunks: Iterable[bytes], most: int) -> None:
        self._chunks, self._left, self._held = iter(chunks), most, b""

    def read(self, size: int = -1) -> bytes:
        parts: list[bytes] = []
        wanted = self._left if size < 0 else min(size, self._left)
        while wanted > 0:
            if not self._held:
                self._held = next(self._chunks, b"")
                if not self._held:
                    break
            part, self._held = self._held[:wanted], self._held[wanted:]
            parts.append(part)
            wanted -= len(part)
            self._left -= len(part)
        return b"".join(parts)
