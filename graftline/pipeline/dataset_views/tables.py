"""What is known of datasets as titled tables of text, for people."""

from collections.abc import Mapping, Sequence

from rich.filesize import decimal

from graftline.core.record import DatasetRecord
from graftline.datasets.dvc import DvcExport
from graftline.pipeline.dataset_views.build import BuildReport
from graftline.pipeline.dataset_views.listing import Entry
from graftline.pipeline.dataset_views.samples import SampledDrop
from graftline.pipeline.dataset_views.stats import Cell, DatasetStats
from graftline.pipeline.dataset_views.verification import Verification

Table = tuple[str, Sequence[str], Sequence[tuple[str, ...]]]
"""Title, names of the columns, rows."""

_SHORT = 12  # digits of a commit that are enough to tell it from another


def listing_table(entries: Sequence[Entry]) -> Table:
    """Return one row per dataset, of at most 120 characters; `--json` has the rest."""
    columns = ["dataset", "in use", "home", "version", "licence", "access", "size", "rows", "edits", "left out"]
    return "Datasets", columns, [_listing_row(entry) for entry in entries]


def _listing_row(entry: Entry) -> tuple[str, ...]:
    stored = entry.stored
    size = stored.size_bytes if stored else entry.size_bytes
    counts = (stored.rows, stored.edits, stored.dropped) if stored else (None,) * 3
    home = (entry.home or "unknown").removeprefix("hf://datasets/")
    return (
        entry.name,
        "yes" if entry.is_used else "no",
        "(mirrored)" if entry.is_mirrored else _clip(home, 22),
        "newest" if entry.is_followed else _clip(_short(entry.version), _SHORT),
        _clip(entry.licence, 12),
        entry.access.removeprefix("token "),
        "damaged" if entry.fault else "" if size is None else decimal(size),
        *("" if count is None else f"{count:,}" for count in counts),
    )


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def build_table(making: BuildReport) -> Table:
    """Return one row per artifact that a command brought up to date."""
    rows = []
    for built in making.built:
        record = built.record
        losses = {key.partition(".")[2]: count for key, count in record.counts.items() if _is_loss(key)}
        rows.append(
            (
                record.kind,
                record.name,
                f"made: {built.reason}" if built.reason else "unchanged",
                _short(record.version) if isinstance(record, DatasetRecord) else "",
                f"{record.counts.get('rows', 0):,}",
                _counts(losses),
                decimal(sum(file.size_bytes for file in record.files.values())),
            )
        )
    return "Artifacts", ["stage", "name", "became", "version", "rows", "left out", "size"], rows


def stats_tables(datasets: Sequence[DatasetStats]) -> list[Table]:
    """Return what became of the rows, how long the edits are, the licences, and why rows were left out."""
    became = [
        (dataset.name, _short(dataset.version), *(f"{count:,}" for count in _fates(dataset)), dataset.tokenizer)
        for dataset in datasets
    ]
    cells = [(dataset.name, *_cell_row(cell)) for dataset in datasets for cell in dataset.cells]
    licences = [(dataset.name, *row) for dataset in datasets for row in _shares(dataset.licences)]
    reasons = [
        (dataset.name, *row) for dataset in datasets for row in _shares({**dataset.dropped, **dataset.duplicates})
    ]
    columns = ["rows", "edits", "labels", "left out", "duplicates", "tokenizer"]
    sides = [f"{side} {measure}" for side in ("pre", "post") for measure in ("mean", "median", "p95", "max")]
    return [
        ("Datasets", ["dataset", "version", *columns], became),
        ("Edits, and their tokens", ["dataset", "language", "split", "edits", *sides], cells),
        ("Licences of edits and labels", ["dataset", "licence", "number", "share"], licences),
        ("Left out", ["dataset", "reason", "number", "share"], reasons),
    ]


def verification_table(verification: Verification) -> Table:
    """Return one row per artifact that is stored."""
    rows = [
        (finding.stage, finding.name, finding.state, f"{finding.files:,}", decimal(finding.size_bytes), finding.detail)
        for finding in verification.findings
        if finding.state == "sound"
    ]
    return "Sound artifacts", ["stage", "name", "state", "files", "size", ""], rows


def drops_table(drops: Sequence[SampledDrop]) -> Table:
    """Return one row per drop."""
    rows = [(drop.dataset, drop.where, drop.reason, drop.detail) for drop in drops]
    return "Left out", ["dataset", "where", "reason", "detail"], rows


def export_table(export: DvcExport) -> Table:
    """Return one row per artifact in the remote."""
    rows = [
        (
            artifact.folder,
            str(artifact.files),
            decimal(artifact.size_bytes),
            str(artifact.copied),
            "yes" if artifact.is_changed else "no",
        )
        for artifact in export.artifacts
    ]
    return f"In {export.remote}", ["folder", "files", "size", "copied objects", ".dvc changed"], rows


def _fates(dataset: DatasetStats) -> tuple[int, ...]:
    return (
        dataset.rows_in,
        dataset.edits,
        dataset.labels,
        sum(dataset.dropped.values()),
        sum(dataset.duplicates.values()),
    )


def _cell_row(cell: Cell) -> tuple[str, ...]:
    lengths = (cell.pre, cell.post)
    numbers = [f"{number:,}" for side in lengths for number in (side.mean, side.median, side.p95, side.max)]
    return cell.language, cell.split, f"{cell.edits:,}", *numbers


def _shares(counts: Mapping[str, int]) -> list[tuple[str, str, str]]:
    total = sum(counts.values())
    return [(name, f"{count:,}", f"{count / total:.1%}") for name, count in counts.items()]


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _is_loss(key: str) -> bool:
    return key.startswith(("dropped.", "not_kept."))


def _short(version: str) -> str:
    head, separator, suffix = version.partition("+")
    return f"{head[:_SHORT]}{separator}{suffix}" if len(head) == 40 else version
