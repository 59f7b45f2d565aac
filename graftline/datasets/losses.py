"""Whether a dataset loses most of its rows to one reason: decided here for the terminal, the UI and the report.

Not here: why single rows are rejected (`graftline.datasets.edit.RejectReason`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graftline.core.record import ArtifactRecord
from graftline.datasets.edit import RejectReason

_DROPPED, _NOT_KEPT = "dropped.", "not_kept."
"""Beginnings of the names of counts, when rows are normalized and when they are fetched; what follows is the reason."""
_REMEDIES: Mapping[str, str] = {
    RejectReason.LICENSE: "state `license` or `licenses` of the dataset in configs/datasets.yaml, or allow what its rows"
    " state in `cleaning.licenses`",
    RejectReason.CONTAMINATED: "it holds texts of the evaluations in use, so take another dataset",
    RejectReason.TOO_LONG: "raise `cleaning.max_pre_tokens` in configs/datasets.yaml, or take another dataset",
}
_KINDS = ("raw", "normalized")


@dataclass(frozen=True, slots=True)
class MainLoss:
    """The reason for which more than half of the rows of a dataset are rejected."""

    dataset: str
    reason: str
    rejected: int
    rows: int
    """Rows that were read; where a row holds several edits, those."""
    is_stored: bool
    """Whether the rejected rows are in the raw files."""

    def __str__(self) -> str:
        look = f"`graftline data show {self.dataset} --rejected {self.reason}` shows some of them"
        not_stored = "they were not stored, which `keep: all` of the dataset in configs/datasets.yaml changes"
        remedy = _REMEDIES.get(self.reason, look) if self.is_stored else not_stored
        lost = (
            f"{self.rejected:,} of {self.rows:,} rows ({self.rejected / self.rows:.0%}) are rejected as {self.reason}"
        )
        return f"dataset {self.dataset!r}: {lost}; {remedy}"


def main_loss(dataset: str, counts: Mapping[str, int]) -> MainLoss | None:
    """Return the reason that more than half of the rows are lost to, from the counts of a record; None if there is none."""
    rejected = {name: number for name, number in counts.items() if name.startswith((_DROPPED, _NOT_KEPT))}
    rows = counts.get("rows", 0) + counts.get("labels", 0) + sum(rejected.values())
    for name, number in rejected.items():
        if 2 * number > rows:
            return MainLoss(dataset, name.partition(".")[2], number, rows, name.startswith(_DROPPED))
    return None


def main_losses(records: Iterable[ArtifactRecord]) -> list[MainLoss]:
    """Return the main losses of those of `records` that are of datasets."""
    losses = (main_loss(record.name, record.counts) for record in records if record.kind in _KINDS)
    return [loss for loss in losses if loss is not None]
