"""The page of an evaluation: what it came to, how sure that is, and why seeds have no reward."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from graftline.core.markdown import plain_table

_MOST_SEEDS = 20


def evaluation_page(name: str, summary: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the page as Markdown."""
    parts = [
        f"# Evaluation of {name}\n",
        f"By the policy `{json.dumps(summary['policy'], sort_keys=True)}`.\n",
        figures(summary),
        "## Causes\n",
        causes(rows),
        "## The lowest rewards\n",
        lowest(rows),
    ]
    return "\n".join(parts)


def figures(summary: Mapping[str, Any]) -> str:
    """Return what the evaluation came to, as a table."""
    interval = summary["interval"]
    shown = {
        "mean reward": number(summary["mean_reward"]),
        "95 % interval": "not known" if interval is None else " to ".join(map(number, interval)),
        "seeds with a reward that counts": f"{summary['valid']} of {summary['total']}",
        "coverage": number(summary["coverage"]),
        "cost in USD": number(summary["cost_usd"]),
        "tokens": "not known" if summary["tokens"] is None else f"{summary['tokens']:,}",
    }
    if summary["floor"] is not None or summary["ceiling"] is not None:
        shown["doing nothing earns"] = number(summary["floor"])
        shown["the reference solution earns"] = number(summary["ceiling"])
        shown["mean between the two"] = number(summary["mean_normalised"])
    return plain_table([{"figure": figure, "value": value} for figure, value in shown.items()])


def causes(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return why rollouts ended otherwise than they should, and how many of those have a reward that counts."""
    ended = Counter(map(_ending, rows))
    counting = Counter(_ending(row) for row in rows if row["reward_valid"])
    return plain_table(
        [
            {"cause": cause, "ended as": status, "seeds": number, "with a reward that counts": counting[cause, status]}
            for (cause, status), number in sorted(ended.items())
        ]
    )


def lowest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the seeds to look at first: those without a reward that counts, then those with the least."""
    unknown = [row for row in rows if not row["reward_valid"]]
    known = sorted((row for row in rows if row["reward_valid"]), key=lambda row: (row["reward"], row["seed"]))
    return plain_table(
        [
            {
                "seed": row["seed"],
                "task": row["task_id"],
                "reward": row["reward"] if row["reward_valid"] else None,
                "ended as": row["success_status"] or row["status"],
                "said": row["error"] or "",
            }
            for row in (*unknown, *known)[:_MOST_SEEDS]
        ]
    )


def _ending(row: Mapping[str, Any]) -> tuple[str, str]:
    return row["failure_cause"] or "none", row["success_status"] or "not known"


def number(value: float | None) -> str:
    """Return a figure for people; None is not 0."""
    return "not known" if value is None else f"{value:.4g}"
