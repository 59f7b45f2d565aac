"""The way from the rows of a source to the splits, in words."""

from collections.abc import Mapping
from typing import Any

from assets.reports.markdown import Rows

_WORDS: Mapping[str, str] = {
    "at_source": "rows at the source",
    "not_stored": "not stored: {}",
    "read": "rows read",
    "outcomes": "edits, labels and drops in them",
    "dropped": "dropped: {}",
    "contaminated": "dropped: too near to an evaluation",
    "labels": "labels, which are no edits",
    "edits": "edits",
    "not_split": "in a language that is not split",
    "duplicates": "fallen out: {}",
    "kept": "kept",
    "split": "in {}",
}


def steps(funnel: Rows) -> list[dict[str, Any]]:
    """Return the rows of `dataset_funnel` of one dataset as `step`, `number`, `percent` of its rows, and `is_loss`."""
    at_source = number_of(funnel, "at_source")
    read = number_of(funnel, "read")
    return [
        {
            "step": _WORDS[row["step"]].format(row["reason"]),
            "number": row["number"],
            "percent": round(100 * row["number"] / at_source, 2) if at_source else None,
            "is_loss": row["is_loss"],
        }
        for row in funnel
        # the same thing twice, where every row holds one
        if row["step"] != "outcomes" or row["number"] != read
    ]


def number_of(funnel: Rows, step: str) -> int:
    """Return the sum of all rows of one step, in one dataset or in several."""
    return sum(row["number"] for row in funnel if row["step"] == step)
