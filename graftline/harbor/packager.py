"""Contexts as archives: a tar.gz that has the same bytes whoever packs it, whenever, wherever.

Paths are in the order of their bytes; times, owners and names of owners are none, modes 0644 or 0755. Only the compressor
is not ours: with another release of zlib the bytes may differ, and `archive.ArchiveInfo.content_sha256` does not.
What is packed is said by `ignore_rules`, what is refused by `context_tree` and `core.secret_finds`.
"""

import base64
import gzip
import io
import logging
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from graftline.core.errors import DataError
from graftline.core.secret_finds import find_in_file
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.context_tree import (
    FILE_MODE,
    MAX_ENTRIES,
    PROGRAM_MODE,
    Entry,
    check_name,
    check_tree,
    read_plain_file,
)
from graftline.harbor.ignore_rules import DEFAULT_EXCLUDES, DEFAULT_INCLUDES, IgnoreRules
from graftline.harbor.tar_stream import FREE_BYTES, MAX_RATIO
from graftline.sandbox.file_names import short

logger = logging.getLogger(__name__)

_LEVEL = 4
_BLOCK = 512
_SHOWN_FINDS, _SHOWN_FILES = 20, 10
_GENERATED = frozenset({".pyc", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})


@dataclass(frozen=True, slots=True)
class Package:
    """A packed context."""

    archive: bytes = field(repr=False)
    digest: str
    """SHA-256 of the archive."""
    file_count: int
    total_size_bytes: int
    """Of the files, before they were packed."""
    files: tuple[str, ...]
    """Paths of files and links."""

    @property
    def base64(self) -> str:
        """The archive as the service takes it."""
        return base64.b64encode(self.archive).decode()


class HarborPackager:
    """Packs the contexts of a spec."""

    def __init__(self, spec: HarborBuildSpec, max_size_mb: float = 100) -> None:
        if not max_size_mb > 0:
            raise ValueError(f"max_size_mb: {max_size_mb!r} is no size; expected a number above 0")
        self._spec, self._max_bytes = spec, int(max_size_mb * (1 << 20))

    def package(self) -> str:
        """Return the packed context as the service takes it, in base64.

        Raises:
            ConfigError: a folder of the spec or an ignore file cannot be used.
            DataError: something in the context is refused, or it is too large.
        """
        return self.package_bytes().base64

    def package_bytes(self) -> Package:
        """Return the packed context; raises as `package`."""
        return self._pack(self._spec.context_dir, self._spec.include_globs, self._spec.exclude_globs)

    def package_verifier(self) -> Package | None:
        """Return the packed context of the verifier, None where the spec has none; raises as `package`."""
        verifier = self._spec.verifier
        return None if verifier is None else self._pack(verifier.context_dir, DEFAULT_INCLUDES, DEFAULT_EXCLUDES)

    def get_package_info(self) -> dict[str, Any]:
        """Return what a package is, after packing it; raises as `package`."""
        package = self.package_bytes()
        return {
            "file_count": package.file_count,
            "total_size_bytes": package.total_size_bytes,
            "total_size_mb": round(package.total_size_bytes / (1 << 20), 2),
            "context_dir": str(self._spec.context_dir),
            "dockerfile": None if self._spec.dockerfile_path is None else str(self._spec.dockerfile_path),
            "digest": package.digest,
        }

    def _pack(self, top: Path, include: Sequence[str], exclude: Sequence[str]) -> Package:
        self._spec.validate_paths()
        files = context_files(top, IgnoreRules(top, include, exclude), self._max_bytes)
        buffer, finds = io.BytesIO(), list[str]()
        with gzip.GzipFile("", "wb", _LEVEL, buffer, mtime=0) as archive:
            for file in files:
                archive.write(_header(file))
                if not file.is_folder and file.target is None:
                    content = _content(top, file)
                    if file.path not in self._spec.allow_secrets_in and (find := find_in_file(content, file.path)):
                        finds.append(find)
                    archive.write(content)
                    archive.write(bytes(-file.size % _BLOCK))
            archive.write(bytes(2 * _BLOCK))
            size = archive.tell()
        _check_finds(top, finds)
        data = buffer.getvalue()
        if len(data) > self._max_bytes:
            raise DataError(f"{top}: has {len(data)} bytes as an archive; at most {self._max_bytes} are accepted")
        if size > max(FREE_BYTES, MAX_RATIO * len(data)):
            raise DataError(
                f"{top}: packs to less than 1/{MAX_RATIO} of its size, which services refuse; leave files out"
            )
        names = tuple(file.path for file in files if not file.is_folder)
        return Package(data, sha256(data).hexdigest(), len(names), sum(file.size for file in files), names)


