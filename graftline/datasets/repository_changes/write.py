"""The changes of all sources into files: a line of JSON for each in the file of its split, and tables without the texts."""

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graftline.core.parquet import ParquetWriter
from graftline.datasets.repository_changes.assign import SplitAssigner
from graftline.datasets.repository_changes.candidate import Candidate, ChangeRejection
from graftline.datasets.repository_changes.change import CHANGES, REJECTED, ChangeRejectReason, RepositoryChange
from graftline.datasets.repository_changes.judge import Judge
from graftline.datasets.splits import SPLITS, Split, write_assigned

logger = logging.getLogger(__name__)

TABLE, REJECTED_TABLE = "changes.parquet", "rejected.parquet"
_LOGGED = 20
_MAX_DETAIL = 300


@dataclass(slots=True)
class _Selection:
    """The changes that are taken, of candidates in their order."""

    judge: Judge
    assigner: SplitAssigner
    by_repository: Counter[str] = field(default_factory=Counter)
    _ids: set[str] = field(default_factory=set)
    _commits: set[str] = field(default_factory=set)

    def add(self, candidate: Candidate | ChangeRejection) -> tuple[RepositoryChange, Split] | ChangeRejection:
        """Return the change that a candidate is, with its split, or why it is not taken."""
        if isinstance(candidate, ChangeRejection):
            return candidate
        repository, most = candidate.repo.lower(), self.judge.config.per_repository
        if self.by_repository[repository] >= most:
            return candidate.reject(ChangeRejectReason.ENOUGH_OF_REPOSITORY, f"{most} newer ones are taken")
        if candidate.id in self._ids or (candidate.unit == "file" and candidate.commit in self._commits):
            return candidate.reject(
                ChangeRejectReason.DUPLICATE_COMMIT, "is there already, from another source or repository"
            )
        change = self.judge.judge(candidate)
        if isinstance(change, ChangeRejection):
            return change
        split, detail = self.assigner.assign(change)
        if split is None:
            return candidate.reject(ChangeRejectReason.JOINS_SPLITS, detail)
        self.by_repository[repository] += 1
        self._ids.add(change.id)
        self._commits.add(change.commit)
        return change, split


def write_changes(
    candidates: Iterable[Candidate | ChangeRejection], judge: Judge, assigner: SplitAssigner, folder: Path
) -> dict[str, int]:
    """Write the candidates that are changes to `folder`, with what is assigned from now on, and return what became of all.

    One change at a time is in memory, and of the others a row without texts.
    """
    selection = _Selection(judge, assigner)
    rows: dict[Split, list[dict[str, Any]]] = {split: [] for split in SPLITS}
    rejected: Counter[str] = Counter()
    with ExitStack() as stack:
        streams = {split: stack.enter_context((folder / f"{split}.jsonl").open("wb")) for split in SPLITS}
        table = stack.enter_context(ParquetWriter(folder / REJECTED_TABLE, REJECTED))
        for candidate in candidates:
            result = selection.add(candidate)
            if isinstance(result, ChangeRejection):
                if rejected.total() < _LOGGED:
                    logger.info("%s %s: %s: %s", result.repo, result.commit[:12], result.reason, result.detail)
                rejected[result.reason] += 1
                row = {"reason": str(result.reason), "detail": result.detail[:_MAX_DETAIL]}
                table.append([{"repo": result.repo, "commit": result.commit, **row}])
                continue
            change, split = result
            line = change.model_dump_json().encode() + b"\n"
            streams[split].write(line)
            rows[split].append(_row(change, split, len(line)))
    with ParquetWriter(folder / TABLE, CHANGES) as writer:
        for of_split in rows.values():
            writer.append(of_split)
    write_assigned(folder, assigner.assigned)
    assigner.near_changes.write(folder)
    total = sum(map(len, rows.values()))
    return {
        "rows_in": total + rejected.total(),
        "rows": total,
        **{f"rows.{split}": len(of_split) for split, of_split in rows.items()},
        "answerable": sum(row["answerable"] is True for of_split in rows.values() for row in of_split),
        "repositories": len(selection.by_repository),
        **{f"dropped.{reason}": rejected[reason] for reason in ChangeRejectReason if rejected[reason]},
    }


def _row(change: RepositoryChange, split: Split, line_bytes: int) -> dict[str, Any]:
    counts = {"files": len(change.files), "untouched": len(change.untouched)}
    return {
        **{name: getattr(change, name, None) for name in CHANGES},
        **counts,
        "split": split,
        "line_bytes": line_bytes,
    }
