"""Plots of the counts in records: what became of the rows of an artifact, and how many there are in each partition.

Not here: how a plot is drawn (`assets.reports.plots`), and plots of other numbers, which are beside their assets.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.reports.plots import embed_png, funnel, stack_bars
from graftline.core.build import Built

_LEFT_OUT = ("dropped", "not_kept", "invalid", "unsound")
"""Of names of counts: what stands before the reason; `unsound` is what version 0.1.0 called `invalid`."""
_STEPS = {"rows_in": "came in", "rows": "rows", "labels": "labels"}
_FEWEST = 2


def outcomes(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a plot of what became of rows; nothing where there is only one number to be seen."""
    steps = [{"step": shown, "number": counts.get(name, 0), "is_loss": False} for name, shown in _STEPS.items()]
    steps += [{"step": reason, "number": number, "is_loss": True} for _, reason, number in left_out(counts)]
    if sum(step["number"] > 0 for step in steps) < _FEWEST:
        return {}
    return {"plot": dg.MetadataValue.md(embed_png("outcomes", funnel(steps)))}


def left_out(counts: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """Return how rows were left out, for which reason, and how many."""
    parts = [(name.partition("."), number) for name, number in counts.items()]
    return [(how, reason, number) for (how, _, reason), number in parts if how in _LEFT_OUT and number]


def rows_by_partition(artifacts: Mapping[str, Built]) -> dict[str, Any]:
    """Return a plot of the rows of every partition of a run, and of those left out; nothing where there is none."""
    rows = [{"partition": key, **_kept_and_lost(built.record.counts)} for key, built in artifacts.items()]
    values = [name for name in ("rows", "left out") if any(row[name] for row in rows)]
    if not values:
        return {}
    return {"plot": dg.MetadataValue.md(embed_png("partitions", stack_bars(rows, ["partition"], values, "rows")))}


def _kept_and_lost(counts: Mapping[str, int]) -> dict[str, int]:
    return {"rows": counts.get("rows", 0), "left out": sum(number for _, _, number in left_out(counts))}
