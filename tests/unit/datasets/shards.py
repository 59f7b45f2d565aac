"""Normalized datasets made of rows in a test, and what is compared and divided of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from graftline.astgrep.binding import LANGUAGES
from graftline.datasets.catalog import Cleaning, Dataset, Decontamination, Splitting
from graftline.datasets.decontaminate import Evaluations, evaluations
from graftline.datasets.deduplicate import REASONS, EditTable, load_edits
from graftline.datasets.language import language_of_path
from graftline.datasets.normalize import Normalized, Plan, normalize
from graftline.datasets.readers.base import RawRow
from graftline.datasets.splits import SPLITS, assign_splits
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
    """Normalize `rows` of CommitPackFT, or of the dataset `entry`, into `folder`, and return what is said of them."""
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


Named = Mapping[str, Row]
"""Rows by names of the test's own."""


def compared(folder: Path, datasets: Mapping[str, Named]) -> tuple[EditTable, list[str]]:
    """Return the comparison of datasets of CommitPackFT's rows, given in the order of precedence, and their names."""
    for dataset_name, rows in datasets.items():
        written(folder / dataset_name, rows.values())
    comparison = load_edits({name: folder / name for name in datasets}, LANGUAGES)
    names = [name for rows in datasets.values() for name in sorted(rows, key=lambda name: _language(rows[name]))]
    assert len(names) == len(comparison), "a row of a test was dropped"
    return comparison, names


def _language(row: Row) -> int:
    language = language_of_path(row["new_file"])
    assert language is not None, row["new_file"]
    return LANGUAGES.index(language)


class Divided:
    """What became of edits, by their names."""

    def __init__(self, folder: Path, datasets: Mapping[str, Named], **splitting: Any) -> None:
        comparison, names = compared(folder, datasets)
        division = assign_splits(comparison, Splitting(**splitting))
        self.counts = division.counts()
        self.reasons: dict[str, str] = {}
        self.kept: dict[str, str] = {}
        """Which is kept instead of one that is not."""
        self.splits: dict[str, str] = {}
        """Of those that are kept."""
        self.clusters = dict(zip(names, division.clusters.tolist(), strict=True))
        columns = zip(names, division.reasons, division.originals, division.splits, strict=True)
        for name, reason, kept, split in columns:
            assert (reason == 0) == (names[kept] == name) == (split >= 0)
            if reason:
                self.reasons[name], self.kept[name] = REASONS[reason], names[kept]
            else:
                self.splits[name] = SPLITS[split]