def _header(file: Entry) -> bytes:
    member = tarfile.TarInfo(file.path)
    member.mode = PROGRAM_MODE if file.is_folder or file.is_program else FILE_MODE
    if file.is_folder:
        member.type = tarfile.DIRTYPE
    elif file.target is not None:
        member.type, member.linkname = tarfile.SYMTYPE, file.target
    else:
        member.size = file.size
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _content(top: Path, file: Entry) -> bytes:
    try:
        content = read_plain_file(f"{top}/{file.path}", file.size)
    except OSError as error:
        raise DataError(
            f"{top}: {short(file.path)} cannot be read ({error.strerror}); see to it, or leave it out"
        ) from None
    if len(content) != file.size:
        raise DataError(f"{top}: {short(file.path)} changes while it is packed; wait until it is done, or leave it out")
    return content


def _check_finds(top: Path, finds: Sequence[str]) -> None:
    if not finds:
        return
    more = f" and {len(finds) - _SHOWN_FINDS} more" if len(finds) > _SHOWN_FINDS else ""
    raise DataError(
        f"{top}: holds what looks like secrets: {'; '.join(finds[:_SHOWN_FINDS])}{more}; take them out, or name the"
        " files in allow_secrets_in"
    )


def context_files(top: Path, rules: IgnoreRules, max_bytes: int) -> list[Entry]:
    """Return what of a context is packed, in the order of the bytes of paths.

    Raises:
        DataError: there is too much, or something that cannot be packed; or the context cannot be read.
    """
    by_path = {file.path: file for file in _scan(top, rules)}
    for path in [path for path, file in by_path.items() if not file.is_folder]:
        while (path := path.rpartition("/")[0]) and path not in by_path:
            by_path[path] = Entry(path, is_folder=True)
    files = sorted(by_path.values(), key=lambda file: os.fsencode(file.path))
    _check_size(top, files, max_bytes)
    try:
        for file in files:
            check_name(file.path)
        check_tree(files)
    except DataError as error:
        raise DataError(f"{top}: {error}") from None
    return files


def find_omitted_files(top: Path, below: str = "") -> list[str]:
    """Return the files in the folder `below` of a context that no archive takes, whatever was written to it on purpose."""
    rules = IgnoreRules(top, DEFAULT_INCLUDES, DEFAULT_EXCLUDES)
    files = sorted(path.relative_to(top) for path in (top / below).rglob("*") if path.is_file())
    return [
        path.as_posix()
        for path in files
        if path.suffix not in _GENERATED and not _GENERATED & set(path.parts)
        if not rules.packs(path.as_posix()) or not all(rules.enters(folder.as_posix()) for folder in path.parents[:-1])
    ]


def _scan(top: Path, rules: IgnoreRules) -> Iterator[Entry]:
    pending, count, denied = [""], 0, list[str]()
    while pending:
        folder = pending.pop()
        for entry in _entries(top / folder):
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and rules.enters(path):
                pending.append(path)
            if rules.packs(path, is_folder):
                count += 1
                if count > MAX_ENTRIES:
                    raise DataError(
                        f"{top}: holds more than {MAX_ENTRIES} files, folders and links; leave some out by .harborignore"
                    )
                yield _file(top, path, entry, is_folder)
            elif rules.is_denied(path) and not rules.is_excluded(path, is_folder):
                denied.append(path)
    if denied:
        shown = ", ".join(map(short, sorted(denied)[:_SHOWN_FILES]))
        logger.warning("%s: %d never packed, as secrets or of a repository: %s", top, len(denied), shown)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror}); see to it, or leave it out") from None


def _file(top: Path, path: str, entry: os.DirEntry[str], is_folder: bool) -> Entry:
    if is_folder:
        return Entry(path, is_folder=True)
    try:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return Entry(path, target=os.readlink(top / path))  # noqa: PTH115 - a Path would tidy it
    except OSError as error:
        raise DataError(f"{top}: {short(path)} cannot be read ({error.strerror}); see to it, or leave it out") from None
    if not stat.S_ISREG(status.st_mode):
        kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
        kind = kinds.get(stat.S_IFMT(status.st_mode), "a device")
        raise DataError(f"{top}: {short(path)} is {kind}; expected files, folders and symbolic links only")
    return Entry(path, status.st_size, is_program=bool(status.st_mode & stat.S_IXUSR))


def _check_size(top: Path, files: Sequence[Entry], max_bytes: int) -> None:
    total = sum(file.size for file in files)
    if total > max_bytes:
        largest = max(files, key=lambda file: file.size)
        raise DataError(
            f"{top}: what is to be packed has {total} bytes, and at most {max_bytes} are accepted; leave files out by"
            f" .harborignore, the largest is {short(largest.path)} with {largest.size} bytes, or raise max_size_mb"
        )
