"""Normalised datasets made of rows in a test, and what is compared and divided of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from graftline.actions.astgrep import LANGUAGES
from graftline.datasets.catalogue import Cleaning, Dataset, Decontamination, Splitting
from graftline.datasets.comparison import Comparison, load_comparison
from graftline.datasets.decontaminate import Evaluations, evaluations
from graftline.datasets.division import REASONS, SPLITS, divide
from graftline.datasets.normalize import Normalized, Plan, normalize
from graftline.datasets.sources.base import RawRow
from tests.unit.datasets.fixtures import commit_row, dataset

Row = Mapping[str, Any]
UNCHECKED = Cleaning(check_syntax=False)


def written(
    folder: Path,
    rows: Iterable[Row | bytes | RawRow],
    workers: int = 0,
    cleaning: Cleaning = UNCHECKED,
    entry: Dataset | None = None,
    against: Evaluations | None = None,
    shared: float = 0.5,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> Normalized:
    """Normalise `rows` of CommitPackFT, or of the dataset `entry`, into `folder`, and return what is said of them."""
    folder.mkdir(parents=True, exist_ok=True)
    of_dataset, exams = entry or dataset("commitpackft"), against or evaluations([])
    plan = Plan(folder.name, of_dataset, cleaning, Decontamination(shared=shared), exams, folder)
    return normalize(lines_of(rows), plan, workers, advance)


def lines_of(rows: Iterable[Row | bytes | RawRow]) -> Iterator[RawRow]:
    """Yield `rows`, those that are none yet as lines of one file."""
    for number, row in enumerate(rows, 1):
        if isinstance(row, RawRow):
            yield row
        else:
            yield RawRow("rows.jsonl", number, row if isinstance(row, bytes) else orjson.dumps(row))


def change(name: str, **changes: Any) -> dict[str, Any]:
    """Return a row of CommitPackFT that has nothing in common with that of another name; the name is its path."""
    words = ", ".join(f"{name}_{number}" for number in range(12))
    return commit_row(
        **{
            "commit": f"commit of {name}",
            "old_file": f"{name}.py",
            "new_file": f"{name}.py",
            "old_contents": f"def {name}():\n    return old({words})\n",
            "new_contents": f"def {name}():\n    return new({words})\n",
            "message": f"Change {name}",
            "license": "mit",
            "repos": f"owner/{name}",
            **changes,
        }
    )


def compared(folder: Path, datasets: Mapping[str, Sequence[Row]]) -> Comparison:
    """Return the comparison of datasets of CommitPackFT's rows, given in the order of precedence."""
    for name, rows in datasets.items():
        written(folder / name, rows)
    return load_comparison({name: folder / name for name in datasets}, LANGUAGES)


def paths_of(comparison: Comparison) -> list[str]:
    """Return the name of each edit of a comparison, which is that of its file."""
    return [orjson.loads(comparison.line(index))["path"].partition(".")[0] for index in range(len(comparison))]


class Divided:
    """What became of edits, by their names; the names have to differ."""

    def __init__(self, folder: Path, datasets: Mapping[str, Sequence[Row]], **splitting: Any) -> None:
        comparison = compared(folder, datasets)
        division = divide(comparison, Splitting(**splitting))
        names = paths_of(comparison)
        self.counts = division.counts()
        found = zip(names, division.reasons, division.kept, division.splits, division.clusters, strict=True)
        rows = [(name, REASONS[reason], names[kept], split, cluster) for name, reason, kept, split, cluster in found]
        self.reasons = {name: reason for name, reason, *_ in rows}
        self.kept = {name: kept for name, _, kept, *_ in rows if kept != name}
        self.splits = {name: SPLITS[split] for name, *_, split, _ in rows if split >= 0}
        self.clusters = {name: int(cluster) for name, *_, cluster in rows}
