"""The rows of one dataset into files of edits, labels and rejections, in several processes.

Workers take rows in chunks, each of which becomes a shard per language: `<language>-<chunk>.jsonl`, and
`<language>-<chunk>.parquet` with the same edits in the same order. What a chunk is hangs on the rows alone, so the number
of workers does not show in the files. Labels go to `labels.jsonl`, rejections to `dropped.parquet`.
"""

from collections import Counter, defaultdict
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
from graftline.datasets.edit import DROPS, NORMALIZED, Edit, Label, Rejection, RejectReason
from graftline.datasets.fingerprints import commit_key, group_key, key, signatures, strip_whitespace
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.instruction_source import FIELDS
from graftline.datasets.readers import source_of
from graftline.datasets.readers.base import RawRow

CHUNK_ROWS = 4096
CHUNK_BYTES = 8 << 20
_BATCH_ROWS = 128  # few enough that what is made of them stays in the processor's cache

CleanT = TypeVar("CleanT", CleanEdit, Label)

RejectedRow = tuple[str, int, RejectReason, str]
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
class Chunk:
    """Rows that are worked on together."""

    number: int
    rows: list[tuple[str, int, Any]]
    """File, line and content of raw rows; plain, for they cross process borders."""


@dataclass
class ChunkResult:
    """What became of a chunk, beside the edits, which are in files already."""

    rows: int
    edits: int = 0
    labels: list[bytes] = field(default_factory=list)
    """Lines of JSON, without their ends."""
    rejected: list[RejectedRow] = field(default_factory=list)
    licenses: Counter[str] = field(default_factory=Counter)
    """Of edits and labels."""


@dataclass(frozen=True)
class Normalized:
    """What was written."""

    counts: dict[str, int]
    licenses: dict[str, int]
    first_rejected: list[RejectedRow]
    """For the log; all of them are in `dropped.parquet`."""


def normalize(
    rows: Iterable[RawRow], plan: Plan, workers: int, advance: Callable[[int, int], None], logged_rows: int = 20
) -> Normalized:
    """Write what becomes of `rows` to the folder of `plan`.

    Raises:
        DataError: the raw files are not what the dataset holds.
        BoundaryError: a worker process died.
    """
    totals: Counter[str] = Counter(rows_in=0, rows=0, labels=0)
    licenses: Counter[str] = Counter()
    first: list[RejectedRow] = []
    with (
        ParquetWriter(plan.folder / "dropped.parquet", DROPS) as table,
        Workers[Chunk, ChunkResult](workers, partial(_ChunkNormalizer, plan), ahead=1) as pool,
    ):
        for result in pool.map(_chunks(rows)):
            totals.update(rows_in=result.rows, rows=result.edits, labels=len(result.labels))
            totals.update(f"dropped.{reason}" for _, _, reason, _ in result.rejected)
            licenses += result.licenses
            first += result.rejected[: max(0, logged_rows - len(first))]
            table.append(
                dict(zip(DROPS, (plan.name, file, line, str(reason), detail), strict=True))
                for file, line, reason, detail in result.rejected
            )
            if result.labels:
                with (plan.folder / "labels.jsonl").open("ab") as stream:
                    stream.write(b"\n".join((*result.labels, b"")))
            advance(totals["rows_in"], 0)
    order = sorted(totals, key=lambda name: (name.startswith("dropped."), name if "." in name else ""))
    return Normalized({name: totals[name] for name in order}, dict(sorted(licenses.items())), first)


def _chunks(rows: Iterable[RawRow]) -> Iterator[Chunk]:
    chunk, size = Chunk(0, []), 0
    for row in rows:
        chunk.rows.append((row.file, row.line, row.content))
        # a row that is no line of JSON is small: those of tables and documents
        size += len(row.content) if isinstance(row.content, bytes) else 1024
        if len(chunk.rows) == CHUNK_ROWS or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = Chunk(chunk.number + 1, []), 0
    if chunk.rows:
        yield chunk


