"""The page of one dataset."""

from collections.abc import Mapping
from typing import Any

from assets.reports.evaluations import describe_evaluations
from assets.reports.funnel import number_of, steps
from assets.reports.markdown import Row, Rows, diff, fence_code, picture, plain, without_dataset
from graftline.core.markdown import table
from graftline.core.record import DatasetRecord, NormalizedRecord
from graftline.datasets.losses import main_losses
from graftline.datasets.splits import SPLITS

_SHARES = {"percent_of_kept": "% of kept", "percent_of_rows": "% of all rows"}


def dataset_page(
    raw: DatasetRecord,
    normalized: NormalizedRecord,
    marts: Mapping[str, Rows],
    evaluations: list[dict[str, Any]],
    plots: Mapping[str, str],
) -> str:
    """Return the page of a dataset from its records, its rows of every mart, and its plots: file names by kind."""
    funnel = marts["dataset_funnel"]
    return "\n".join(
        [
            f"# Dataset `{raw.source}`",
            "",
            "[All datasets](index.md)",
            "",
            *(f"**Warning**: {loss}.\n" for loss in main_losses([raw, normalized])),
            table(_facts(raw, normalized)),
            "## From rows to splits",
            "",
            "What stands behind a dash is lost there. Percent are of the rows at the source.",
            "",
            table([_mark_loss(step) for step in steps(funnel)]),
            *_plot(plots, "funnel", "from rows to splits"),
            "## Evaluations it was kept away from",
            "",
            describe_evaluations(evaluations, number_of(funnel, "contaminated")),
            "## Edits by language and split",
            "",
            table(_by_split(without_dataset(marts["dataset_stats"]))),
            "## Tokens",
            "",
            f"Counted by `{normalized.tokenizer}`.",
            "",
            table(_lengths(without_dataset(marts["dataset_tokens"]))),
            *_plot(plots, "tokens", "edits by tokens"),
            "## Languages",
            "",
            table([_rename_shares(row) for row in without_dataset(marts["dataset_languages"])]),
            "## Licenses",
            "",
            table([_rename_shares(row) for row in without_dataset(marts["dataset_licenses"])]),
            *_plot(plots, "licenses", "kept edits by license"),
            "## Rows left out",
            "",
            "Every one of them, with file and line, is in `dropped.parquet` beside the normalized edits.",
            "",
            table([{**row, "example": plain(row["example"])} for row in without_dataset(marts["dataset_drops"])]),
            "## Duplicates",
            "",
            "Edits that fell out, by the dataset that holds the edit kept in their place.",
            "",
            table(without_dataset(marts["dataset_overlaps"])),
            "## Labels",
            "",
            table([_label(row) for row in without_dataset(marts["dataset_labels"])]),
            "## Example",
            "",
            *([_example(row) for row in marts["dataset_examples"]] or ["*No edit is kept.*\n"]),
        ]
    )


def _facts(raw: DatasetRecord, normalized: NormalizedRecord) -> list[dict[str, Any]]:
    # when it was fetched is left out: a page does not change because the same bytes came again
    facts = {
        "source": raw.source,
        "url": raw.config.get("url") or "unknown",
        "version": raw.version,
        "license": raw.license,
        "sha256": raw.sha256,
        "num_records": raw.num_records,
        "files": len(raw.files),
        "size_bytes": sum(file.size_bytes for file in raw.files.values()),
        "tokenizer": normalized.tokenizer,
    }
    return [{"fact": fact, "value": value} for fact, value in facts.items()]


def _mark_loss(step: Row) -> dict[str, Any]:
    dash = "- " if step["is_loss"] else ""
    return {"step": f"{dash}{step['step']}", "rows": step["number"], "%": step["percent"]}


def _by_split(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the splits in their order, and one more for all of them."""
    if not rows:
        return rows
    ordered = sorted(rows, key=lambda row: (row["language"], SPLITS.index(row["split"])))
    empty: dict[str, Any] = dict.fromkeys(rows[0])
    return [*ordered, {**empty, "language": "all", "split": "all", "edits": sum(row["edits"] for row in rows)}]


def _lengths(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the text before first, and all languages together before each of them."""
    ordered = sorted(rows, key=lambda row: (row["side"] != "pre", row["language"] or ""))
    return [{**row, "language": row["language"] or "all"} for row in ordered]


def _rename_shares(row: Row) -> dict[str, Any]:
    return {_SHARES.get(name, name): value for name, value in row.items()}


def _label(row: Row) -> dict[str, Any]:
    return {**row, "label": plain(row["label"]), "example": plain(row["example"])}


def _plot(plots: Mapping[str, str], kind: str, caption: str) -> list[str]:
    return [picture(plots[kind], caption)] if kind in plots else []


def _example(row: Row) -> str:
    facts = [{"fact": name, "value": plain(row[name])} for name in ("id", "language", "split", "license", "origin")]
    parts = [table(facts), fence_code(row["instruction"]), fence_code(diff(row["pre"], row["post"]), "diff")]
    return "\n".join(parts)
