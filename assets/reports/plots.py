"""Plots for the reports: the door to matplotlib."""

import base64
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any


def bars(rows: Sequence[Mapping[str, Any]], labels: Sequence[str], value: str) -> bytes:
    """Return a PNG with one bar per row, from 0 to 1; the same rows give the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.9 + 0.4 * len(rows)), layout="constrained")
    axes = figure.subplots()
    names = [", ".join(str(row[label]) for label in labels) for row in rows]
    heights = [float(row[value] or 0.0) for row in rows]
    drawn = axes.barh(names[::-1], heights[::-1], color="#4f6d9a")
    axes.bar_label(drawn, fmt="%.3f", padding=3)
    axes.set_xlim(0, 1.12)
    axes.set_xlabel(value)
    axes.spines[["top", "right"]].set_visible(False)
    stream = BytesIO()
    FigureCanvasAgg(figure).print_png(stream, metadata={"Software": None})
    return stream.getvalue()


def embedded(path: Path) -> str:
    """Return the PNG at `path` as Markdown that needs no file."""
    return f"![{path.stem}](data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()})"
