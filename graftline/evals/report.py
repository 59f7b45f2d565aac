"""Reports of an evaluation: a page of Markdown, and a page of HTML to look at every attempt.

The page of HTML is one file, which asks nothing of any network. What stands in it comes from datasets and models, and
is not trusted: texts lie in a block of JSON that no markup ends, and are shown as texts alone; the policy of the page
lets no other script run, and nothing be loaded.
"""

import base64
import hashlib
import html
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import combinations
from string import Template
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.codemod.equality import Level
from graftline.core.markdown import plain_table
from graftline.core.text_diff import escape_controls, unified_diff
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case
from graftline.evals.metrics import (
    LEAST_TASKS,
    MEASURES,
    Comparison,
    Metrics,
    Selection,
    compare,
    summarize,
    summarize_by,
    summarize_changes,
    summarize_selections,
)

_MOST_GROUPS = 60
_MOST_COMPARED = 8
_MOST_REASONS, _REASON_CHARACTERS = 20, 200
_MOST_CHARACTERS = 20_000
"""Of a text on the page of HTML."""
_OUTCOMES = ("solved", "over-applied", "not solved", "not readable", "nothing known")


def markdown_page(
    name: str,
    description: str,
    attempts: Sequence[Attempt],
    left_out: Mapping[str, str] | None = None,
    plots: Mapping[str, str] | None = None,
    note: str = "",
) -> str:
    """Return the report as Markdown.

    `left_out` are the reasons why tasks are not attempted, by their ids, `plots` file names by what they show (`pass`
    and `classes`), and `note` says of the tasks what is to be known of them.
    """
    overall = summarize(attempts)
    by_class = summarize_by(attempts, lambda attempt: attempt.edit_class)
    parts = [
        f"# Evaluation {name}\n",
        f"{description}\n" if description else "",
        f"{note[:1].upper()}{note[1:]}.\n" if note else "",
        overview(overall),
        _plot(plots, "pass", "share of tasks that are solved, with 95 % intervals"),
        "pass@1 is the share of attempts that make the target, over-application the share of applied actions that change"
        " something else as well. Intervals are those of 95 %, by bootstrap over tasks. Attempts of which nothing is known,"
        " because a machine failed, are in none of the shares.\n",
        _describe_changes(attempts),
        _describe_selections(attempts),
        "## Who is better\n",
        comparisons(attempts),
        "## By language\n",
        by_group(summarize_by(attempts, lambda attempt: attempt.language)),
        "## By class of edit\n",
        _plot(plots, "classes", "pass@1 by class of edit"),
        by_group(by_class),
        "## How near attempts come\n",
        levels(by_class),
        "Attempts by the level of their text: it is the target to the byte (exact), but for white space (ws) or as a syntax"
        " tree (ast), it is other code that passes the tests of the task (tests), it is nearer than the text before was"
        " (partial), or not (none). pass@1 counts the first four.\n",
        "## Where attempts end\n",
        causes(overall),
        _describe_left_out(left_out or {}),
    ]
    return "\n".join(part for part in parts if part)


def overview(metrics: Sequence[Metrics]) -> str:
    """Return a table with one row for each solver."""
    return plain_table(
        [
            {
                **_short_row(row),
                "reward": format_share(row.reward),
                "coverage": format_share(row.coverage),
                "cost in USD": "not known" if row.cost_usd is None else f"{row.cost_usd:.4g}",
                "tokens": row.tokens,
                "median s": format_share(row.latency_median_s),
                "p95 s": format_share(row.latency_p95_s),
            }
            for row in metrics
        ]
    )


def _describe_changes(attempts: Sequence[Attempt]) -> str:
    """Return the section on changes of whole repositories; empty where nobody attempted one."""
    rows = [
        {
            "solver": row.solver,
            "changes": row.places.tasks,
            "R@P90": format_share(row.places.recall_at_p90),
            "solved": format_share(row.places.solved),
            "recall": format_share(row.places.recall),
            "precision": format_share(row.places.precision),
            "false in 1,000 files": f"{row.places.false_per_1000:g}",
            "tokens a change": "not known" if row.tokens is None else f"{row.tokens:.0f}",
            "seconds a change": "-" if row.seconds is None else f"{row.seconds:.1f}",
        }
        for row in summarize_changes(attempts)
    ]
    if not rows:
        return ""
    return (
        f"## Whole repositories\n\n{plain_table(rows)}\n"
        "A place is a region of lines; it counts if its text is that of the change. R@P90 is the recall of the places, counted as 0"
        " where precision is below 0.9; solved is the share of changes with both of at least 0.9, and false what changes in files"
        " that are to stay. Places that a solver was shown do not count.\n"
    )


