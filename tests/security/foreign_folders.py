"""Folders that others own or that are disks of their own, and one that nothing in a workspace may reach."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this; run as root")


def is_untouched(outside: Path) -> bool:
    return [path.name for path in outside.iterdir()] == ["secret"] and (outside / "secret").read_text() == "secret"


@contextmanager
def as_nobody() -> Iterator[Path]:
    """Be a user without privileges, with a folder of its own that it can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        os.setegid(NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)
            os.setegid(0)


@contextmanager
def mounted(place: Path, size_bytes: int) -> Iterator[None]:
    """Put a small disk at `place`."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(place), b"tmpfs", 0, f"size={size_bytes},mode=700".encode()):
        pytest.skip(f"no tmpfs can be mounted here ({os.strerror(ctypes.get_errno())})")
    try:
        yield
    finally:
        libc.umount2(os.fsencode(place), 2)
