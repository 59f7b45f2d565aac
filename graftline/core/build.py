"""How stored artifacts are made: a folder of files with a record, which is written last.

Writing goes to a partial folder beside the artifact; when everything in it is on disk, record included, it takes the
artifact's place by renaming. A killed writer leaves a partial folder: one that is complete is adopted by the next build of
the same request, any other is handed to it, so that it may go on where the first one stopped.
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graftline.core.clock import Clock, utc_now
from graftline.core.errors import GraftlineError, RecordError
from graftline.core.hashing import canonical_json, digest
from graftline.core.record import (
    FILES_AT_ONCE,
    RECORD_NAME,
    ArtifactRecord,
    checksum_files,
    find_fault,
    list_files,
    load_record,
    make_record,
    sync,
    write_atomically,
)

logger = logging.getLogger(__name__)

UNFINISHED = "unfinished"
"""Fact that says what is still to be done of an artifact: whatever its request, it is made again by the next build. What is made of it is
not, as long as its files stay the same."""


@dataclass(frozen=True)
class Request:
    """What an artifact is to be made from; equal requests have equal artifacts."""

    kind: str
    name: str
    code_version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return the digest of the whole request, code version included."""
        return digest([self.kind, self.name, self.code_version, dict(self.inputs), dict(self.config)])

    def difference(self, record: ArtifactRecord) -> str:
        """Return why `record` does not answer this request, in words; empty when it does."""
        if record.kind != self.kind or record.name != self.name:
            return f"holds {record.kind} {record.name!r}"
        changes = [
            *(["code"] if record.code_version != self.code_version else []),
            *(f"input {key}" for key in _compare_keys(record.inputs, self.inputs)),
            *(f"config {key}" for key in _compare_keys(record.config, self.config)),
        ]
        if changes:
            return ", ".join(changes) + " changed"
        return f"unfinished: {record.facts[UNFINISHED]}" if UNFINISHED in record.facts else ""


@dataclass(frozen=True)
class Contents:
    """What a build has to say about the files it wrote."""

    counts: dict[str, int]
    contract: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the record of this kind adds."""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Built:
    """The outcome of `build`."""

    folder: Path
    record: ArtifactRecord
    reason: str
    """Why it was made now, e.g. `config seed changed`; empty when the stored artifact was still right."""

    @property
    def is_fresh(self) -> bool:
        """Whether the artifact was made by this call."""
        return bool(self.reason)


Publish = Callable[[Path, ArtifactRecord], None]
"""Called with an artifact that is complete, in its partial folder, before it takes its place."""


def build(
    folder: Path,
    request: Request,
    make: Callable[[Path], Contents],
    clock: Clock = utc_now,
    before_publish: Publish = lambda partial, record: None,
) -> Built:
    """Return the artifact of `request` in `folder`, made by `make` unless it is there already.

    `make` gets a partial folder, which holds what a killed build of the very same request had written to it, and
    leaves there exactly the files of the artifact; names that start with "." are working files and are removed.
    The old artifact stays readable until the new one is complete.

    Raises:
        RecordError: `folder` holds files without a record, which nothing of ours leaves behind.
    """
    with lock_folder(folder.parent):
        partial, old = folder.with_name(f".{folder.name}.partial-{request.digest()[:12]}"), _old(folder)
        if (partial / RECORD_NAME).exists() and not _find_reason(partial, request):
            _publish(partial, folder)  # a writer was killed after it wrote the record
        if not folder.exists() and old.exists():
            old.rename(folder)  # a writer was killed between moving the old one away and putting the new one in place
        reason = _find_reason(folder, request)
        for path in (*folder.parent.glob(f".{folder.name}.partial-*"), old):
            if not reason or path != partial:
                shutil.rmtree(path, ignore_errors=True)
        if reason:
            contents = _make_contents(make, partial, folder)
            record = _write_record(partial, request, contents, clock)
            before_publish(partial, record)
            _publish(partial, folder)
            # those with a dot are parts of the others: up to a hundred, which the record has
            totals = ", ".join(f"{name} {count}" for name, count in record.counts.items() if "." not in name)
            logger.info("%s %s: made (%s): %s", request.kind, request.name, reason, totals)
        return Built(folder, record if reason else load_record(folder), reason)


def put_in_place(folder: Path, record: ArtifactRecord, fill: Callable[[Path], None]) -> None:
    """Replace what is in `folder` by the artifact of `record`; `fill` writes its files to a partial folder.

    That folder holds what a killed call for the same record left; `fill` completes it.

    Raises:
        RecordError: what `fill` wrote are not the files of the record.
    """
    with lock_folder(folder.parent):
        partial = folder.with_name(f".{folder.name}.partial-{record.identity[:12]}-fetched")
        partial.mkdir(parents=True, exist_ok=True)
        (partial / RECORD_NAME).unlink(missing_ok=True)
        fill(partial)
        if fault := find_fault(partial, record):
            raise RecordError(f"{folder}: {fault} while it was fetched; run again")
        for path in list_files(partial):
            sync(path)
        write_atomically(partial / RECORD_NAME, record.model_dump_json(indent=2) + "\n")
        _publish(partial, folder)


def _compare_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    # as JSON: a tuple is the list it is stored as, True is not 1, and None is not a missing key
    old, new = ({key: canonical_json(value) for key, value in side.items()} for side in (before, after))
    return [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]


@contextmanager
def lock_folder(folder: Path, busy: GraftlineError | None = None) -> Iterator[None]:
    """Wait until no other process has `folder` locked, and lock it: two that make one artifact would write into one another.

    With `busy`, that is raised where another process has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
        except BlockingIOError:
            assert busy is not None  # without it, the lock is waited for
            raise busy from None
        yield
    finally:
        os.close(descriptor)


