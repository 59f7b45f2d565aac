"""The plots of the reports."""

import base64
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import pytest

from assets.reports.plots import bars, embed_png, funnel, group_bars, histogram, shares, stack_bars

STEPS = [{"step": f"dropped: reason {number}", "number": number * 1000, "is_loss": number % 2} for number in range(60)]
BINS = [
    {"side": side, "tokens_from": 1 << power, "edits": power * 7} for power in range(11) for side in ("pre", "post")
]
SHARES = [{"license": f"License-{number}", "percent_of_kept": 100 / 60} for number in range(60)]
PRECISION = [{"language": "python", "dataset": f"set{number}", "precision": 0.5} for number in range(30)]
PARTS = [{"failure": f"class {number}", "general": number, "literal": None} for number in range(60)]
TIMES = [{"language": f"language {number}", "p50": 10 * number + 0.5, "p90": 10**number} for number in range(6)]
DRAWN: dict[str, Callable[[], bytes]] = {
    "bars": lambda: bars(PRECISION, ["language", "dataset"], "precision"),
    "bars of more rows than are drawn": lambda: bars(PRECISION * 40, ["language", "dataset"], "precision"),
    "funnel": lambda: funnel(STEPS),
    "grouped": lambda: group_bars(TIMES, ["language"], ["p50", "p90"], "milliseconds"),
    "histogram": lambda: histogram(BINS, "characters/4"),
    "shares": lambda: shares(SHARES, "license", "percent_of_kept"),
    "stacked": lambda: stack_bars(PARTS, ["failure"], ["general", "literal"], "attempts"),
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_plot_of_many_rows_is_a_small_png_and_the_same_each_time(draw: Callable[[], bytes]) -> None:
    first = draw()
    assert (first[:8], draw() == first, len(first) < 60_000) == (b"\x89PNG\r\n\x1a\n", True, True)


def test_a_style_of_the_user_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = DRAWN["grouped"]()
    monkeypatch.setitem(mpl.rcParams, "axes.facecolor", "black")
    monkeypatch.setitem(mpl.rcParams, "font.size", 30)
    assert DRAWN["grouped"]() == plain


@pytest.mark.parametrize(
    "draw",
    [
        lambda: funnel([]),  # nothing is in it
        lambda: funnel([{"step": "rows", "number": 0, "is_loss": False}]),
        lambda: bars([], ["language"], "precision"),  # no attempt was made
        lambda: bars([{"language": "java", "precision": None}], ["language"], "precision"),  # none was valid
        lambda: group_bars([], ["language"], ["p50"], "milliseconds"),
        lambda: group_bars([{"language": "java", "p50": None}], ["language"], ["p50"], "milliseconds"),
        lambda: stack_bars([], ["failure"], ["attempts"], "attempts"),
        lambda: histogram([{"side": "pre", "tokens_from": 4, "edits": 1}], "o200k_base"),  # one bin, one side
        lambda: shares([{"license": "MIT", "percent_of_kept": 100.0}], "license", "percent_of_kept"),
    ],
)
def test_a_plot_of_next_to_nothing_is_drawn(draw: Callable[[], bytes]) -> None:
    assert draw().startswith(b"\x89PNG")


def test_a_name_that_looks_like_a_formula_is_drawn_as_it_is() -> None:
    rows = [{"class": "$\\frac$", "pass@1": 0.5}]
    assert bars(rows, ["class"], "pass@1").startswith(b"\x89PNG")
    assert stack_bars([{"class": "$\\frac$", "n": 1}], ["class"], ["n"], "attempts").startswith(b"\x89PNG")


def test_an_interval_is_drawn_where_it_is_known() -> None:
    plain = bars([{"name": "m", "pass@1": 0.5, "interval": None}], ["name"], "pass@1", "interval")
    assert plain == bars([{"name": "m", "pass@1": 0.5}], ["name"], "pass@1")
    assert plain != bars([{"name": "m", "pass@1": 0.5, "interval": (0.4, 0.7)}], ["name"], "pass@1", "interval")


def test_shares_of_the_same_rows_in_another_order_are_the_same_plot() -> None:
    rows: list[dict[str, Any]] = [{"license": name, "percent_of_kept": 25.0} for name in "badc"]
    assert shares(rows, "license", "percent_of_kept") == shares(rows[::-1], "license", "percent_of_kept")


def test_an_embedded_plot_needs_no_file() -> None:
    content = base64.b64encode(b"\x89PNG").decode()
    assert embed_png("marv.funnel", b"\x89PNG") == f"![marv.funnel](data:image/png;base64,{content})"
