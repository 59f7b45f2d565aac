"""A file of this machine that is there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a place beside `target` to write to; what is there in the end takes the place of `target`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.partial-{uuid4().hex}")
    try:
        yield partial
        synced(partial)
        partial.replace(target)
        synced(target.parent)
    finally:
        partial.unlink(missing_ok=True)


def synced(path: Path) -> None:
    """Have a file, or the names in a folder, on disk before going on."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
