"""The page over all datasets."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assets.reports.evaluations import describe_evaluations
from assets.reports.funnel import number_of
from assets.reports.markdown import Rows
from graftline.core.markdown import table
from graftline.datasets.splits import SPLITS


def index_page(
    names: Sequence[str], versions: Mapping[str, str], marts: Mapping[str, Rows], evaluations: list[dict[str, Any]]
) -> str:
    """Return the page over the datasets called `names`, in the order of precedence, from all rows of every mart."""
    funnel = marts["dataset_funnel"]
    return "\n".join(
        [
            "# Datasets",
            "",
            "In the order of precedence: of two equal edits, that of the earlier dataset is kept.",
            "",
            table(_shares(names, versions, funnel)),
            "## Duplicates between datasets",
            "",
            "How many edits of a row's dataset fell out because an edit of a column's dataset says the same.",
            "",
            table(_overlaps(names, marts["dataset_overlaps"])),
            "## Instructions",
            "",
            "Of the tasks that were made: where the instruction comes from, and whether the change is known to follow from it.",
            "",
            table(_instructions(marts["dataset_instructions"])),
            "## Evaluations they were kept away from",
            "",
            describe_evaluations(evaluations, number_of(funnel, "contaminated")),
            "## Languages",
            "",
            table(_languages(marts["dataset_stats"])),
            "## Licenses",
            "",
            table(_licenses(marts["dataset_licenses"])),
        ]
    )


def _shares(names: Sequence[str], versions: Mapping[str, str], funnel: Rows) -> list[dict[str, Any]]:
    whole = number_of(funnel, "kept")
    rows = []
    for name in (*names, None):
        own = [row for row in funnel if name is None or row["dataset"] == name]
        kept_edits = number_of(own, "kept")
        in_splits: Counter[str] = Counter()
        for row in own:
            in_splits[row["reason"]] += row["number"] if row["step"] == "split" else 0
        rows.append(
            {
                "dataset": f"[{name}]({name}.md)" if name else "all",
                "version": versions[name] if name else "",
                "rows": number_of(own, "at_source"),
                "edits": number_of(own, "edits"),
                "duplicates": number_of(own, "duplicates"),
                "kept": kept_edits,
                "% of all kept": _percent(kept_edits, whole),
                **_in_order(in_splits),
                "labels": number_of(own, "labels"),
            }
        )
    return rows


def _overlaps(names: Sequence[str], overlaps: Rows) -> list[dict[str, Any]]:
    edits: Counter[tuple[str, str]] = Counter()
    for row in overlaps:
        edits[row["dataset"], row["kept_in"]] += row["edits"]
    return [{"edits of": name, **{kept_in: edits[name, kept_in] for kept_in in names}} for name in names]


def _instructions(rows: Rows) -> list[dict[str, Any]]:
    counts = ("tasks", "answerable", "unanswerable", "untried")
    total = {name: sum(row[name] for row in rows) for name in counts}
    listed = [*rows, {"dataset": "all", "source": "", **total}] if rows else []
    return [
        {
            "dataset": row["dataset"],
            "instruction from": row["source"],
            **{name: row[name] for name in counts},
            "% answerable": _percent(row["answerable"], row["tasks"]),
        }
        for row in listed
    ]


def _languages(stats: Rows) -> list[dict[str, Any]]:
    edits: Counter[tuple[str, str]] = Counter()
    for row in stats:
        edits[row["language"], row["split"]] += row["edits"]
    whole = edits.total()
    rows = []
    for language in sorted({language for language, _ in edits}):
        in_splits = Counter[str]({split: edits[language, split] for split in SPLITS})
        kept_edits = in_splits.total()
        rows.append(
            {
                "language": language,
                "kept": kept_edits,
                "% of all kept": _percent(kept_edits, whole),
                **_in_order(in_splits),
            }
        )
    return rows


def _licenses(licenses: Rows) -> list[dict[str, Any]]:
    edits: Counter[str] = Counter()
    for row in licenses:
        edits[row["license"]] += row["kept"]
    whole = edits.total()
    return [
        {"license": license, "kept": kept_edits, "% of all kept": _percent(kept_edits, whole)}
        for license, kept_edits in sorted(edits.items())
        if kept_edits
    ]


def _in_order(in_splits: Mapping[str, int]) -> dict[str, int]:
    return {str(split): in_splits[split] for split in SPLITS}


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 2) if whole else None
