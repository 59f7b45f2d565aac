"""Plots for the reports: the door to matplotlib. Equal rows give equal bytes, whatever style the user has set."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from assets.reports.markdown import Rows

_MAIN, _LOSS, _SECOND, _THIRD = "#4f6d9a", "#c98a5b", "#8fae7f", "#a895bd"
_PARTS = (_MAIN, _LOSS, _SECOND, _THIRD)
_STROKES = ("-", "--", ":", "-.")
"""Of lines, when there are more than colors."""
_WIDTH_INCHES = 7
_MOST_BARS = 40
_COLORS = 32


def bars(rows: Sequence[Mapping[str, Any]], labels: Sequence[str], value: str, interval: str = "") -> bytes:
    """Return a PNG with one bar per row, from 0 to 1, and the interval of that name round its end where there is one."""
    shown = rows[:_MOST_BARS]
    with _png(0.9 + 0.4 * len(shown)) as plot:
        places = range(len(shown), 0, -1)
        lengths = [float(row[value] or 0.0) for row in shown]
        plot.axes.barh(places, lengths, color=_MAIN)
        bounds = [(row.get(interval) or (length, length)) for row, length in zip(shown, lengths, strict=True)]
        plot.axes.hlines(places, [low for low, _ in bounds], [high for _, high in bounds], color=_LOSS, linewidth=2)
        _name(plot, places, [_label(row, labels) for row in shown])
        for place, length, (_, high) in zip(places, lengths, bounds, strict=True):
            plot.axes.annotate(
                f"{length:.3f}", (max(length, high), place), (3, 0), textcoords="offset points", va="center"
            )
        plot.axes.set_xlim(0, 1.12)
        plot.axes.set_xlabel(value if len(shown) == len(rows) else f"{value}; {len(shown)} of {len(rows)} rows")
    return plot.image


def funnel(steps: Rows) -> bytes:
    """Return a PNG with a bar for every step on the way from rows to splits, losses in another color."""
    shown = [step for step in steps if step["number"]][:_MOST_BARS]
    with _png(1.0 + 0.27 * len(shown)) as plot:
        for name, color, is_loss in (("there at this step", _MAIN, False), ("lost at this step", _LOSS, True)):
            bars = {len(shown) - place: step for place, step in enumerate(shown) if step["is_loss"] == is_loss}
            numbers = [step["number"] for step in bars.values()]
            container = plot.axes.barh([*bars], numbers, color=color, label=name)
            plot.axes.bar_label(container, [f"{number:,}" for number in numbers], padding=3, fontsize=8)
        _name(plot, range(len(shown), 0, -1), [str(step["step"]) for step in shown], fontsize=8)
        plot.axes.margins(x=0.12)
        plot.axes.set_xlabel("rows and edits")
        _legend_above(plot, 2)
    return plot.image


def histogram(bins: Rows, tokenizer: str) -> bytes:
    """Return a PNG with the number of edits by their tokens before and after, in bins of powers of two."""
    edges = sorted({row["tokens_from"] for row in bins})
    starts = [1 << power for power in range(edges[0].bit_length() - 1, edges[-1].bit_length())]
    with _png(3.2) as plot:
        for shift, (side, color) in enumerate((("pre", _MAIN), ("post", _SECOND))):
            counts = {row["tokens_from"]: row["edits"] for row in bins if row["side"] == side}
            # half a bin wide on the scale of the axis
            lefts = [start * 2 ** (0.08 + 0.42 * shift) for start in starts]
            widths = [start * (2 ** (0.5 + 0.42 * shift) - 2 ** (0.08 + 0.42 * shift)) for start in starts]
            heights = [counts.get(start, 0) for start in starts]
            plot.axes.bar(lefts, heights, widths, align="edge", color=color, label=side)
        plot.axes.set_xscale("log", base=2)
        plot.axes.set_xticks([*starts, starts[-1] * 2], [f"{tick:,}" for tick in [*starts, starts[-1] * 2]], fontsize=8)
        plot.axes.minorticks_off()
        plot.axes.set_xlabel(f"tokens by {tokenizer}")
        plot.axes.set_ylabel("edits")
        plot.axes.legend(frameon=False)
    return plot.image


def shares(rows: Rows, name: str, value: str, unit: str = "% of kept edits") -> bytes:
    """Return a PNG with a bar per row, from 0 to 100 percent."""
    shown = sorted(rows, key=lambda row: (-row[value], row[name]))[:_MOST_BARS]
    with _png(0.8 + 0.3 * len(shown)) as plot:
        places = range(len(shown), 0, -1)
        container = plot.axes.barh(places, [row[value] for row in shown], color=_MAIN)
        _name(plot, places, [str(row[name]) for row in shown], fontsize=8)
        plot.axes.bar_label(container, fmt="%.1f", padding=3, fontsize=8)
        plot.axes.set_xlim(0, 112)
        plot.axes.set_xlabel(unit)
    return plot.image


def stack_bars(rows: Rows, labels: Sequence[str], values: Sequence[str], unit: str) -> bytes:
    """Return a PNG with a bar per row, made of one part for every one of `values`."""
    shown = rows[:_MOST_BARS]
    with _png(0.9 + 0.3 * len(shown)) as plot:
        places = range(len(shown), 0, -1)
        lefts = [0.0] * len(shown)
        for value, color in zip(values, _PARTS, strict=False):
            widths = [float(row[value] or 0) for row in shown]
            container = plot.axes.barh(places, widths, left=lefts, color=color, label=value)
            lefts = [offset + width for offset, width in zip(lefts, widths, strict=True)]
        if shown:
            plot.axes.bar_label(container, [f"{offset:,.0f}" for offset in lefts], padding=3, fontsize=8)
        _name(plot, places, [_label(row, labels) for row in shown], fontsize=8)
        plot.axes.margins(x=0.12)
        plot.axes.set_xlabel(unit)
        if len(values) > 1:
            _legend_above(plot, len(values))
    return plot.image


def group_bars(rows: Rows, labels: Sequence[str], values: Sequence[str], unit: str) -> bytes:
    """Return a PNG with a bar for every one of `values` in every row, on a scale of powers of ten."""
    shown = rows[:_MOST_BARS]
    thickness = 0.8 / len(values)
    with _png(0.9 + 0.2 * len(values) * max(1, len(shown))) as plot:
        for number, value in enumerate(values):
            places = [len(shown) - row - number * thickness for row in range(len(shown))]
            color = _PARTS[number % len(_PARTS)]
            container = plot.axes.barh(
                places, [float(row[value] or 0) for row in shown], thickness, color=color, label=value
            )
            plot.axes.bar_label(container, fmt="%.0f", padding=3, fontsize=8)
        middle = (len(values) - 1) * thickness / 2
        middles = [len(shown) - row - middle for row in range(len(shown))]
        _name(plot, middles, [_label(row, labels) for row in shown], fontsize=8)
        plot.axes.set_xscale("symlog", linthresh=1)
        plot.axes.margins(x=0.12)
        plot.axes.set_xlabel(unit)
        _legend_above(plot, len(values))
    return plot.image


def curves(lines: Mapping[str, Sequence[tuple[float, float]]], across: str, upwards: str) -> bytes:
    """Return a PNG with a line for each of `lines`, which are points; those without any are left out, and all after sixteen."""
    with _png(3.2) as plot:
        for number, (name, points) in enumerate(list(lines.items())[: len(_PARTS) * len(_STROKES)]):
            if points:
                color, stroke = _PARTS[number % len(_PARTS)], _STROKES[number // len(_PARTS)]
                plot.axes.plot(*zip(*points, strict=True), color=color, linestyle=stroke, label=name, linewidth=1.4)
        plot.axes.set_xlabel(across)
        plot.axes.set_ylabel(upwards)
        # those of policy gradients fall below it
        if all(height >= 0 for points in lines.values() for _, height in points):
            plot.axes.set_ylim(bottom=0)
        plot.axes.legend(frameon=False)
    return plot.image


def embed_png(name: str, image: bytes) -> str:
    """Return a PNG as Markdown that needs no file."""
    return f"![{name}](data:image/png;base64,{base64.b64encode(image).decode()})"


def _name(plot: "_Plot", places: Sequence[float], names: Sequence[str], **more: Any) -> None:
    # a dollar in the name of somebody is no formula
    plot.axes.set_yticks(list(places), list(names), parse_math=False, **more)


def _label(row: Mapping[str, Any], labels: Sequence[str]) -> str:
    return ", ".join(str(row[label]) for label in labels)


def _legend_above(plot: "_Plot", columns: int) -> None:
    # bars of any length leave no corner free for sure
    plot.axes.figure.legend(loc="outside upper center", ncols=columns, frameon=False, fontsize=8)


@dataclass
class _Plot:
    axes: Any
    image: bytes = b""


@contextmanager
def _png(height_inches: float) -> Iterator[_Plot]:
    import matplotlib.style
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with matplotlib.style.context("default"):
        figure = Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained", dpi=100)
        plot = _Plot(figure.subplots())
        yield plot
        plot.axes.spines[["top", "right"]].set_visible(False)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
        stream = BytesIO()
        # each is stored with every run: a few colors take a third of the bytes
        picture.quantize(_COLORS, dither=Image.Dither.NONE).save(stream, "png", optimize=True)
        plot.image = stream.getvalue()
