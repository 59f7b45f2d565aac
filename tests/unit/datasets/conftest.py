"""Edits to be varied, and raw files read the way a dataset is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Edit, Rejection
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.readers import source_of
from tests.unit.datasets.fixtures import dataset

Outcomes = list[tuple[str, int, str | Rejection]]


@pytest.fixture
def edit() -> Callable[..., Edit]:
    """Return an edit of a function named by its id, with other fields as given."""

    def made(id: str, **changes: Any) -> Edit:
        values = {
            "instruction": f"Change {id}.",
            "pre": f"def {id}(x):\n    return old(x)\n",
            "post": f"def {id}(x):\n    return new(x)\n",
            "language": "python",
            "id": id,
            "dataset": "demo",
            "license": "MIT",
            "group": f"pypi:{id}",
            "origin": f"{id}.py",
        }
        return Edit(**{**values, **changes})

    return made


@pytest.fixture
def ingested(tmp_path: Path) -> Callable[..., Outcomes]:
    """Return file, line, and drop or id of the edit, of every row of a raw file of `release_pairs`."""

    def read(content: bytes, name: str = "rows.jsonl", cleaning: Cleaning | None = None) -> Outcomes:
        (tmp_path / name).write_bytes(content)
        entry, source, rules = dataset("release_pairs"), source_of("release_pairs"), cleaning or Cleaning()
        ingest = Ingest("release_pairs", entry, source, rules)
        results: Outcomes = []
        rows = list(source.rows(tmp_path, entry, rules.max_line_bytes))
        for row, outcomes in zip(rows, ingest.outcomes([row.content for row in rows]), strict=True):
            for outcome in outcomes:
                results.append((row.file, row.line, outcome.edit.id if isinstance(outcome, CleanEdit) else outcome))
        return results

    return read
