"""Whether what is stored of datasets is what its records say, and what the catalog pins.

Not here: whether it is up to date with the configuration and the code, which the stages find out by themselves.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from graftline.core.download import pin_fault
from graftline.core.errors import RecordError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, DatasetRecord, load_record, load_verified
from graftline.datasets.catalog import Catalog, Dataset, DatasetFile
from graftline.datasets.formats import decompress_gzip
from graftline.datasets.sources.base import entries
from graftline.datasets.splits import ASSIGNED
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.dataset_views.listing import datasets_named, partitions_named
from graftline.pipeline.lineage import part_identity

_COMMANDS = {"raw": "fetch", "normalized": "build"}
_Check = Callable[[], tuple[ArtifactRecord, str]]
"""Returns a record, and of sound raw files how far the pins of the catalog bear them out."""


def verify(paths: Paths, catalog: Catalog, names: Sequence[str]) -> dict[str, Any]:
    """Read every stored file of the datasets called `names`, or of those in use, of the division, of changes and of the splits.

    Returns `findings`, each with the `state` of an artifact (`sound`, `faulty` or `missing`) and its `detail`, and the
    `faults` among them: what is not stored is one where the dataset is named.
    """
    checks = _artifacts(paths, catalog, datasets_named(catalog, names))
    findings = [_finding(stage, name, folder, check) for stage, name, folder, check in checks]
    faults = [finding["detail"] for finding in findings if finding["state"] == "faulty"]
    missing = [(finding["stage"], finding["name"]) for finding in findings if finding["state"] == "missing"]
    faults += [
        f"{stage} {name}: is not stored; run 'graftline data {_COMMANDS[stage]} {name}'"
        for stage, name in missing
        if name in names
    ]
    if len(missing) == len(findings) and not faults:
        raise RecordError(f"{paths.data}: holds no artifact of a dataset; run 'graftline data fetch' first")
    return {"findings": findings, "faults": faults}


def verification_table(findings: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per artifact that is sound."""
    rows = [
        (finding["stage"], finding["name"], "sound", f"{finding['files']:,}", decimal(finding["size_bytes"]), finding["detail"])
        for finding in findings
        if finding["state"] == "sound"
    ]  # fmt: skip
    return "Sound artifacts", ["stage", "name", "state", "files", "size", ""], rows


def _artifacts(paths: Paths, catalog: Catalog, names: Sequence[str]) -> Iterator[tuple[str, str, Path, _Check]]:
    for name in names:
        raw = paths.raw(name)
        yield "raw", name, raw, partial(_check_raw, raw, catalog.datasets[name])
    for name in names:
        if not catalog.datasets[name].is_evaluation:
            folder = paths.normalized(name)
            yield "normalized", name, folder, partial(_check_derived, folder, "normalized", {"raw": paths.raw(name)})
    inputs = {name: paths.normalized(name) for name in catalog.sources}
    yield "division", "all", paths.division, partial(_check_derived, paths.division, "division", inputs)
    changes = paths.repository_changes
    check = partial(_check_derived, changes, "repository_changes", {"division": paths.division}, ASSIGNED)
    yield "repository_changes", "all", changes, check
    for language, split in partitions_named(catalog, None, None):
        folder = paths.partition("processed", language, split)
        check = partial(_check_derived, folder, "splits", {"division": paths.division}, f"{language}.parquet")
        yield "splits", f"{language}/{split}", folder, check


def _finding(stage: str, name: str, folder: Path, check: _Check) -> dict[str, Any]:
    state, detail, files, size_bytes = "missing", "", 0, 0
    if folder.exists():
        try:
            record, detail = check()
        except RecordError as error:
            state, detail = "faulty", str(error)
        else:
            state, files = "sound", len(record.files)
            size_bytes = sum(file.size_bytes for file in record.files.values())
    return {
        "stage": stage,
        "name": name,
        "state": state,
        "detail": detail,
        "files": files,
        "size_bytes": size_bytes,
    }


def _check_derived(folder: Path, kind: str, inputs: Mapping[str, Path], part: str = "") -> tuple[ArtifactRecord, str]:
    """Check what was made of `inputs`, or of a `part` of them, and that those that are stored are what it was made of."""
    record = load_verified(folder, kind)
    for name, source in inputs.items():
        if name not in record.inputs:
            continue
        try:
            stored = load_record(source)
        except RecordError:  # it is told of by itself
            continue
        if record.inputs[name] != (part_identity(stored, [part]) if part else stored.identity):
            raise RecordError(f"{folder}: was not made of the {name} that is stored now; make it again")
    return record, ""


def _check_raw(folder: Path, dataset: Dataset) -> tuple[ArtifactRecord, str]:
    record = load_verified(folder, "raw")
    pins = {entry.path: entry for entry in entries(dataset) if entry.sha256 or entry.size_bytes is not None}
    if not isinstance(record, DatasetRecord):
        raise RecordError(f"{folder}: has no record of a dataset; materialize its asset again")
    if dataset.keep == "wanted":
        return record, "kept in part, so not compared with pins"
    if "+mirror." in record.version:
        return record, "of a mirror, and not the pinned files"
    compared = 0
    for path in record.files:
        pin = pins.get(path) or pins.get(path.removesuffix(".gz"))
        if pin is None:
            continue
        if fault := _pin_fault(folder / path, pin, record, path):
            raise RecordError(f"{folder / path}: {fault}")
        compared += 1
    return record, f"{compared} of {len(record.files)} files as pinned"


def _pin_fault(path: Path, pin: DatasetFile, record: DatasetRecord, name: str) -> str:
    if name == pin.path:
        return pin_fault(pin, record.files[name].size_bytes, record.files[name].sha256)
    # a mirror may keep it compressed; the pin is that of what is in it
    content, size_bytes = sha256(), 0
    try:
        with path.open("rb") as stream:
            for piece in decompress_gzip(stream):
                content.update(piece)
                size_bytes += len(piece)
    except (EOFError, zlib.error) as error:
        return f"cannot be decompressed ({error}); fetch it again"
    return pin_fault(pin, size_bytes, content.hexdigest())
