"""The rows of one dataset into files of edits, labels and drops, in several processes.

Rows are dealt out in units, each of which becomes a shard per language: `<language>-<unit>.jsonl`, and
`<language>-<unit>.parquet` with the same edits in the same order. What a unit is hangs on the rows alone, so the number
of workers does not show in the files. Labels go to `labels.jsonl`, drops to `dropped.parquet`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import orjson

from graftline.astgrep.binding import Language
from graftline.core.parquet import ParquetWriter, arrow_table
from graftline.core.processes import Workers
from graftline.datasets.catalog import Cleaning, Dataset, Decontamination
from graftline.datasets.decontaminate import Evaluations
from graftline.datasets.edit import Drop, DropReason, Edit, Label
from graftline.datasets.fingerprints import key, signatures, squeezed
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.readers import source_of
from graftline.datasets.readers.base import RawRow
from graftline.datasets.tables import DROPS, NORMALIZED

UNIT_ROWS = 4096
UNIT_BYTES = 8 << 20
_BATCH_ROWS = 128  # few enough that what is made of them stays in the processor's cache

FoundT = TypeVar("FoundT", CleanEdit, Label)

Dropped = tuple[str, int, DropReason, str]
"""File, line, reason, detail."""


@dataclass(frozen=True)
class Plan:
    """What a worker has to know."""

    name: str
    dataset: Dataset
    cleaning: Cleaning
    decontamination: Decontamination
    evaluations: Evaluations
    folder: Path
    """Where the files are written."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Rows that are worked on together."""

    number: int
    rows: list[tuple[str, int, Any]]
    """File, line and content of raw rows; plain, for they cross process borders."""


@dataclass
class Refined:
    """What became of a unit, beside the edits, which are in files already."""

    rows: int
    edits: int = 0
    labels: list[bytes] = field(default_factory=list)
    """Lines of JSON, without their ends."""
    drops: list[Dropped] = field(default_factory=list)
    licences: Counter[str] = field(default_factory=Counter)
    """Of edits and labels."""


@dataclass(frozen=True)
class Normalized:
    """What was written."""

    counts: dict[str, int]
    licences: dict[str, int]
    first_drops: list[Dropped]
    """For the log; all of them are in `dropped.parquet`."""


def normalize(
    rows: Iterable[RawRow], plan: Plan, workers: int, advance: Callable[[int, int], None], logged_drops: int = 20
) -> Normalized:
    """Write what becomes of `rows` to the folder of `plan`.

    Raises:
        DataError: the raw files are not what the dataset holds.
        BoundaryError: a worker process died.
    """
    totals: Counter[str] = Counter(rows_in=0, rows=0, labels=0)
    licences: Counter[str] = Counter()
    first: list[Dropped] = []
    with (
        ParquetWriter(plan.folder / "dropped.parquet", DROPS) as dropped,
        Workers[Unit, Refined](workers, partial(_Refiner, plan), ahead=1) as pool,
    ):
        for refined in pool.map(_units(rows)):
            totals.update(rows_in=refined.rows, rows=refined.edits, labels=len(refined.labels))
            totals.update(f"dropped.{reason}" for _, _, reason, _ in refined.drops)
            licences += refined.licences
            first += refined.drops[: max(0, logged_drops - len(first))]
            dropped.append(
                dict(zip(DROPS, (plan.name, file, line, str(reason), detail), strict=True))
                for file, line, reason, detail in refined.drops
            )
            if refined.labels:
                with (plan.folder / "labels.jsonl").open("ab") as stream:
                    stream.write(b"\n".join((*refined.labels, b"")))
            advance(totals["rows_in"], 0)
    order = sorted(totals, key=lambda name: (name.startswith("dropped."), name if "." in name else ""))
    return Normalized({name: totals[name] for name in order}, dict(sorted(licences.items())), first)


def _units(rows: Iterable[RawRow]) -> Iterator[Unit]:
    unit, size = Unit(0, []), 0
    for row in rows:
        unit.rows.append((row.file, row.line, row.content))
        # a row that is no line of JSON is small: those of tables and documents
        size += len(row.content) if isinstance(row.content, bytes) else 1024
        if len(unit.rows) == UNIT_ROWS or size >= UNIT_BYTES:
            yield unit
            unit, size = Unit(unit.number + 1, []), 0
    if unit.rows:
        yield unit


