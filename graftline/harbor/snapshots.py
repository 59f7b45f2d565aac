"""Contexts on the disk of this machine, unpacked once each: a folder per digest of an archive.

Several processes may use one folder at the same time; whoever is first to need a snapshot unpacks it, and others wait. What
a killed process leaves half made is never taken for a snapshot, and is removed by the next that adds one.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from graftline.core.errors import DataError, HarborError
from graftline.harbor.archive import partial_prefix, unpack
from graftline.harbor.tar_stream import ArchiveLimits

_DIGEST = re.compile(r"[0-9a-f]{64}")
_PARTIAL = re.compile(r"\.([0-9a-f]{64})\.partial-.+")


class Snapshots:
    """The snapshots below one folder, which is made when the first one is."""

    def __init__(self, folder: Path, limits: ArchiveLimits = ArchiveLimits()) -> None:  # noqa: B008 - never changes
        self._folder, self._limits = folder, limits

    def add(self, digest: str, archive: Callable[[], bytes]) -> Path:
        """Return the folder of a snapshot, unpacked from what `archive` returns unless it is there.

        Raises:
            DataError: the archive is refused, or is another one than `digest` says.
            HarborError: it cannot be written.
        """
        if (known := self.path(digest)) is not None:
            return known
        with self._alone(digest):
            if (known := self.path(digest)) is not None:
                return known
            self._remove_partials(digest)
            data = archive()
            if sha256(data).hexdigest() != digest:
                raise DataError(f"snapshot {digest}: the archive is another one; package the context again")
            unpack(data, self._folder / digest, self._limits)
        return self._folder / digest

    def path(self, digest: str) -> Path | None:
        """Return the folder of a snapshot, None where it is not there."""
        folder = self._folder / _checked(digest)
        return folder if folder.is_dir() else None

    def remove(self, digest: str) -> None:
        """Remove a snapshot; one that is not there is removed already."""
        if self.path(digest) is None:
            return
        with self._alone(digest):
            # under a name that nobody takes for a snapshot, so that none is ever seen half removed
            gone = self._folder / f"{partial_prefix(digest)}removed"
            shutil.rmtree(gone, ignore_errors=True)
            with suppress(FileNotFoundError):
                (self._folder / digest).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)

    @contextmanager
    def _alone(self, digest: str, is_waiting: bool = True) -> Iterator[None]:
        """Keep others, threads of this process among them, from adding or removing the same snapshot.

        Raises:
            BlockingIOError: somebody does so, and it is not waited for.
        """
        path = self._folder / f".{digest}.lock"
        descriptor = self._locked(path, is_waiting)
        try:
            yield
        finally:
            # nobody who waits takes a lock whose file is gone for one
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _locked(self, path: Path, is_waiting: bool) -> int:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
                    # of a lock that its holder removed meanwhile there may be a new one
                    with suppress(FileNotFoundError):
                        if os.path.samestat(os.fstat(descriptor), path.stat()):
                            return descriptor
                except BaseException:
                    os.close(descriptor)
                    raise
                os.close(descriptor)
        except BlockingIOError:
            raise
        except OSError as error:
            raise HarborError(
                f"{self._folder}: cannot be written ({error.strerror}); see to the disk that holds it"
            ) from error

    def _remove_partials(self, digest: str) -> None:
        """Remove what killed processes left, of this snapshot and of those that nobody adds at the moment."""
        for path in list(self._folder.iterdir()):
            if match := _PARTIAL.fullmatch(path.name):
                if match[1] == digest:
                    shutil.rmtree(path, ignore_errors=True)
                    continue
                with suppress(BlockingIOError), self._alone(match[1], is_waiting=False):
                    shutil.rmtree(path, ignore_errors=True)


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest[:80]!r} is no digest; expected 64 hexadecimal characters")
    return digest