class _ChunkNormalizer:
    """Normalizes chunks; lives in a worker."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        source = source_of(plan.dataset.reader)
        self._ingest = Ingest(plan.name, plan.dataset, source, plan.cleaning)

    def __call__(self, chunk: Chunk) -> ChunkResult:
        result = ChunkResult(len(chunk.rows))
        lines: dict[Language, list[bytes]] = defaultdict(list)
        tables: dict[Language, list[Any]] = defaultdict(list)
        for start in range(0, len(chunk.rows), _BATCH_ROWS):
            for language, edits in self._clean_batch(chunk.rows[start : start + _BATCH_ROWS], result).items():
                # what pydantic writes as well, in half the time; an edit that was just read has no gold action
                new_lines = [orjson.dumps(clean.edit.__dict__) for clean, _, _ in edits]
                lines[language] += new_lines
                tables[language].append(arrow_table(_columns(edits, new_lines), NORMALIZED))
        for language in lines:
            shard = self._plan.folder / f"{language}-{chunk.number:05d}"
            shard.with_suffix(".jsonl").write_bytes(b"\n".join((*lines[language], b"")))
            # quick to write, for it is read once: the splits are what is kept small
            with ParquetWriter(shard.with_suffix(".parquet"), NORMALIZED, "lz4") as writer:
                for table in tables[language]:
                    writer.extend(table)
        return result

    def _clean_batch(
        self, rows: list[tuple[str, int, Any]], result: ChunkResult
    ) -> dict[Language, list["_FingerprintedEdit"]]:
        """Return the clean edits of some rows by language, and add the others, and all counts, to `result`."""
        edits: list[tuple[str, int, CleanEdit]] = []
        labels: list[tuple[str, int, Label]] = []
        outcomes = self._ingest.outcomes([content for _, _, content in rows])
        for (file, line, _), row_outcomes in zip(rows, outcomes, strict=True):
            for outcome in row_outcomes:
                match outcome:
                    case CleanEdit():
                        edits.append((file, line, outcome))
                    case Label():
                        labels.append((file, line, outcome))
                    case Rejection():
                        result.rejected.append((file, line, outcome.reason, outcome.detail))
        clean_edits = self._decontaminate(edits, result)
        for label in self._decontaminate(labels, result):
            result.licenses[label.license] += 1
            result.labels.append(label.model_dump_json().encode())
        result.edits += len(clean_edits)
        result.licenses.update(clean.edit.license for clean in clean_edits)
        folded = [clean.pre_stripped.lower() for clean in clean_edits]
        by_language: dict[Language, list[_FingerprintedEdit]] = defaultdict(list)
        for clean, pre, signature in zip(clean_edits, folded, signatures(folded), strict=True):
            by_language[clean.edit.language].append((clean, pre, signature))
        return by_language

    def _decontaminate(self, rows: list[tuple[str, int, CleanT]], result: ChunkResult) -> list[CleanT]:
        """Return the edits or labels of `rows` that are not too near to an evaluation; the others are rejected."""
        evaluations, least = self._plan.evaluations, self._plan.decontamination.shared
        if evaluations.is_empty:
            return [clean for _, _, clean in rows]
        near = evaluations.nearest([side.lower() for _, _, clean in rows for side in _sides(clean)], least)
        remaining = []
        for (file, line, clean), *shares in zip(rows, near[::2], near[1::2], strict=True):
            worst = max((share for share in shares if share), default=None)
            if worst is None:
                remaining.append(clean)
            else:
                detail = f"shares {worst[0]:.0%} with evaluation {worst[1]}"
                result.rejected.append((file, line, RejectReason.CONTAMINATED, detail))
        return remaining


def _sides(clean: CleanEdit | Label) -> tuple[bytes, bytes]:
    if isinstance(clean, Label):
        return strip_whitespace(clean.pre), strip_whitespace(clean.post or "")
    return clean.pre_stripped, clean.post_stripped


_FingerprintedEdit = tuple[CleanEdit, bytes, bytes]
"""An edit, its folded text before, and the signature of that."""


def _columns(fingerprinted: list[_FingerprintedEdit], lines: list[bytes]) -> dict[str, list[Any]]:
    edits = [clean.edit for clean, _, _ in fingerprinted]
    return {
        "id": [edit.id for edit in edits],
        "dataset": [edit.dataset for edit in edits],
        "instruction": [edit.instruction for edit in edits],
        "pre": [edit.pre for edit in edits],
        "post": [edit.post for edit in edits],
        "tags": [orjson.dumps(edit.tags).decode() for edit in edits],
        **{name: [getattr(edit, name) for edit in edits] for name in FIELDS},
        "license": [edit.license for edit in edits],
        "origin_group": [edit.group for edit in edits],
        "origin": [edit.origin for edit in edits],
        "pre_tokens": [clean.pre_tokens for clean, _, _ in fingerprinted],
        "post_tokens": [clean.post_tokens for clean, _, _ in fingerprinted],
        "line_bytes": [len(line) for line in lines],
        "id_key": [key(edit.id.encode()) for edit in edits],
        "asked_key": [_asked_key(edit) for edit in edits],
        "pre_key": [key(pre) for _, pre, _ in fingerprinted],
        "done_key": [key(pre, clean.post_stripped.lower()) for clean, pre, _ in fingerprinted],
        "change_key": [
            key(edit.commit.encode(), edit.path.encode()) if edit.commit and edit.path else 0 for edit in edits
        ],
        "link_keys": [_link_keys(edit) for edit in edits],
        "signature": [signature for _, _, signature in fingerprinted],
    }


def _asked_key(edit: Edit) -> int:
    # edits without an instruction are not the same for asking for nothing
    return key(edit.instruction.encode() or edit.id.encode(), edit.pre.encode())


def _link_keys(edit: Edit) -> list[int]:
    groups = [group_key(name) for name in (edit.group, *edit.aliases)]
    return groups + [commit_key(commit) for commit in (edit.commit, *edit.other_commits) if commit]