def _find_reason(folder: Path, request: Request) -> str:
    """Return why the artifact of `request` has to be made; empty where `folder` holds it."""
    if not folder.exists():
        return "not there yet"
    if not (folder / RECORD_NAME).exists() and list_files(folder):
        raise RecordError(
            f"{folder}: holds files but no {RECORD_NAME}, so they may be anyone's; move or delete the folder"
        )
    try:
        record = load_record(folder)
    except RecordError as error:
        return f"unreadable record: {error}"
    return request.difference(record) or find_fault(folder, record)


def _make_contents(make: Callable[[Path], Contents], partial: Path, folder: Path) -> Contents:
    partial.mkdir(parents=True, exist_ok=True)
    (partial / RECORD_NAME).unlink(missing_ok=True)
    try:
        contents = make(partial)
    except GraftlineError as error:
        if str(partial) not in str(error):
            raise
        # people look for the fault in the final folder
        raise type(error)(str(error).replace(str(partial), str(folder))) from error
    for path in sorted(partial.rglob(".*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # what was in a folder went with it
    return contents


def _write_record(partial: Path, request: Request, contents: Contents, clock: Clock) -> ArtifactRecord:
    files = list_files(partial)
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        syncs = threads.map(sync, files)  # the disk works while the sums are computed
        sums = checksum_files(partial, [path.relative_to(partial).as_posix() for path in files])
        list(syncs)
    record = make_record(
        {
            "kind": request.kind,
            "name": request.name,
            "inputs": dict(request.inputs),
            "config": json.loads(canonical_json(dict(request.config))),
            "code_version": request.code_version,
            "files": sums,
            "counts": contents.counts,
            "written_at": clock().isoformat(),
            "facts": dict(contents.facts),
            **contents.contract,
        }
    ).with_identity()
    write_atomically(partial / RECORD_NAME, record.model_dump_json(indent=2) + "\n")
    sync(partial)
    return record


def _publish(partial: Path, folder: Path) -> None:
    old = _old(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")
