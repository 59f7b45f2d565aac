"""Edits and drops as rows of tables, for Parquet."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from graftline.datasets.edit import Drop, Edit
from graftline.datasets.ingest import Row
from graftline.datasets.split import Split
from graftline.datasets.tokens import token_estimate
from graftline.parquet import Column

EDITS: Mapping[str, Column] = {
    "id": "text",
    "dataset": "text",
    "language": "text",
    "split": "text",
    "instruction": "text",
    "pre": "text",
    "post": "text",
    "tags": "text",
    "licence": "text",
    "origin_group": "text",
    "origin": "text",
    "pre_tokens": "whole",
    "post_tokens": "whole",
}
DROPS: Mapping[str, Column] = {
    "dataset": "text",
    "file": "text",
    "line": "whole",
    "reason": "text",
    "detail": "text",
}


def edit_rows(edits: Iterable[Edit], split: Split) -> list[dict[str, Any]]:
    """Return one row of `EDITS` per edit."""
    return [_edit_row(edit, split) for edit in edits]


def drop_rows(dataset: str, rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Return one row of `DROPS` per row of the dataset that became no edit."""
    return [
        {
            "dataset": dataset,
            "file": row.file,
            "line": row.line,
            "reason": str(row.outcome.reason),
            "detail": row.outcome.detail,
        }
        for row in rows
        if isinstance(row.outcome, Drop)
    ]


def _edit_row(edit: Edit, split: Split) -> dict[str, Any]:
    return {
        **edit.model_dump(include={"id", "dataset", "language", "instruction", "pre", "post", "licence", "origin"}),
        "split": split,
        "tags": json.dumps(edit.tags),
        "origin_group": edit.group,
        "pre_tokens": token_estimate(edit.pre),
        "post_tokens": token_estimate(edit.post),
    }