def _describe_selections(attempts: Sequence[Attempt]) -> str:
    """Return the section on choosing of several attempts; empty where there is one of each."""
    rows = [
        {
            "solver": row.solver,
            "of": row.of,
            "tasks": row.tasks,
            "attempts at each": row.attempts,
            "one attempt": _share_of(row.single, row, "single"),
            "chosen by agreement": _share_of(row.chosen, row, "chosen"),
            "chosen by the target": _share_of(row.best, row, "best"),
            "three of four agree": row.agreed,
            "right of those": row.agreed_right,
        }
        for row in summarize_selections(attempts)
    ]
    if not rows:
        return ""
    return (
        f"## The best of several attempts\n\n{plain_table(rows)}\n"
        "Shares of tasks that are solved, and in brackets R@P90 of those attempts at changes of repositories. By agreement, the attempt is taken that most"
        " others do the same as, which needs no target; by the target, the best one.\n"
    )


def _share_of(share: float | None, row: Selection, side: str) -> str:
    return format_share(share) + (f" ({format_share(row.places[side])})" if row.places else "")


def by_group(metrics: Sequence[Metrics]) -> str:
    """Return a table with one row for each solver in each group."""
    rows = [{"of": row.of, **_short_row(row)} for row in metrics]
    more = f"\n*and {len(rows) - _MOST_GROUPS} more rows, which summary.json has*\n" if len(rows) > _MOST_GROUPS else ""
    return plain_table(rows[:_MOST_GROUPS]) + more


def comparisons(attempts: Sequence[Attempt]) -> str:
    """Return the difference of any two solvers, by the tasks of which both have attempts that count."""
    names = list(dict.fromkeys(attempt.solver for attempt in attempts))
    pairs = [(first, second) for second, first in combinations(names[:_MOST_COMPARED], 2)]
    omitted = ", ".join(names[_MOST_COMPARED:])
    more = f"\n*summary.json compares {omitted} as well*\n" if omitted else ""
    return plain_table([comparison_row(compare(attempts, first, second)) for first, second in pairs]) + more


def compare_in_detail(attempts: Sequence[Attempt], first: str, second: str) -> list[Comparison]:
    """Return two solvers compared by all measures, and by language and class where there are several."""
    rows = [compare(attempts, first, second, measure) for measure in MEASURES]
    for key in ("language", "edit_class"):
        names = sorted({getattr(attempt, key) for attempt in attempts})
        for name in names if len(names) > 1 else ():
            group = [attempt for attempt in attempts if getattr(attempt, key) == name]
            rows.append(compare(group, first, second, "verified", name))
    return [row for row in rows if row.tasks]


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as the row of a table."""
    return {
        "solver": comparison.first,
        "against": comparison.second,
        "of": comparison.of,
        "measure": comparison.measure,
        "tasks": comparison.tasks,
        "its own": format_share(comparison.of_first),
        "the other's": format_share(comparison.of_second),
        "difference": format_difference(comparison.difference),
        "95 % interval": format_interval(comparison.interval),
        "verdict": verdict(comparison),
    }


def verdict(comparison: Comparison) -> str:
    """Return what a comparison says in a word; of over-application less is better, and of few tasks nothing is said."""
    if comparison.interval is None:
        return "not known"
    if comparison.tasks < LEAST_TASKS:
        return "too few tasks"
    low, high = comparison.interval
    if comparison.measure == "over_application":
        low, high = -high, -low
    return "better" if low > 0 else "worse" if high < 0 else "no difference shown"


def levels(metrics: Sequence[Metrics]) -> str:
    """Return a table of how many attempts of each solver in each group reached which level."""
    return plain_table(
        [
            {"of": row.of, "solver": row.solver, **{str(level): row.levels.get(level, 0) for level in Level}}
            for row in metrics[:_MOST_GROUPS]
        ]
    )


def count_reasons(left_out: Mapping[str, str]) -> dict[str, int]:
    """Return how many tasks are left out by which reason, without what each reason says of its task."""
    return dict(sorted(Counter(reason.partition(":")[0] for reason in left_out.values()).items()))


def _describe_left_out(left_out: Mapping[str, str]) -> str:
    if not left_out:
        return ""
    rows = Counter(left_out.values()).most_common(_MOST_REASONS)
    table = plain_table([{"tasks": count, "reason": reason[:_REASON_CHARACTERS]} for reason, count in rows])
    return f"## Tasks that are not attempted\n\n{table}\nBy their tests they are not valid on this machine; summary.json names them.\n"


def causes(metrics: Sequence[Metrics]) -> str:
    """Return a table of how many attempts of each solver ended by what."""
    names = sorted({cause for row in metrics for cause in row.causes})
    # no solver of a file is called by two words
    return plain_table(
        [{"ended by": name, **{row.solver: row.causes.get(name, 0) for row in metrics}} for name in names]
    )


def format_share(value: float | None) -> str:
    """Return a share for people; None is not 0."""
    return "-" if value is None else f"{value:.3f}"


def format_difference(value: float | None) -> str:
    """Return a difference for people."""
    return "-" if value is None else f"{value:+.3f}"


def format_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval for people."""
    return "-" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}"


