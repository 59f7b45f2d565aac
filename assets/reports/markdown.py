"""How the reports read."""

from collections.abc import Mapping
from typing import Any

from graftline.markdown import table
from graftline.record import RawRecord, Record

Rows = list[dict[str, Any]]


def dataset_page(name: str, marts: Mapping[str, Rows], raw: Record) -> str:
    """Return the page of the dataset called `name`."""
    contract = raw.model_dump(mode="json", include=set(RawRecord.model_fields) - set(Record.model_fields))
    facts = [{"fact": key, "value": value} for key, value in contract.items() if key != "downloaded_at"]
    return "\n".join(
        [
            f"# Dataset `{name}`",
            "",
            table(facts),
            "## Edits by language and split",
            "",
            table([_without_dataset(row) for row in marts["dataset_stats"]]),
            "## Edits by licence",
            "",
            table([_without_dataset(row) for row in marts["dataset_licences"]]),
            "## Rows left out",
            "",
            "Every one of them, with file and line, is in `dropped.parquet` beside the normalised edits.",
            "",
            table([_without_dataset(row) for row in marts["dataset_drops"]]),
        ]
    )


def teacher_page(marts: Mapping[str, Rows]) -> str:
    """Return the page of the teachers."""
    return "\n".join(
        [
            "# Teachers",
            "",
            "Precision is verified over valid attempts. An attempt is verified when the text it reaches is the wanted"
            " one: in bytes (exact), but for blanks, or as a tree. An attempt without a reward says nothing about the"
            " teacher (the machine was at fault) and is not valid. General are verified attempts in which every"
            " action leaves something free.",
            "",
            table(marts["teacher_precision"]),
            "![precision by language and dataset](precision.png)",
            "",
            "## What single actions look like",
            "",
            "By form of the action (`pattern` with its rewrite, or a whole `rule`) and verdict of the sandbox.",
            "",
            table(marts["teacher_steps"]),
            "## How attempts end that are not verified",
            "",
            table(marts["teacher_failures"]),
        ]
    )


def _without_dataset(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "dataset"}
