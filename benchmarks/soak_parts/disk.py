"""The disk that data, logs and the runs of Dagster lie on: a file system in memory of a given size, to be filled."""

import ctypes
import os
import shutil
from pathlib import Path
from typing import Self

_BLOCK = 4096
_DETACHED = 2  # as soon as nobody looks at it any more


class Disk:
    """A folder, and where the machine allows it a file system of its own. `why_not` says why it is none."""

    def __init__(self, folder: Path, size_bytes: int) -> None:
        self.folder, self.size_bytes, self.why_not = folder, size_bytes, ""
        self._filler = folder / ".filler"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"none", os.fsencode(self.folder), b"tmpfs", 0, f"size={self.size_bytes},mode=755".encode()):
            self.why_not = f"no tmpfs can be mounted ({os.strerror(ctypes.get_errno())}); run as root for a full disk"
        return self

    def __exit__(self, *_: object) -> None:
        if not self.why_not:
            ctypes.CDLL(None).umount2(os.fsencode(self.folder), _DETACHED)

    def fill(self) -> None:
        """Leave no room; a folder that is no disk of its own stays as it is."""
        if self.why_not:
            return
        with self._filler.open("wb") as stream:
            # others write at the same time: what is asked for may not be there any more, so that ever less is asked for
            while (free := shutil.disk_usage(self.folder).free) and self._allocated(stream.fileno(), free):
                pass

    @staticmethod
    def _allocated(descriptor: int, free_bytes: int) -> bool:
        """Take as much of what is free as can be had; return whether that was anything."""
        while free_bytes >= _BLOCK:
            try:
                os.posix_fallocate(descriptor, os.fstat(descriptor).st_size, free_bytes)
            except OSError:
                free_bytes //= 2
            else:
                return True
        return False

    def clear(self) -> None:
        """Give the room back."""
        self._filler.unlink(missing_ok=True)

    @property
    def used_bytes(self) -> int:
        """What lies on it, without what fills it."""
        if self.why_not:
            return sum(path.lstat().st_size for path in self.folder.rglob("*") if path.is_file())
        filler = self._filler.stat().st_size if self._filler.exists() else 0
        return shutil.disk_usage(self.folder).used - filler
