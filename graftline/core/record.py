"""The record of a stored artifact, `_meta.json`: what it is, from what and how it was made, and the sums of its files.

A reader refuses a folder without a record, or whose files are not the recorded ones. Not here: how artifacts are made
(`graftline.core.build`).
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from graftline.core.errors import RecordError
from graftline.core.hashing import digest, sha256_file

RECORD_NAME = "_meta.json"
FILES_AT_ONCE = 4
_NOT_IN_IDENTITY = {"code_version", "written_at", "downloaded_at", "facts", "identity"}
_MAX_SHOWN = 60


class FileSum(BaseModel):
    """Size and checksum of one file of an artifact."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    size_bytes: int = Field(ge=0)


class ArtifactRecord(BaseModel):
    """What an artifact is, from what and how it was made, and the sums by which it is recognized."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1, 2] = 2
    """A record of version 1, in which some names are others, is read as well, and written as it was."""
    kind: str
    """The stage that made it, e.g. `splits`."""
    name: str
    """Which one of its kind, e.g. `python/train`."""
    inputs: dict[str, str]
    """Identity of every artifact it was made from, by name."""
    config: dict[str, Any]
    """The resolved configuration, tool versions included."""
    code_version: str
    """Digest of the code that made it; not part of the identity, so that equal output stays equal."""
    files: dict[str, FileSum]
    """By path relative to the artifact's folder."""
    counts: dict[str, int]
    """Rows by what became of them; rejected ones are `dropped.<reason>`."""
    written_at: str
    """ISO 8601, UTC; not part of the identity."""
    facts: dict[str, str] = Field(default_factory=dict)
    """What shows only when it is made, such as the precision that `auto` came to; not part of the identity."""
    identity: str = ""
    """Digest of everything above but code version, time and facts."""

    @model_validator(mode="before")
    @classmethod
    def _read_names_of_1(cls, values: Any) -> Any:
        is_old = isinstance(values, dict) and values.get("schema_version") == 1
        return _rename(values, str(values.get("kind")), lambda old, new: (old, new)) if is_old else values

    @model_serializer(mode="wrap")
    def _write_names_of_1(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = serialize(self)
        return _rename(values, self.kind, lambda old, new: (new, old)) if self.schema_version == 1 else values

    def with_identity(self) -> Self:
        """Return the record with its identity filled in."""
        return self.model_copy(update={"identity": self.compute_identity()})

    def compute_identity(self) -> str:
        """Return the digest that `identity` has to be."""
        return digest(self.model_dump(mode="json", exclude=_NOT_IN_IDENTITY))


class DatasetRecord(ArtifactRecord):
    """The record of a dataset: also where it came from and on what terms."""

    source: str = Field(min_length=1)
    """Name of the dataset."""
    version: str = Field(min_length=1)
    """Revision of its source: a version, a commit or a checksum."""
    license: str = Field(min_length=1)
    """SPDX expression of the whole; single rows may carry their own."""
    downloaded_at: datetime
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the archive; of the sorted file checksums where there are several files."""
    num_records: int = Field(ge=0)

    def contract(self) -> dict[str, Any]:
        """Return where the dataset came from and on what terms."""
        return self.model_dump(mode="json", include=set(DatasetRecord.model_fields) - set(ArtifactRecord.model_fields))


class RawRecord(DatasetRecord):
    """The record of raw files."""

    kind: Literal["raw"]


class NormalizedRecord(DatasetRecord):
    """The record of the edits of a dataset."""

    kind: Literal["normalized"]
    licenses: dict[str, int]
    """Edits and labels by the SPDX identifier of their rows."""
    tokenizer: str = Field(min_length=1)
    """By which lengths are counted."""


_RECORDS: Mapping[str, type[ArtifactRecord]] = {"raw": RawRecord, "normalized": NormalizedRecord}


_RENAMED = (("", "licences", "licenses"), ("counts", "licence", "license"))
_RENAMED_IN_RAW = (("inputs", "home", "source"), ("config", "home", "url"))
"""Since version 1: which part of a record has the name, or names that hold it, what it was, and what it is."""


def _rename(values: dict[str, Any], kind: str, order: Callable[[str, str], tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a record with names from one side of `_RENAMED` in place of those from the other."""
    renamed = dict(values)
    for part, *names in (*_RENAMED, *(_RENAMED_IN_RAW if kind == "raw" else ())):
        before, after = order(*names)
        if not part:
            renamed = {after if name == before else name: value for name, value in renamed.items()}
        elif isinstance(fields := renamed.get(part), dict):
            renamed[part] = {str(name).replace(before, after): value for name, value in fields.items()}
    return renamed


def make_record(values: Any) -> ArtifactRecord:
    """Return the record of the kind that `values` name."""
    kind = values.get("kind") if isinstance(values, dict) else None
    return _RECORDS.get(kind if isinstance(kind, str) else "", ArtifactRecord).model_validate(values)


def parse_record(content: bytes, source: str) -> ArtifactRecord:
    """Return the record that a stored file holds.

    Raises:
        RecordError: it is none, or its identity is not that of its content; the message begins with `source`.
    """
    try:
        record = make_record(json.loads(content))
    except ValidationError as error:
        raise _no_record(source, _explain(error)) from None
    except (ValueError, RecursionError) as error:
        raise _no_record(source, str(error)) from None
    if record.identity != record.compute_identity():
        raise RecordError(f"{source}: identity is not that of its content; materialize its asset again")
    return record


def load_record(folder: Path) -> ArtifactRecord:
    """Return the record of the artifact in `folder` without looking at its files, as `parse_record`."""
    path = folder / RECORD_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise RecordError(
            f"{folder}: has no {RECORD_NAME}, so it was not made yet; run `graftline run`, or materialize its asset"
        ) from None
    except OSError as error:
        raise _no_record(str(path), str(error)) from None
    return parse_record(content, str(path))


def load_verified(folder: Path, kind: str) -> ArtifactRecord:
    """Return the record of the artifact in `folder` after checking kind, and every file's size and checksum.

    Raises:
        RecordError: the artifact is of another kind, a file is missing, altered or extra, or as `load_record`.
    """
    record = load_record(folder)
    if record.kind != kind:
        raise RecordError(f"{folder}: holds {record.kind!r}, but {kind!r} was asked for")
    if fault := find_fault(folder, record):
        raise RecordError(f"{folder}: {fault}; materialize its asset again")
    return record


def find_fault(folder: Path, record: ArtifactRecord) -> str:
    """Return how the files in `folder` differ from those of `record`; empty where they do not."""
    present = {path.relative_to(folder).as_posix() for path in list_files(folder)}
    if missing := sorted(record.files.keys() - present):
        return f"file {missing[0]!r} is missing"
    if extra := sorted(present - record.files.keys()):
        return f"file {extra[0]!r} is not in the record"
    sums = checksum_files(folder, record.files)
    altered = [name for name, expected in record.files.items() if sums[name] != expected]
    return f"file {altered[0]!r} was altered after it was written" if altered else ""


def list_files(folder: Path) -> list[Path]:
    """Return the files of an artifact, in order: neither its record, nor working files."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != RECORD_NAME)
    return sorted(path for path in paths if not path.name.startswith("."))


def checksum_files(folder: Path, names: Iterable[str]) -> dict[str, FileSum]:
    """Return size and checksum of files in `folder`, by name."""

    def checksum(name: str) -> tuple[str, FileSum]:
        return name, FileSum(sha256=sha256_file(folder / name), size_bytes=(folder / name).stat().st_size)

    # the digest of a large file is computed outside the interpreter's lock
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        return dict(threads.map(checksum, names))


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write `content` to `path`, text as UTF-8, whole or not at all, even when the machine stops in the middle."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    with partial.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def sync(path: Path) -> None:
    """Return once a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _no_record(source: str, reason: str) -> RecordError:
    return RecordError(f"{source}: is not a record ({reason.partition(chr(10))[0]}); materialize its asset again")


def _explain(error: ValidationError) -> str:
    """Return which field of a record is wrong, what it holds and what was expected, and how many others are wrong."""
    first, *further = error.errors(include_url=False)
    field, value = ".".join(map(str, first["loc"])), repr(first["input"])
    value = value if len(value) <= _MAX_SHOWN else value[: _MAX_SHOWN - 1] + "…"
    match first["type"]:
        case "missing":
            reason = f"field {field!r} is missing"
        case "extra_forbidden":
            reason = f"field {field!r} belongs to no record of this kind"
        case "model_type":
            reason = (f"field {field!r}: " if field else "") + f"expected an object, got {value}"
        case _:
            reason = f"field {field!r} is {value}: {first['msg'].lower()}"
    if field == "schema_version":
        reason += ", which is what this version of graftline reads"
    return f"{reason}; {len(further)} more" if further else reason
