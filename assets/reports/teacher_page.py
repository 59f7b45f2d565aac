"""The page of the teachers, and what it says of how long they took."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assets.reports.markdown import Rows, picture
from graftline.core.markdown import table
from graftline.rollouts.trajectory import AttemptTime

_ORACLES = frozenset({"induction"})
"""Teachers that see the text after."""


def teacher_page(marts: Mapping[str, Rows], times: Rows) -> str:
    """Return the page of the teachers; `times` are the rows of `time_rows`."""
    precision, failures, srl = (marts[f"teacher_{name}"] for name in ("precision", "failures", "srl"))
    return "\n".join(
        [
            "# Teachers",
            "",
            "Precision is verified over valid attempts. An attempt is verified when the text it reaches is the target"
            " (in bytes, but for blanks, or as a tree), or the tests of the task pass. An attempt without a reward"
            " says nothing about the teacher (the machine was at fault) and is not valid. General are attempts in which"
            " every action leaves something free; literal ones memorise their example.",
            "",
            "## By language and dataset",
            "",
            *_precision(precision),
            picture("precision.png", "precision by language and dataset"),
            *_comparison(marts["teacher_comparison"]),
            "## By level and generality",
            "",
            "Share of the valid attempts of a teacher.",
            "",
            table(marts["teacher_levels"]),
            picture("levels.png", "valid attempts by the level they reached"),
            "## Failures by class",
            "",
            "The class is the cause for which the teacher gave up, or else how the attempt ended.",
            "",
            table(failures),
            *([picture("failures.png", "attempts that are not verified, by class")] if failures else []),
            "## What single actions look like",
            "",
            "By form of the action (`pattern` with its rewrite, or a whole `rule`) and verdict of the sandbox.",
            "",
            table(marts["teacher_steps"]),
            "## What actions do elsewhere",
            "",
            "Of the actions that were applied. `nothing_unwanted`: share of those that change nothing in the task's own"
            " text but what is wanted. `no_foreign_hit`: share of those that change nothing in the background corpus;"
            " `over_out`: places they change in 100,000 characters of it. `idempotent`: share of those for which twice"
            " is the same as once. `mdl`: description length over that of the literal rules for the same places.",
            "",
            table(marts["teacher_measures"]),
            picture("over_out.png", "steps by how often their actions change foreign code"),
            "## Similarity to the gold action",
            "",
            "SRL similarity of canonical actions, in tenths, where a gold action is known. It says nothing of right and"
            " wrong, and no reward contains it.",
            "",
            table(srl),
            *([picture("srl.png", "steps by similarity to the gold action")] if srl else []),
            "## Milliseconds",
            "",
            "By the wall clock of the machine that made the attempts. `attempt` is all of one, sandbox and measures"
            " included; `answer` is what the teacher took for one step.",
            "",
            table(times) if times else "*not measured*\n",
            *([picture("milliseconds.png", "milliseconds per attempt and per answer")] if times else []),
        ]
    )


def _precision(rows: Rows) -> list[str]:
    """Return the precision of teachers that see the text after apart from that of those that are told what to do."""
    oracles = [row for row in rows if row["teacher"] in _ORACLES]
    of_instructions = [row for row in rows if row["teacher"] not in _ORACLES]
    lines = []
    if of_instructions:
        lines += ["Of teachers that are told what to do, and do not see the text after:", "", table(of_instructions)]
    if oracles:
        lines += [
            "Induction is an oracle: it sees the text after, and looks for rules that lead there. Its precision says which edits"
            " rules can make, not how well anybody does what an instruction says.",
            "",
            table(oracles),
        ]
    return lines


def _comparison(rows: Rows) -> list[str]:
    if not rows:
        return []
    return [
        "## Side by side",
        "",
        "On the tasks that every teacher attempted. `solved` is the share of tasks with a verified attempt, `precision`"
        " that of attempts. Tokens, cost and latency are those of all attempts, the failed ones included, and are missing"
        " where no language model was asked or none has a price; latency is that of all answers of an attempt.",
        "",
        table(rows),
    ]


def time_rows(times: Iterable[AttemptTime]) -> list[dict[str, Any]]:
    """Return the percentiles of how long attempts and single answers took, by teacher and language."""
    attempts, answers = defaultdict[tuple[str, str], list[float]](list), defaultdict[tuple[str, str], list[float]](list)
    for time in times:
        attempts[time.teacher, time.language].append(time.attempt_ms)
        answers[time.teacher, time.language] += time.answers_ms
    return [
        {
            "teacher": teacher,
            "language": language,
            "attempts": len(durations),
            **_percentiles("attempt", durations),
            "answers": len(answers[teacher, language]),
            **_percentiles("answer", answers[teacher, language]),
        }
        for (teacher, language), durations in sorted(attempts.items())
    ]


def _percentiles(prefix: str, values: Sequence[float]) -> dict[str, float | None]:
    """Return values that occur: at least the named share of all is not greater."""
    ordered = sorted(values)
    return {
        f"{prefix}_p{percent}": round(ordered[-(-len(ordered) * percent // 100) - 1], 1) if ordered else None
        for percent in (50, 90)
    }
