"""Whether what is stored of datasets is what its records say, and what the catalog pins.

Not here: whether it is up to date with the configuration and the code, which the stages find out by themselves.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from graftline.core.download import pin_fault
from graftline.core.errors import RecordError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, DatasetRecord, load_record, load_verified
from graftline.datasets.catalog import Catalog, Dataset, DatasetFile
from graftline.datasets.formats import decompress_gzip
from graftline.datasets.sources.base import entries
from graftline.pipeline.dataset_views.listing import datasets_named, partitions_named
from graftline.pipeline.lineage import part_identity

State = Literal["sound", "faulty", "missing"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one artifact."""

    stage: str
    name: str
    state: State
    detail: str
    """What is wrong; of sound raw files, how far the pins of the catalog bear them out."""
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of all of them."""

    findings: list[Finding]
    faults: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for one line of JSON."""
        return asdict(self)


def verify(paths: Paths, catalog: Catalog, names: Sequence[str]) -> Verification:
    """Read every stored file of the datasets called `names`, or of those in use, of the division and of the splits.

    What is not stored is a fault where the dataset is named.

    Raises:
        ConfigError: a name is unknown.
        RecordError: nothing at all is stored.
    """
    findings = []
    for stage, name, folder, check in _artifacts(paths, catalog, datasets_named(catalog, names)):
        findings.append(_finding(stage, name, folder, check))
    faults = [finding.detail for finding in findings if finding.state == "faulty"]
    faults += [
        f"{finding.stage} {finding.name}: is not stored; run 'graftline datasets {_COMMANDS[finding.stage]} {finding.name}'"
        for finding in findings
        if finding.state == "missing" and finding.name in names
    ]
    if all(finding.state == "missing" for finding in findings) and not faults:
        raise RecordError(f"{paths.data}: holds no artifact of a dataset; run 'graftline datasets fetch' first")
    return Verification(findings, faults)


_COMMANDS = {"raw": "fetch", "normalized": "normalize"}
_Check = Callable[[], tuple[ArtifactRecord, str]]


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
    for language, split in partitions_named(catalog, None, None):
        folder = paths.partition("processed", language, split)
        yield "splits", f"{language}/{split}", folder, partial(_check_split, folder, paths, language)


def _finding(stage: str, name: str, folder: Path, check: _Check) -> Finding:
    if not folder.exists():
        return Finding(stage, name, "missing", "", 0, 0)
    try:
        record, detail = check()
    except RecordError as error:
        return Finding(stage, name, "faulty", str(error), 0, 0)
    return Finding(
        stage, name, "sound", detail, len(record.files), sum(file.size_bytes for file in record.files.values())
    )


def _check_derived(folder: Path, kind: str, inputs: dict[str, Path]) -> tuple[ArtifactRecord, str]:
    """Check what was made of `inputs`, and that those which are still stored are the ones it was made of."""
    record = load_verified(folder, kind)
    for name, source in inputs.items():
        if name in record.inputs and (stored := _identity(source)) and stored != record.inputs[name]:
            raise RecordError(f"{folder}: was not made of the {name} that is stored now; make it again")
    return record, ""


def _check_split(folder: Path, paths: Paths, language: str) -> tuple[ArtifactRecord, str]:
    """Check a split, and that it was made of the division that is stored now, as far as its language goes."""
    record = load_verified(folder, "splits")
    try:
        division = part_identity(load_record(paths.division), [f"{language}.parquet"])
    except RecordError:  # it is told of by itself
        return record, ""
    if division != record.inputs["division"]:
        raise RecordError(f"{folder}: was not made of the division that is stored now; make it again")
    return record, ""


def _identity(folder: Path) -> str:
    try:
        return load_record(folder).identity
    except RecordError:  # it is told of by itself
        return ""


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
