"""The stages `division`, over all edits, and `splits`: the edits of one language and split."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents
from graftline.core.errors import RecordError
from graftline.core.parquet import ParquetError
from graftline.core.record import ArtifactRecord, checksum_files, load_record
from graftline.datasets.near_texts import SIGNATURES, NearTexts
from graftline.datasets.splits import (
    ASSIGNED,
    NOTHING_ASSIGNED,
    Assigned,
    Split,
    read_assigned,
    read_splits,
    write_assignments,
    write_split,
)
from graftline.pipeline.lineage import Lineage, request_of

logger = logging.getLogger(__name__)

MemoryT = TypeVar("MemoryT")

_REMEDY = "it says what was held out before. Restore the folder, or remove it to assign all edits anew"


def splits(lineage: Lineage, language: Language, split: Split) -> Built:
    """Write the edits of one language and split."""
    folder = lineage.paths.division
    division = lineage.read_input(folder, "division")
    inputs = {"division": lineage.read_part(folder, division, f"{language}.parquet")}
    folders = {name: lineage.paths.normalized(name) for name in lineage.catalog.sources}
    records = {name: lineage.read_input(normalized, "normalized") for name, normalized in folders.items()}
    check_division(lineage, division, records)
    for name, record in records.items():
        if names := [file for file in record.files if file.startswith(f"{language}-")]:
            inputs[f"normalized/{name}"] = lineage.read_part(folders[name], record, *sorted(names))
    config = {"tokenizer": lineage.catalog.cleaning.tokenizer}
    request = request_of("splits", f"{language}/{split}", inputs, config)

    def make(partial: Path) -> Contents:
        return Contents(write_split(folder, folders, language, split, partial))

    return lineage.build(lineage.paths.partition("processed", language, split), request, make)


def check_division(lineage: Lineage, division: ArtifactRecord, normalized: Mapping[str, ArtifactRecord]) -> None:
    """Raise RecordError if the division is of other edits: its rows are those of the normalized files in their order."""
    if division.inputs != {name: record.identity for name, record in normalized.items()}:
        raise RecordError(
            f"{lineage.paths.division}: was made from other normalized edits; materialize its asset again"
        )


def division(lineage: Lineage) -> Built:
    """Decide which edits are kept once, and in which split each is, over all datasets together; what was assigned stays."""
    inputs = {
        name: lineage.read_input(lineage.paths.normalized(name), "normalized") for name in lineage.catalog.sources
    }
    config = {
        "splitting": lineage.catalog.splitting.model_dump(mode="json"),
        "languages": list(lineage.catalog.languages),
        "precedence": list(inputs),
    }
    request = request_of("division", "all", inputs, config)
    folders = {name: lineage.paths.normalized(name) for name in inputs}

    # here and not in `make`, which holds the lock of the folder that both artifacts are in
    changes = lineage.paths.repository_changes
    with suppress(RecordError):
        lineage.pull(changes)
    if lineage.find_record(changes) and not changes.exists():
        logger.warning(
            "the store of artifacts lost a file of the changes of repositories: edits are assigned without them"
        )

    def make(folder: Path) -> Contents:
        # an edit of a repository that has changes goes where they are
        of_changes = recall_assigned(changes) if changes.exists() else NOTHING_ASSIGNED
        near_changes = recall_near(changes, lineage.catalog.splitting.near_duplicate)
        assigned = recall_assigned(lineage.paths.division).join(of_changes)
        earlier = _read_memory(read_splits, lineage.paths.division)
        if lineage.find_record(lineage.paths.division) and not lineage.paths.division.exists():
            logger.warning(
                "the store of artifacts lost a file of the division, so all edits are assigned to splits anew"
            )
        catalog = lineage.catalog
        counts = write_assignments(
            folders, catalog.languages, catalog.splitting, folder, assigned, earlier, near_changes
        )
        return Contents(counts)

    return lineage.build(lineage.paths.division, request, make)


def recall_assigned(folder: Path) -> Assigned:
    """Return what was ever assigned, if it is as it was written.

    Raises:
        RecordError: it is not; all edits would be dealt anew, and what was held out could be trained on.
    """
    _check_memory(folder)
    return _read_memory(read_assigned, folder)


def recall_near(changes: Path, least: float) -> NearTexts:
    """Return the texts of changes that were ever assigned; raises as `recall_assigned`."""
    _check_memory(changes)
    return _read_memory(lambda folder: NearTexts.read(folder, least), changes)


def _check_memory(folder: Path) -> None:
    record = None
    with suppress(RecordError):
        record = load_record(folder)
    if record is not None:
        names = [name for name in (ASSIGNED, SIGNATURES) if name in record.files] or [*record.files]
        lacking = [name for name in names if not (folder / name).exists()]
        altered = lacking or [
            name for name, sums in checksum_files(folder, names).items() if sums != record.files[name]
        ]
        if altered:
            raise RecordError(f"{folder / altered[0]}: is {'missing' if lacking else 'altered'}; {_REMEDY}")


def _read_memory(read: Callable[[Path], MemoryT], folder: Path) -> MemoryT:
    try:
        return read(folder)
    except ParquetError as error:
        raise RecordError(f"{error}; {_REMEDY}") from None
