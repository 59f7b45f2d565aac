"""The page of an evaluation as Markdown: figures of the contestants, who is better, and where attempts end."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from graftline.core.markdown import plain_table
from graftline.evals.attempt import Attempt
from graftline.evals.figures import LEAST_TASKS, MEASURES, Comparison, Figures, compared, figures, figures_by

_MOST_GROUPS = 60
_MOST_COMPARED = 8


def contest_page(
    name: str, description: str, attempts: Sequence[Attempt], plots: Mapping[str, str] | None = None
) -> str:
    """Return the page; `plots` are file names by what they show (`pass` and `classes`)."""
    shown = plots or {}
    overall = figures(attempts)
    parts = [
        f"# Evaluation {name}\n",
        f"{description}\n" if description else "",
        overview(overall),
        _plot(shown, "pass", "share of tasks that are solved, with 95 % intervals"),
        "pass@1 is the share of attempts that make the wanted text, over-application the share of applied actions that change"
        " something else as well. Intervals are those of 95 %, by bootstrap over tasks. Attempts of which nothing is known,"
        " because a machine failed, are in none of the shares.\n",
        "## Who is better\n",
        comparisons(attempts),
        "## By language\n",
        by_group(figures_by(attempts, _language)),
        "## By class of edit\n",
        _plot(shown, "classes", "pass@1 by class of edit"),
        by_group(figures_by(attempts, _edit_class)),
        "## Where attempts end\n",
        causes(overall),
    ]
    return "\n".join(part for part in parts if part)


def overview(found: Sequence[Figures]) -> str:
    """Return one row for each contestant."""
    return plain_table([_row(one) for one in found])


def by_group(found: Sequence[Figures]) -> str:
    """Return one row for each contestant in each group, those of most groups first."""
    rows = [{"of": one.of, **_short(one)} for one in found]
    more = f"\n*and {len(rows) - _MOST_GROUPS} more rows, which summary.json has*\n" if len(rows) > _MOST_GROUPS else ""
    return plain_table(rows[:_MOST_GROUPS]) + more


def comparisons(attempts: Sequence[Attempt]) -> str:
    """Return the difference of any two contestants, by the tasks of which both have attempts that count."""
    everybody = list(dict.fromkeys(attempt.contestant for attempt in attempts))
    names, left = everybody[:_MOST_COMPARED], everybody[_MOST_COMPARED:]
    pairs = [(first, second) for second, first in combinations(names, 2)]
    more = f"\n*summary.json compares {', '.join(left)} as well*\n" if left else ""
    return plain_table([comparison_row(compared(attempts, first, second)) for first, second in pairs]) + more


def comparison(attempts: Sequence[Attempt], first: str, second: str) -> list[Comparison]:
    """Return two contestants by all measures, and by language and class where there are several."""
    found = [compared(attempts, first, second, measure) for measure in MEASURES]
    for group in (_language, _edit_class):
        names = sorted({*map(group, attempts)})
        for name in names if len(names) > 1 else ():
            some = [attempt for attempt in attempts if group(attempt) == name]
            found.append(compared(some, first, second, "verified", name))
    return [one for one in found if one.tasks]


def comparison_row(found: Comparison) -> dict[str, Any]:
    """Return a comparison as the row of a table."""
    return {
        "contestant": found.first,
        "against": found.second,
        "of": found.of,
        "measure": found.measure,
        "tasks": found.tasks,
        "its own": number(found.of_first),
        "the other's": number(found.of_second),
        "difference": signed(found.difference),
        "95 % interval": between(found.interval),
        "verdict": verdict(found),
    }


def verdict(found: Comparison) -> str:
    """Return what a comparison says in a word; of over-application less is better, and of few tasks nothing is said."""
    if found.interval is None:
        return "not known"
    if found.tasks < LEAST_TASKS:
        return "too few tasks"
    low, high = found.interval
    if found.measure == "over_application":
        low, high = -high, -low
    return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def causes(found: Sequence[Figures]) -> str:
    """Return how many attempts of each contestant ended by what."""
    names = sorted({cause for one in found for cause in one.causes})
    # no contestant of a file is called by two words
    return plain_table(
        [{"ended by": name, **{one.contestant: one.causes.get(name, 0) for one in found}} for name in names]
    )


def number(value: float | None) -> str:
    """Return a share for people; None is not 0."""
    return "-" if value is None else f"{value:.3f}"


def signed(value: float | None) -> str:
    """Return a difference for people."""
    return "-" if value is None else f"{value:+.3f}"


def between(interval: tuple[float, float] | None) -> str:
    """Return an interval for people."""
    return "-" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def _row(found: Figures) -> dict[str, Any]:
    usd = "not known" if found.cost_usd is None else f"{found.cost_usd:.4g}"
    return {
        **_short(found),
        "reward": number(found.reward),
        "coverage": number(found.coverage),
        "cost in USD": usd,
        "tokens": found.tokens,
        "median s": number(found.latency_median_s),
        "p95 s": number(found.latency_p95_s),
    }


def _short(found: Figures) -> dict[str, Any]:
    low, high = found.interval or (None, None)
    return {
        "contestant": found.contestant,
        "tasks": found.tasks,
        "attempts": found.n,
        "nothing known": found.n_infra,
        **{f"pass@{k}": number(value) for k, value in found.pass_at.items()},
        "95 % of pass@1": "-" if low is None else f"{number(low)} to {number(high)}",
        "exact": number(found.exact),
        "over-application": number(found.over_application),
        "also right on unseen code": number(found.right_on_unseen),
    }


def _plot(plots: Mapping[str, str], kind: str, what: str) -> str:
    return f"![{what}]({plots[kind]})\n" if kind in plots else ""


def _language(attempt: Attempt) -> str:
    return attempt.language


def _edit_class(attempt: Attempt) -> str:
    return attempt.edit_class
