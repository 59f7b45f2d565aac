"""Stored artefacts: a folder of files with a record, `_meta.json`, written last.

Writing goes to a partial folder beside the artefact; when everything in it is on disk, record included, it takes
the artefact's place by renaming. A reader refuses a folder without a record, or whose files are not the recorded
ones. A killed writer leaves a partial folder: one that is complete is adopted by the next build of the same request,
any other is handed to it, so that it may go on where the first one stopped.
"""

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from graftline.clock import Clock, utc_now
from graftline.errors import GraftlineError, RecordError
from graftline.hashing import canonical_json, digest, sha256_file

logger = logging.getLogger(__name__)

RECORD_NAME = "_meta.json"
_FILES_AT_ONCE = 4


class FileSum(BaseModel):
    """Size and checksum of one file of an artefact."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class Record(BaseModel):
    """What an artefact is, from what and how it was made, and the sums by which it is recognised."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    kind: str
    """The stage that made it, e.g. `splits`."""
    name: str
    """Which one of its kind, e.g. `python/train`."""
    inputs: dict[str, str]
    """Identity of every artefact it was made from, by name."""
    config: dict[str, Any]
    """The resolved configuration, tool versions included."""
    code_version: str
    """Digest of the code that made it; not part of the identity, so that equal output stays equal."""
    files: dict[str, FileSum]
    """By path relative to the artefact's folder."""
    counts: dict[str, int]
    """Rows by what became of them; drops are `dropped.<reason>`."""
    written_at: str
    """ISO 8601, UTC; not part of the identity."""
    identity: str = ""
    """Digest of everything above but code version and time."""

    def identified(self) -> Self:
        """Return the record with its identity filled in."""
        return self.model_copy(update={"identity": self.computed_identity()})

    def computed_identity(self) -> str:
        """Return the digest that `identity` has to be."""
        left_out = {"code_version", "written_at", "downloaded_at", "identity"}
        return digest(self.model_dump(mode="json", exclude=left_out))


