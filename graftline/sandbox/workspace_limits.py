"""What a workspace may hold: how many files and folders, how large, how deep, of which names."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.sandbox.file_names import check_distinct, folders_of, is_project_file, path_of, short


class WorkspaceLimits(Config):
    """What one workspace may hold."""

    files: int = Field(default=2000, ge=1, le=100_000)
    """Files, and as many folders."""
    file_kb: int = Field(default=1024, ge=1, le=1 << 20)
    total_mb: int = Field(default=64, ge=1, le=1 << 14)
    depth: int = Field(default=32, ge=1, le=100)
    """Names in a path: `src/a.py` has two."""


def check_files(sizes: Mapping[str, int], limits: WorkspaceLimits) -> None:
    """Refuse files that may not be in a workspace together; `sizes` counts bytes by path.

    Raises:
        DataError: they may not.
    """
    check_count(len(sizes), limits)
    total = 0
    paths = []
    for name, size in sizes.items():
        paths.append(_checked_path(name, limits))
        total += size
        check_size(name, size, total, limits)
    folders = folders_of(paths) - {"."}
    check_distinct([*sizes, *sorted(folders)])
    if len(folders) > limits.files:
        raise DataError(f"workspace of {len(folders)} folders; at most {limits.files} are accepted")


def check_count(count: int, limits: WorkspaceLimits) -> None:
    """Refuse so many files.

    Raises:
        DataError: there are too many.
    """
    if count > limits.files:
        raise DataError(f"workspace of {count} files; at most {limits.files} are accepted")


def check_size(name: str, size: int, total: int, limits: WorkspaceLimits) -> None:
    """Refuse a file of `size` bytes, with which there are `total` in the workspace.

    Raises:
        DataError: either is too much.
    """
    if size > limits.file_kb << 10:
        raise DataError(f"file {short(name)}: is larger than {limits.file_kb} KB; leave it out")
    if total > limits.total_mb << 20:
        raise DataError(f"file {short(name)}: with it, the workspace is larger than {limits.total_mb} MB")


def _checked_path(name: str, limits: WorkspaceLimits) -> PurePosixPath:
    path = path_of(name)
    if len(path.parts) > limits.depth:
        raise DataError(f"file {name!r}: is nested deeper than {limits.depth} levels")
    if is_project_file(path):
        raise DataError(
            f"file {name!r}: is a project file of ast-grep, which can name native code to load; leave it out"
        )
    return path
