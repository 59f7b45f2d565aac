"""The SQL of the dbt project without dbt: models and tests rendered, and run over planted sources."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from jinja2 import Environment

from graftline.core.parquet import Column
from graftline.datasets.edit import DIVISION, DROPS, EDITS
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES
from resources.warehouse import of_rows

PROJECT = Path(__file__).resolve().parents[3] / "assets" / "reports"
MODELS = {path.stem: path for path in sorted((PROJECT / "models").glob("*/*.sql"))}
TESTS = {path.stem: path for path in sorted((PROJECT / "tests").glob("*.sql"))}
COLUMNS: Mapping[str, Mapping[str, Column]] = {
    "datasets": {"dataset": "word"},
    "counts": {"dataset": "word", "stage": "word", "name": "word", "number": "whole"},
    "allowed_licenses": {"license": "word"},
    "limits": {"max_pre_tokens": "whole"},
    "normalized": {"dataset": "word", "id": "text", "license": "word", "link_keys": "keys", "language": "word"},
    "drops": DROPS,
    "labels": {
        "id": "text", "dataset": "word", "language": "word", "label": "text", "holds": "flag", "license": "word",
        "instruction": "text", "origin": "text",
    },
    "division": {**DIVISION, "language": "word"},
    "edits": EDITS,
    "instructions": {"dataset": "word", "source": "word", "answer": "word", "tasks": "whole"},
    "stored_splits": {"language": "word", "split": "word"},
    "trajectories": TRAJECTORIES,
    "steps": STEPS,
}  # fmt: skip

Planted = dict[str, list[dict[str, Any]]]


class Models:
    """All models, built over planted sources."""

    def __init__(self, planted: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self._connection = duckdb.connect()
        self._connection.execute("create schema lineage")
        for name, columns in COLUMNS.items():
            self._connection.execute(f"create table lineage.{name} as {of_rows([], columns)}")
            for row in planted.get(name, ()):
                marks = ", ".join("?" for _ in columns)
                self._connection.execute(
                    f"insert into lineage.{name} values ({marks})", [row.get(column) for column in columns]
                )
        waiting = dict(MODELS)
        while waiting:
            for name, path in list(waiting.items()):
                text = path.read_text("utf-8")
                if not any(f"ref('{other}')" in text for other in waiting):
                    self._connection.execute(f"create table {name} as {_rendered(text)}")
                    del waiting[name]

    def rows(self, model: str) -> list[tuple[Any, ...]]:
        """Return the rows of a model in order."""
        return self._connection.execute(f"select * from {model} order by all").fetchall()

    def failures(self, test: str) -> list[tuple[Any, ...]]:
        """Return the rows that a test of the project objects to."""
        return self._connection.execute(_rendered(TESTS[test].read_text("utf-8"))).fetchall()


def _rendered(text: str) -> str:
    return (
        Environment()
        .from_string(text)
        .render(ref=lambda name: name, source=lambda schema, name: f"{schema}.{name}", config=lambda **_: "")
    )