def _short_row(metrics: Metrics) -> dict[str, Any]:
    interval = metrics.interval
    return {
        "solver": metrics.solver,
        "tasks": metrics.tasks,
        "attempts": metrics.n,
        "nothing known": metrics.n_infra,
        **{f"pass@{k}": format_share(value) for k, value in metrics.pass_at.items()},
        "95 % of pass@1": "-" if interval is None else f"{format_share(interval[0])} to {format_share(interval[1])}",
        "exact": format_share(metrics.exact),
        "over-application": format_share(metrics.over_application),
        "also right on unseen code": format_share(metrics.right_on_unseen),
    }


def _plot(plots: Mapping[str, str] | None, kind: str, title: str) -> str:
    return f"![{title}]({plots[kind]})\n" if plots and kind in plots else ""


def browser_page(name: str, cases: Sequence[Case], attempts: Sequence[Attempt]) -> str:
    """Return the page of HTML; `cases` are those of the attempts."""
    script, style, template = (_resource(file) for file in ("browser.js", "browser.css", "browser.html"))
    by_id = {case.id: case for case in cases}
    data = {
        "tasks": {case.id: _show_task(case) for case in cases},
        "attempts": [_show_attempt(attempt, by_id[attempt.task_id]) for attempt in attempts],
        "outcomes": list(_OUTCOMES),
    }
    # half surrogate pairs are escaped as well, or the file could not be written
    text = json.dumps(data, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    policy = f"default-src 'none'; script-src '{_sha(script)}'; style-src '{_sha(style)}'"
    title = html.escape(f"Evaluation {name}")
    return Template(template).substitute(policy=html.escape(policy), title=title, style=style, data=text, script=script)


def outcome_of(attempt: Attempt) -> str:
    """Return in which of the outcomes that the page tells apart an attempt ended."""
    if attempt.is_infra:
        return "nothing known"
    if attempt.is_verified:
        return "solved"
    if not attempt.actions and attempt.after is None and attempt.places is None:
        return "not readable"
    return "over-applied" if attempt.over_application else "not solved"


def _show_task(case: Case) -> dict[str, Any]:
    task = case.task
    return {
        "class": case.edit_class,
        "language": task.language,
        "instruction": _cut(task.instruction),
        "before": _cut(task.before),
        "target": _diff(task.before, task.target),
        "origin": _cut(task.origin),
    }


def _show_attempt(attempt: Attempt, case: Case) -> dict[str, Any]:
    actions = [ACTION.dump_python(action, mode="json") for action in attempt.actions]
    return {
        "solver": attempt.solver,
        "task": attempt.task_id,
        "attempt": attempt.attempt,
        "outcome": outcome_of(attempt),
        "cause": _cut(attempt.cause),
        "reward": attempt.reward,
        "unseen": attempt.right_on_unseen,
        "said": _cut(attempt.text),
        "action": _cut("\n".join(json.dumps(action, ensure_ascii=False, indent=1) for action in actions)),
        "diff": None if attempt.after is None else _diff(case.task.before, attempt.after),
        "off": None if attempt.after is None or attempt.is_verified else _diff(case.task.target, attempt.after),
    }


def _diff(before: str, after: str) -> str:
    return _cut("".join([*unified_diff(before, after, "", "")][2:]))


def _cut(text: str) -> str:
    more = len(text) - _MOST_CHARACTERS
    return escape_controls(text[:_MOST_CHARACTERS]) + (f"\n… and {more} more characters" if more > 0 else "")


def _resource(name: str) -> str:
    return files("graftline.evals").joinpath(name).read_text("utf-8")


def _sha(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
