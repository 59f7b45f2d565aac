"""The sealed files of a folder into a blob store, each of them once.

What is known to be there is kept in `.uploaded.jsonl` in the folder: such a file is neither read nor asked for again
while the store lists it with its size. For all others the checksum decides, so that nothing but time is lost with the
journal. One process at a time uploads a folder; another one waits for it.
"""

import fcntl
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO

from pydantic import ValidationError

from graftline.core.blobs.base import BlobStore, blob_of
from graftline.core.config import Config
from graftline.core.errors import DataError

logger = logging.getLogger(__name__)

JOURNAL_NAME = ".uploaded.jsonl"


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What became of the sealed files of a folder, all of which are in the store."""

    sent: int
    sent_bytes: int
    kept: int
    """Files that the store held already."""


class _Sent(Config):
    """A file that is in a store, as it was when it was looked at."""

    store: str
    name: str
    size_bytes: int
    mtime_ns: int


def upload_new(
    folder: Path,
    store: BlobStore,
    below: str = "",
    is_sealed: Callable[[Path], bool] = lambda path: True,
    at_once: int = 4,
) -> Uploaded:
    """Put every sealed file below `folder` that `store` does not hold yet; names are the paths from `folder`.

    After an error or a kill, the next call goes on where this one stopped.

    Args:
        below: folder of the store that the names begin with.
        is_sealed: whether a file is never written to again. Those with a name, or in a folder, that begins with a dot
            are not, and are not asked about.
        at_once: files that are sent at the same time; of each, a bucket's client holds 100 MB in memory and more.

    Raises:
        DataError: there is no such folder, a name cannot be that of an object, or a file was altered meanwhile.
        BoundaryError: the store failed.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name the one that holds the shards")
    with _Journal.opened(folder / JOURNAL_NAME, store.label) as journal:
        listed = store.sizes(f"{below}/" if below else "")

        def sent_bytes(path: Path) -> int | None:
            name = f"{below}/{path.relative_to(folder).as_posix()}".removeprefix("/")
            state = path.stat()
            sent = _Sent(store=store.label, name=name, size_bytes=state.st_size, mtime_ns=state.st_mtime_ns)
            if listed.get(name) == state.st_size:
                if journal.has(sent):
                    return None
                if store.find(name) == blob_of(name, path):
                    journal.add(sent)
                    return None
            store.put(name, path)
            journal.add(sent)
            return state.st_size

        with ThreadPoolExecutor(at_once) as threads:
            running = [threads.submit(sent_bytes, path) for path in _sealed(folder, is_sealed)]
            try:
                results = [one.result() for one in running]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
    sizes = [size_bytes for size_bytes in results if size_bytes is not None]
    uploaded = Uploaded(len(sizes), sum(sizes), len(results) - len(sizes))
    logger.info("uploaded %s to %s: %s", folder, store.label, uploaded)
    return uploaded


def _sealed(folder: Path, is_sealed: Callable[[Path], bool]) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and path.is_file() and is_sealed(path):
            yield path


class _Journal:
    """What is known to be in one store."""

    def __init__(self, stream: IO[bytes], store: str) -> None:
        self._stream, self._lock = stream, Lock()
        self._known = {sent.name: sent for sent in _lines(stream) if sent.store == store}

    @classmethod
    @contextmanager
    def opened(cls, path: Path, store: str) -> Iterator["_Journal"]:
        """Open the journal once no other process has it open."""
        try:
            stream = path.open("a+b")
        except OSError as error:
            raise DataError(f"{path}: cannot be written to ({error.strerror}); mend its permissions") from None
        with stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield cls(stream, store)

    def has(self, sent: _Sent) -> bool:
        return self._known.get(sent.name) == sent

    def add(self, sent: _Sent) -> None:
        with self._lock:
            self._stream.write(sent.model_dump_json().encode() + b"\n")
            self._stream.flush()


def _lines(stream: IO[bytes]) -> list[_Sent]:
    """Return what `stream` says, and cut off a last line that a kill left half written."""
    stream.seek(0)
    content = stream.read()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        stream.truncate(len(whole))
    found = []
    for line in whole.splitlines():
        try:
            found.append(_Sent.model_validate_json(line))
        except ValidationError:
            continue  # of another version
    return found
