"""The record of an exported file, `<name>.meta.json` beside it: what its rows were made of.

A file of training data leaves the folders of artifacts, and may lie anywhere; without this record, nobody could say later
what an adapter that was trained on it stands on. Not here: the rows (`runtime.exporting`).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graftline.core.clock import Clock
from graftline.core.errors import RecordError
from graftline.core.hashing import code_version, sha256_file
from graftline.core.record import ArtifactRecord, FileSum, write_atomically

KIND = "export"
_SUFFIX = ".meta.json"


def record_path(file: Path) -> Path:
    """Return where the record of an exported file is."""
    return file.with_name(file.name + _SUFFIX)


def is_exported(path: Path) -> bool:
    """Return whether `path` is an exported file, or the record of one."""
    return path.name.endswith(_SUFFIX) or record_path(path).is_file()


def exported_files(folder: Path) -> list[Path]:
    """Return the exported files below `folder` that have records, whether they are still there or not."""
    return sorted(path.with_name(path.name.removesuffix(_SUFFIX)) for path in folder.rglob(f"[!.]*{_SUFFIX}"))


def write_export_record(
    file: Path, inputs: Mapping[str, str], config: Mapping[str, Any], counts: Mapping[str, int], clock: Clock
) -> ArtifactRecord:
    """Write the record of `file`, which is there already, and return it."""
    record = ArtifactRecord(
        kind=KIND,
        name=file.name,
        inputs=dict(inputs),
        config=dict(config),
        code_version=code_version("graftline.pipeline.exporting"),
        files={file.name: FileSum(sha256=sha256_file(file), size_bytes=file.stat().st_size)},
        counts=dict(counts),
        written_at=clock().isoformat(),
    ).with_identity()
    write_atomically(record_path(file), record.model_dump_json(indent=2) + "\n")
    return record


def export_record(file: Path) -> ArtifactRecord:
    """Return the record of an exported file, without looking at the file.

    Raises:
        RecordError: there is none, or it is not a record, or its identity is not that of its content.
    """
    path = record_path(file)
    try:
        record = ArtifactRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise RecordError(
            f"{file}: has no record {path.name} beside it; write it again by `graftline trajectories export`"
        ) from None
    except (ValidationError, OSError) as error:
        cause = str(error).partition("\n")[0]
        raise RecordError(f"{path}: is not a record ({cause}); export the file again") from None
    if record.kind != KIND or record.identity != record.compute_identity():
        raise RecordError(f"{path}: is not the record of an export, or was altered; export the file again")
    return record


def export_fault(file: Path, record: ArtifactRecord) -> str:
    """Return what is wrong with an exported file; empty where it is what its record says."""
    if not file.is_file():
        return "is missing"
    found = FileSum(sha256=sha256_file(file), size_bytes=file.stat().st_size)
    return "" if record.files.get(file.name) == found else "was altered after it was written"