class DatasetRecord(Record):
    """The record of a dataset: also where it came from and on what terms."""

    source: str = Field(min_length=1)
    """Name of the dataset."""
    version: str = Field(min_length=1)
    """Revision of its home: a version, a commit or a checksum."""
    license: str = Field(min_length=1)
    """SPDX expression of the whole; single rows may carry their own."""
    downloaded_at: datetime
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the archive; of the sorted file checksums where there are several files."""
    num_records: int = Field(ge=0)

    def contract(self) -> dict[str, Any]:
        """Return where the dataset came from and on what terms."""
        return self.model_dump(mode="json", include=set(DatasetRecord.model_fields) - set(Record.model_fields))


class RawRecord(DatasetRecord):
    """The record of raw files."""

    kind: Literal["raw"]


class NormalizedRecord(DatasetRecord):
    """The record of the edits of a dataset."""

    kind: Literal["normalized"]
    licences: dict[str, int]
    """Edits and labels by the SPDX identifier of their rows."""
    tokenizer: str = Field(min_length=1)
    """By which lengths are counted."""


_RECORDS: Mapping[str, type[Record]] = {"raw": RawRecord, "normalized": NormalizedRecord}


@dataclass(frozen=True)
class Request:
    """What an artefact is to be made from; equal requests have equal artefacts."""

    kind: str
    name: str
    code_version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)

    def digest(self) -> str:
        """Return the digest of the whole request, code version included."""
        return digest([self.kind, self.name, self.code_version, dict(self.inputs), dict(self.config)])

    def difference(self, record: Record) -> str:
        """Return why `record` does not answer this request, in words; empty when it does."""
        if record.kind != self.kind or record.name != self.name:
            return f"holds {record.kind} {record.name!r}"
        changed = [
            *(["code"] if record.code_version != self.code_version else []),
            *(f"input {key}" for key in _differing(record.inputs, self.inputs)),
            *(f"config {key}" for key in _differing(record.config, self.config)),
        ]
        return ", ".join(changed) + " changed" if changed else ""


def _differing(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    # as JSON: a tuple is the list it is stored as, True is not 1, and None is not a missing key
    before, now = ({key: canonical_json(value) for key, value in side.items()} for side in (stored, wanted))
    return [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]


@dataclass(frozen=True)
class Contents:
    """What a build has to say about the files it wrote."""

    counts: dict[str, int]
    contract: Mapping[str, Any] = field(default_factory=dict)
    """The fields that the record of this kind adds."""


@dataclass(frozen=True)
class Built:
    """The outcome of `build`."""

    folder: Path
    record: Record
    reason: str
    """Why it was made now, e.g. `config seed changed`; empty when the stored artefact was still right."""

    @property
    def is_fresh(self) -> bool:
        """Whether the artefact was made by this call."""
        return bool(self.reason)


Placing = Callable[[Path, Record], None]
"""Called with an artefact that is complete, in its partial folder, before it takes its place."""


def build(
    folder: Path,
    request: Request,
    make: Callable[[Path], Contents],
    clock: Clock = utc_now,
    placing: Placing = lambda partial, record: None,
) -> Built:
    """Return the artefact of `request` in `folder`, made by `make` unless it is there already.

    `make` gets a partial folder, which holds what a killed build of the very same request had written to it, and
    leaves there exactly the files of the artefact; names that start with "." are working files and are dropped.
    The old artefact stays readable until the new one is complete.

    Raises:
        RecordError: `folder` holds files without a record, which nothing of ours leaves behind.
    """
    with _locked(folder.parent):
        partial = folder.with_name(f".{folder.name}.partial-{request.digest()[:12]}")
        _adopt(folder, partial, request)
        if not folder.exists() and _old(folder).exists():
            _old(folder).rename(folder)  # a writer was killed between taking it away and putting the new one in place
        reason = _why(folder, request)
        _remove_partials(folder, keep=partial if reason else None)
        record = _made(folder, partial, request, make, clock, placing) if reason else load_record(folder)
    if reason:
        logger.info("%s %s: made (%s), %s", request.kind, request.name, reason, record.counts)
    return Built(folder, record, reason)


def _made(
    folder: Path,
    partial: Path,
    request: Request,
    make: Callable[[Path], Contents],
    clock: Clock,
    placing: Placing,
) -> Record:
    partial.mkdir(parents=True, exist_ok=True)
    (partial / RECORD_NAME).unlink(missing_ok=True)
    try:
        contents = make(partial)
    except GraftlineError as error:
        if str(partial) not in str(error):
            raise
        # what is wrong is told by the place where people would look for it
        raise type(error)(str(error).replace(str(partial), str(folder))) from error
    for path in sorted(partial.rglob(".*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)  # what was in a folder went with it
    files = _files(partial)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
        # the disk works while the sums are made
        synced = threads.map(_sync, files)
        sums = _sums(partial, [path.relative_to(partial).as_posix() for path in files])
        list(synced)
    record = _parsed(
        {
            "kind": request.kind,
            "name": request.name,
            "inputs": dict(request.inputs),
            "config": json.loads(canonical_json(dict(request.config))),
            "code_version": request.code_version,
            "files": sums,
            "counts": contents.counts,
            "written_at": clock().isoformat(),
            **contents.contract,
        }
    ).identified()
    write_atomically(partial / RECORD_NAME, record.model_dump_json(indent=2) + "\n")
    _sync(partial)
    placing(partial, record)
    _take_place(partial, folder)
    return record


def put_in_place(folder: Path, record: Record, fill: Callable[[Path], None]) -> None:
    """Have the artefact of `record` in `folder`, instead of what is there; `fill` writes its files to a partial folder.

    That folder holds what a killed call for the same record left, and is the caller's to complete.

    Raises:
        RecordError: what `fill` wrote are not the files of the record.
    """
    with _locked(folder.parent):
        partial = folder.with_name(f".{folder.name}.partial-{record.identity[:12]}-fetched")
        partial.mkdir(parents=True, exist_ok=True)
        (partial / RECORD_NAME).unlink(missing_ok=True)
        fill(partial)
        if fault := _fault(partial, record):
            raise RecordError(f"{folder}: {fault} while it was fetched; run again")
        for path in _files(partial):
            _sync(path)
        write_atomically(partial / RECORD_NAME, record.model_dump_json(indent=2) + "\n")
        _take_place(partial, folder)


def parse_record(content: bytes, where: str) -> Record:
    """Return the record that `content` is, as a file of ours has it.

    Raises:
        RecordError: it is none, or its identity is not that of its content; the message begins with `where`.
    """
    try:
        record = _parsed(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{where}: is not a record ({_first_line(error)}); materialise its asset again") from None
    if record.identity != record.computed_identity():
        raise RecordError(f"{where}: identity is not that of its content; materialise its asset again")
    return record


def load_record(folder: Path) -> Record:
    """Return the record of the artefact in `folder`, without looking at its files.

    Raises:
        RecordError: there is none, or it is not a record, or its identity is not that of its content.
    """
    path = folder / RECORD_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(f"{folder}: has no {RECORD_NAME}; materialise the asset that writes it") from None
    except OSError as error:
        raise RecordError(f"{path}: is not a record ({_first_line(error)}); materialise its asset again") from None
    return parse_record(content, str(path))


def verified(folder: Path, kind: str) -> Record:
    """Return the record of the artefact in `folder` after checking kind, and every file's size and checksum.

    Raises:
        RecordError: as `load_record`, or the artefact is of another kind, or a file is missing, altered or extra.
    """
    record = load_record(folder)
    if record.kind != kind:
        raise RecordError(f"{folder}: holds {record.kind!r}, but {kind!r} was asked for")
    fault = _fault(folder, record)
    if fault:
        raise RecordError(f"{folder}: {fault}; materialise its asset again")
    return record


def write_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` as UTF-8, whole or not at all, even when the machine stops in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    with partial.open("w", encoding="utf-8", newline="") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def _parsed(values: Any) -> Record:
    kind = values.get("kind") if isinstance(values, dict) else None
    return _RECORDS.get(kind if isinstance(kind, str) else "", Record).model_validate(values)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait until no other process builds in `folder`: two that make one artefact would write into one another."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _adopt(folder: Path, partial: Path, request: Request) -> None:
    # a writer killed after its record was written, before or while its folder took its place
    if (partial / RECORD_NAME).exists() and not _why(partial, request):
        _take_place(partial, folder)


def _why(folder: Path, request: Request) -> str:
    if not folder.exists():
        return "not there yet"
    if not (folder / RECORD_NAME).exists() and _files(folder):
        raise RecordError(
            f"{folder}: holds files but no {RECORD_NAME}, so they may be anyone's; move or delete the folder"
        )
    try:
        record = load_record(folder)
    except RecordError as error:
        return f"unreadable record: {error}"
    return request.difference(record) or _fault(folder, record)


def _fault(folder: Path, record: Record) -> str:
    present = {path.relative_to(folder).as_posix() for path in _files(folder)}
    if missing := sorted(record.files.keys() - present):
        return f"file {missing[0]!r} is missing"
    if extra := sorted(present - record.files.keys()):
        return f"file {extra[0]!r} is not in the record"
    found = _sums(folder, record.files)
    altered = [name for name, expected in record.files.items() if found[name] != expected]
    return f"file {altered[0]!r} was altered after it was written" if altered else ""


def _files(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != RECORD_NAME)
    return sorted(path for path in paths if not path.name.startswith("."))


def _sums(folder: Path, names: Iterable[str]) -> dict[str, FileSum]:
    def sum_of(name: str) -> FileSum:
        return FileSum(sha256=sha256_file(folder / name), size_bytes=(folder / name).stat().st_size)

    ordered = list(names)
    # the digest of a large file is made outside the interpreter's lock
    with ThreadPoolExecutor(_FILES_AT_ONCE) as threads:
        return dict(zip(ordered, threads.map(sum_of, ordered), strict=True))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_place(partial: Path, folder: Path) -> None:
    old = _old(folder)
    shutil.rmtree(old, ignore_errors=True)
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _remove_partials(folder: Path, keep: Path | None = None) -> None:
    for path in (*folder.parent.glob(f".{folder.name}.partial-*"), _old(folder)):
        if path != keep:
            shutil.rmtree(path, ignore_errors=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
