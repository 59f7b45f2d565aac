"""The way from the rows of a source to the splits, in words."""

from collections.abc import Mapping
from typing import Any

from assets.reports.markdown import Rows

REASONS: Mapping[str, str] = {
    "line_too_long": "a line too long to read",
    "invalid_utf8": "no UTF-8",
    "malformed_json": "no JSON",
    "duplicate_key": "a key twice in one object",
    "bad_field": "a field missing or of another type",
    "truncated_file": "the end of the file missing",
    "unknown_language": "a language that is not read",
    "empty_instruction": "an instruction expected and none there",
    "empty_pre": "no text before",
    "empty_post": "no text after",
    "not_text": "no text",
    "unchanged": "the same text before and after",
    "license": "a license that is not allowed, or none",
    "too_long": "texts too long",
    "unparsable": "a text with syntax errors",
    "several_files": "a patch of several files",
    "bad_patch": "a patch that cannot be read",
    "contaminated": "too near to an evaluation",
    "not_accepted": "a change that its user did not accept",
    "secret": "a text that holds a secret",
    "duplicate_id": "the same id as another edit",
    "duplicate_row": "instruction and text before of another edit",
    "duplicate_commit": "the same file of the same commit as another edit",
    "duplicate_code": "the same change of the same code as another edit",
    "near_duplicate": "nearly the change of another edit",
    "joins_splits": "belongs to two splits at once",
}
"""Why rows and edits are left out, in words."""

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
    "duplicates": "left out: {}",
    "kept": "kept",
    "split": "in {}",
}


def steps(funnel: Rows) -> list[dict[str, Any]]:
    """Return the rows of `dataset_funnel` of one dataset as `step`, `number`, `percent` of its rows, and `is_loss`."""
    at_source = number_of(funnel, "at_source")
    read = number_of(funnel, "read")
    return [
        {
            "step": _WORDS[row["step"]].format(REASONS.get(row["reason"], row["reason"])),
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
