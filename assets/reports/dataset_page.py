"""The page of one dataset."""

from collections.abc import Mapping
from typing import Any

from assets.reports.evaluations import describe_evaluations
from assets.reports.funnel import REASONS, number_of, steps
from assets.reports.markdown import Row, Rows, diff, fence_code, picture, plain, without_dataset
from graftline.core.markdown import table
from graftline.core.record import DatasetRecord, NormalizedRecord
from graftline.datasets.losses import main_losses
from graftline.datasets.splits import SPLITS

_WORDS = {
    "percent_of_kept": "% of kept",
    "percent_of_rows": "% of all rows",
    "origin_groups": "packages or repositories",
    "clusters": "groups kept together",
    "mean_pre_tokens": "tokens before, mean",
    "median_pre_tokens": "tokens before, median",
    "p95_pre_tokens": "tokens before, 95 %",
    "mean_post_tokens": "tokens after, mean",
    "p5": "5 %",
    "p25": "25 %",
    "p75": "75 %",
    "p95": "95 %",
    "kept_in": "kept instead in",
    "dropped": "rows",
}
"""Names of columns in words, where the mart calls them otherwise."""
_SIDES = {"pre": "before", "post": "after"}


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
            "Edits of one package or repository, and edits whose texts are alike, are kept together in one split.",
            "",
            _table(_by_split(without_dataset(marts["dataset_stats"]))),
            "## Instructions",
            "",
            *_instructions(marts["dataset_instructions"]),
            "## Tokens",
            "",
            f"How long the texts are, counted by `{normalized.tokenizer}`; so many percent of them are not longer.",
            "",
            _table(_lengths(without_dataset(marts["dataset_tokens"]))),
            *_plot(plots, "tokens", "edits by tokens"),
            "## Languages",
            "",
            _table(without_dataset(marts["dataset_languages"])),
            "## Licenses",
            "",
            _table(without_dataset(marts["dataset_licenses"])),
            *_plot(plots, "licenses", "kept edits by license"),
            "## Rows left out",
            "",
            "Every one of them, with file and line, is in `dropped.parquet` beside the normalized edits.",
            "",
            _table(
                [
                    {
                        "reason": row["reason"],
                        "means": REASONS.get(row["reason"], ""),
                        **row,
                        "example": plain(row["example"]),
                    }
                    for row in without_dataset(marts["dataset_drops"])
                ]
            ),
            "## Duplicates",
            "",
            "Edits that fell out, by the dataset that holds the edit kept in their place.",
            "",
            _table(
                [
                    {**row, "reason": REASONS.get(row["reason"], row["reason"])}
                    for row in without_dataset(marts["dataset_overlaps"])
                ]
            ),
            "## Labels",
            "",
            table([_label(row) for row in without_dataset(marts["dataset_labels"])]),
            "## A typical edit",
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
        "rows": raw.num_records,
        "files": len(raw.files),
        "bytes": sum(file.size_bytes for file in raw.files.values()),
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
    return [{**row, "side": _SIDES[row["side"]], "language": row["language"] or "all"} for row in ordered]


def _table(rows: Rows) -> str:
    """Return `rows` as a table with the names of its columns in words."""
    return table([{_WORDS.get(name, name): value for name, value in row.items()} for row in rows])


def _instructions(rows: Rows) -> list[str]:
    tasks, answerable = sum(row["tasks"] for row in rows), sum(row["answerable"] for row in rows)
    if not tasks:
        return ["No task was made of this dataset yet.\n"]
    shown = [
        {
            "instruction from": row["source"],
            "tasks": row["tasks"],
            "answerable": row["answerable"],
            "nobody has tried": row["untried"],
            "% answerable": round(100 * row["answerable"] / row["tasks"], 2),
        }
        for row in rows
    ]
    return [
        f"{answerable:,} of {tasks:,} tasks ({100 * answerable / tasks:.1f} %) are **answerable**: the change is known to follow from the"
        " instruction and the text before, for it was written for this very change, filled in from one template with it, or done by"
        " a reader or a model. Agents, training rows and evaluations take no others, unless `instructions: all`. Instructions come from"
        " a person (`human`), a commit (`commit`), the rules of the change (`rule`), a language model (`model`) or nowhere"
        " (`none`).",
        "",
        table(shown),
    ]


def _label(row: Row) -> dict[str, Any]:
    return {**row, "label": plain(row["label"]), "example": plain(row["example"])}


def _plot(plots: Mapping[str, str], kind: str, caption: str) -> list[str]:
    return [picture(plots[kind], caption)] if kind in plots else []


def _example(row: Row) -> str:
    facts = [{"fact": name, "value": plain(row[name])} for name in ("id", "language", "split", "license", "origin")]
    facts.append({"fact": "instruction from", "value": row["instruction_source"]})
    facts.append({"fact": "answerable", "value": "yes" if row["answerable"] else "not known to be"})
    instruction = row["instruction"] or "(nothing says what to do)"
    parts = [table(facts), fence_code(instruction), fence_code(diff(row["pre"], row["post"]), "diff")]
    return "\n".join(parts)
