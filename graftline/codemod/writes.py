"""Writing to many files of somebody's repository, all of them or none, and taking it back.

Before the first file is replaced, a journal with the text of every file as it was is on disk, so that an interruption,
a full disk or a killed process leaves nothing that cannot be undone. Journals lie in the state folder of the user
(`$XDG_STATE_HOME`, else `~/.local/state`), not in the repository. Undoing never overwrites what somebody changed
afterwards. Of two that write at once one waits, and then finds what the other changed.
"""

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.codemod.source_files import partial_path, replace_file
from graftline.core.clock import Clock, utc_now
from graftline.core.errors import DataError, RecordError
from graftline.core.hashing import sha256_bytes
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.record import sync

MAX_JOURNALS = 50
"""The oldest are deleted when another write begins."""
RECORDED = ".recorded"
"""In place of the ending of a journal: where the run that wrote it is recorded (`agent.record`)."""
_TIME = "%Y%m%dT%H%M%S%z"


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A file, what it holds, and what it shall hold; both UTF-8."""

    path: Path
    before: bytes
    after: bytes


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    """Absolute, without symbolic links."""
    before: str
    after_sha256: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What undoing a write came to."""

    at: datetime
    """When the write began."""
    restored: tuple[Path, ...]
    """Files that are again as they were."""
    changed_since: tuple[Path, ...]
    """Files that somebody changed after the write, or removed; left alone."""
    journal: Path | None
    """Where the earlier texts of those are; None where there are none."""


def default_journals() -> Path:
    """Return the folder of the journals of this user."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "graftline" / "writes"


def write_files(writes: Sequence[FileWrite], journals: Path, clock: Clock = utc_now) -> Path | None:
    """Do all `writes`, or none, and return their journal, None where there is nothing to write.

    DataError, and every file as it was, where one cannot be written or was changed meanwhile.
    """
    if not writes:
        return None
    with _lock(journals):
        try:
            journal = _write_journal(writes, journals, clock())
        except OSError as error:
            raise _refuse_journals(journals, error) from error
        for write in writes:
            try:
                replace_file(write.path, write.after, write.before)
            except BaseException as error:  # an interruption too
                try:
                    _restore(journal)
                except (OSError, DataError) as fault:
                    raise DataError(
                        f"{write.path}: cannot be written, and not all files could be made what they were ({fault});"
                        f" `graftline undo` goes on, the texts before are in {journal}"
                    ) from error
                if isinstance(error, OSError):
                    reason = f"{write.path}: cannot be written ({error.strerror})"
                    raise DataError(f"{reason}; nothing was changed") from error
                raise
    return journal


def undo_write(
    below: Path, journals: Path, within: Path | None = None, mark: Callable[[Path], object] = lambda journal: None
) -> Undone:
    """Take back the newest write that changed a file at or below `below`, in all its files.

    `mark` is called with the journal that `write_files` returned when the files are as they were and the journal is
    still there: where that is interrupted or fails, the next undo does both again.

    DataError if there is no such write, or it changed files that are not below `within`; RecordError if a journal is
    damaged.
    """
    refusal = DataError(f"{below}: nothing was written there that could be taken back; expected an earlier `--write`")
    if not journals.is_dir():
        raise refusal
    folder, top = below.resolve(), within.resolve() if within else None
    with _lock(journals):
        for path in sorted(journals.glob("*.jsonl"), reverse=True):
            try:
                paths = [Path(line.path) for line in read_lines(path, _Line)]
            except ValidationError:
                raise RecordError(f"{path}: is no journal of writes that this version reads; move it away") from None
            if not any(file.is_relative_to(folder) for file in paths):
                continue
            if top and not all(file.resolve().is_relative_to(top) for file in paths):
                raise DataError(
                    f"{below}: the newest write there changed files that are not below {top}; undo it from there"
                )
            return _restore(path, mark)
    raise refusal


def _refuse_journals(journals: Path, error: OSError) -> DataError:
    reason = f"{journals}: no journal can be written there ({error.strerror})"
    return DataError(f"{reason}; nothing was changed; name another state folder in XDG_STATE_HOME")


@contextmanager
def _lock(journals: Path) -> Iterator[None]:
    """Wait until nobody else writes or undoes; a process that is killed gives the lock up."""
    with ExitStack() as stack:
        try:
            journals.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(journals / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # not every network folder can be locked
        except OSError as error:
            raise _refuse_journals(journals, error) from error
        yield


def _write_journal(writes: Sequence[FileWrite], journals: Path, now: datetime) -> Path:
    for pattern in ("*.jsonl", "*.left", f"*{RECORDED}"):  # those that were undone in part, too
        for old in sorted(journals.glob(pattern))[: 1 - MAX_JOURNALS]:
            old.unlink(missing_ok=True)
    time = f"{now:{_TIME}}"
    number = max((int(path.name.split("-")[1]) for path in journals.glob(f"{time}-*")), default=-1) + 1
    path = journals / f"{time}-{number:04}-{os.getpid()}.jsonl"
    partial = path.with_suffix(".partial")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    lines = (
        _Line(path=str(write.path.resolve()), before=write.before.decode(), after_sha256=sha256_bytes(write.after))
        for write in writes
    )
    try:
        write_lines(partial, lines)
        sync(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    sync(journals)
    return path


def _restore(journal: Path, mark: Callable[[Path], object] = lambda journal: None) -> Undone:
    """Make the files of `journal` what they were, but for those that somebody changed since."""
    restored, changed = list[Path](), list[Path]()
    process = journal.stem.rpartition("-")[2]
    for line in read_lines(journal, _Line):
        path, before, content = Path(line.path), line.before.encode(), None
        with suppress(OSError):  # of a process that was killed while it wrote this file
            partial_path(path, process).unlink(missing_ok=True)
        with suppress(OSError):
            content = path.read_bytes()
        if content == before:
            continue
        if content is None or sha256_bytes(content) != line.after_sha256:
            changed.append(path)
            continue
        replace_file(path, before, content)
        restored.append(path)
    mark(journal)
    at = datetime.strptime(journal.name.partition("-")[0], _TIME)
    unfinished = journal.with_suffix(".left") if changed else None
    if unfinished is None:
        journal.unlink()
    else:
        journal.replace(unfinished)
    return Undone(at, tuple(restored), tuple(changed), unfinished)