class _Refiner:
    """Refines units; lives in a worker."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        source = source_of(plan.dataset.reader)
        self._ingest = Ingest(plan.name, plan.dataset, source, plan.cleaning)

    def __call__(self, unit: Unit) -> Refined:
        refined = Refined(len(unit.rows))
        with _Shards(self._plan.folder, unit.number) as shards:
            for start in range(0, len(unit.rows), _BATCH_ROWS):
                edits: list[tuple[str, int, CleanEdit]] = []
                labels: list[tuple[str, int, Label]] = []
                rows = unit.rows[start : start + _BATCH_ROWS]
                outcomes = self._ingest.outcomes([content for _, _, content in rows])
                for (file, line, _), of_row in zip(rows, outcomes, strict=True):
                    for outcome in of_row:
                        match outcome:
                            case CleanEdit():
                                edits.append((file, line, outcome))
                            case Label():
                                labels.append((file, line, outcome))
                            case Drop():
                                refined.drops.append((file, line, outcome.reason, outcome.detail))
                kept = self._uncontaminated(edits, refined)
                for label in self._uncontaminated(labels, refined):
                    refined.licences[label.licence] += 1
                    refined.labels.append(label.model_dump_json().encode())
                refined.edits += len(kept)
                refined.licences.update(found.edit.licence for found in kept)
                shards.write(kept)
        return refined

    def _uncontaminated(self, found: list[tuple[str, int, FoundT]], refined: Refined) -> list[FoundT]:
        """Return the edits or labels in `found` that are not too near to an evaluation, and drop the others."""
        evaluations, least = self._plan.evaluations, self._plan.decontamination.shared
        if evaluations.is_empty:
            return [one for _, _, one in found]
        near = evaluations.nearest([side.lower() for _, _, one in found for side in _sides(one)], least)
        kept = []
        for (file, line, one), *of_sides in zip(found, near[::2], near[1::2], strict=True):
            worst = max((share for share in of_sides if share), default=None)
            if worst is None:
                kept.append(one)
            else:
                detail = f"shares {worst[0]:.0%} with evaluation {worst[1]}"
                refined.drops.append((file, line, DropReason.CONTAMINATED, detail))
        return kept


def _sides(found: CleanEdit | Label) -> tuple[bytes, bytes]:
    if isinstance(found, Label):
        return squeezed(found.pre), squeezed(found.post or "")
    return found.pre_squeezed, found.post_squeezed


class _Shards:
    """The files of one unit, written as a whole at its end."""

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._lines: dict[Language, list[bytes]] = {}
        self._tables: dict[Language, list[Any]] = {}

    def __enter__(self) -> "_Shards":
        return self

    def __exit__(self, *_: object) -> None:
        for language, lines in self._lines.items():
            shard = self._folder / f"{language}-{self._number:05d}"
            shard.with_suffix(".jsonl").write_bytes(b"\n".join((*lines, b"")))
            # quick to write, for it is read once: the splits are what is kept small
            with ParquetWriter(shard.with_suffix(".parquet"), NORMALIZED, "lz4") as writer:
                for table in self._tables[language]:
                    writer.extend(table)

    def write(self, edits: list[CleanEdit]) -> None:
        """Add edits to the shard of their language."""
        folded = [found.pre_squeezed.lower() for found in edits]
        of_language: dict[Language, list[_Fingerprinted]] = {}
        for found, pre, signature in zip(edits, folded, signatures(folded), strict=True):
            of_language.setdefault(found.edit.language, []).append((found, pre, signature))
        for language, some in of_language.items():
            # what pydantic writes as well, in half the time; an edit that was just read has no gold action
            lines = [orjson.dumps(found.edit.__dict__) for found, _, _ in some]
            self._lines.setdefault(language, []).extend(lines)
            self._tables.setdefault(language, []).append(arrow_table(_columns(some, lines), NORMALIZED))


_Fingerprinted = tuple[CleanEdit, bytes, bytes]
"""An edit, its folded text before, and the signature of that."""


def _columns(some: list[_Fingerprinted], lines: list[bytes]) -> dict[str, list[Any]]:
    edits = [found.edit for found, _, _ in some]
    return {
        "id": [edit.id for edit in edits],
        "dataset": [edit.dataset for edit in edits],
        "instruction": [edit.instruction for edit in edits],
        "pre": [edit.pre for edit in edits],
        "post": [edit.post for edit in edits],
        "tags": [orjson.dumps(edit.tags).decode() for edit in edits],
        "licence": [edit.licence for edit in edits],
        "origin_group": [edit.group for edit in edits],
        "origin": [edit.origin for edit in edits],
        "pre_tokens": [found.pre_tokens for found, _, _ in some],
        "post_tokens": [found.post_tokens for found, _, _ in some],
        "line_bytes": [len(line) for line in lines],
        "id_key": [key(edit.id.encode()) for edit in edits],
        "asked_key": [key(edit.instruction.encode(), edit.pre.encode()) for edit in edits],
        "pre_key": [key(pre) for _, pre, _ in some],
        "done_key": [key(pre, found.post_squeezed.lower()) for found, pre, _ in some],
        "change_key": [
            key(edit.commit.encode(), edit.path.encode()) if edit.commit and edit.path else 0 for edit in edits
        ],
        "link_keys": [_links(edit) for edit in edits],
        "signature": [signature for _, _, signature in some],
    }


def _links(edit: Edit) -> list[int]:
    # a repository is the same whatever the case of its letters
    groups = [key(name.lower().encode()) for name in (edit.group, *edit.aliases)]
    commits = [key(b"commit", commit.encode()) for commit in (edit.commit, *edit.other_commits) if commit]
    return groups + commits
