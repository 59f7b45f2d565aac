"""The page of the teachers, and what it says of how long they took."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from assets.reports.markdown import Row, Rows, picture
from graftline.codemod.equality import Level
from graftline.core.markdown import table
from graftline.rollouts.trajectory import AttemptTime

_ORACLES = frozenset({"induction", "memory"})
"""Teachers that see the text after, or know the right action."""

LEVELS: Mapping[str, tuple[str, str]] = {
    Level.EXACT: ("same bytes", "the text after, byte by byte"),
    Level.BLANKS: ("same but for blanks", "the text after, but for blanks at line ends and empty lines"),
    Level.TREE: ("same syntax tree", "another layout of the text after: the same tokens in the same tree"),
    Level.TESTS: ("tests pass", "another text, with which the tests of the task pass"),
    Level.PARTIAL: ("nearer", "not the text after, but nearer to it than the text before: not verified"),
    Level.NONE: ("no nearer", "nothing that brings the text nearer: not verified"),
}
"""What levels are called on the page, and what they mean."""

_SOURCES: Mapping[str, str] = {
    "human": "written by a person for this change",
    "commit": "the message of its commit, or the text of its pull request",
    "rule": "sentences of ours, made from rules or templates that do the change",
    "model": "written by a language model",
    "none": "nothing says what to do",
}

FAILURES: Mapping[str, str] = {
    "no_gold": "no right action is known",
    "no_candidate": "no rule found",
    "partial": "rules for a part of the change alone",
    "unreadable": "text that cannot be read",
    "too_long": "does not fit into the context of the model",
    "too_large": "text too long to parse",
    "too_different": "too many places differ",
    "repeated": "came to a text that was there before",
    "max_steps": "not done in the steps allowed",
    "max_failed": "too many failed steps in a row",
    "bad_format": "answer that cannot be read",
    "repeated_text": "came to a text that was there before",
    "no_match": "action matches nothing",
    "action_error": "action that ast-grep refuses",
    "cpu_timeout": "action took too long",
    "wall_timeout": "action took too long, on a busy machine",
    "out_of_memory": "action took too much memory",
    "output_flood": "action made too much text",
    "needs_cli": "action that only the command line can do",
    "gave_up": "gave up",
    "ok": "applied",
    "done": "done",
}
"""Why an attempt is not verified, and how it ended, in words."""

_WORDS: Mapping[str, str] = {
    "instruction_source": "instruction from",
    "no_reward": "attempts without a reward",
    "verified_steps": "verified steps",
    "mean_reward": "mean reward",
    "general": "by general actions",
    "cost_usd": "cost in USD",
    "share_of_tried": "share of attempts",
    "failure": "why it failed",
    "ending": "how it ended",
    "action_form": "form of the action",
    "verdict": "sandbox says",
    "mean_matches": "places matched, mean",
    "nothing_unwanted": "changes nothing else in its text",
    "no_foreign_hit": "changes no other code",
    "over_out_p50": "places in other code, median",
    "over_out_p90": "places in other code, 90 %",
    "over_out_max": "places in other code, most",
    "idempotent": "twice is once",
    "negatives_kept": "leaves counterexamples alone",
    "mdl_p50": "length against literal, median",
    "mean_support": "places put right, mean",
    "srl_from": "similarity from",
    "not_verified": "not verified",
    "verified_tasks": "tasks solved",
    "solved": "share of tasks solved",
    "prompt_tokens": "tokens read",
    "completion_tokens": "tokens written",
    "tokens_per_verified_step": "tokens written for a verified step",
    "usd_per_verified_step": "USD for a verified step",
    "latency_p50_s": "seconds, median",
    "latency_p90_s": "seconds, 90 %",
    "attempt_p50": "an attempt, median",
    "attempt_p90": "an attempt, 90 %",
    "answer_p50": "an answer, median",
    "answer_p90": "an answer, 90 %",
}
"""Names of columns in words, where the column is called otherwise."""


def teacher_page(marts: Mapping[str, Rows], times: Rows, terms: Mapping[str, str] | None = None) -> str:
    """Return the page of the teachers; `times` are the rows of `time_rows`, `terms` those of the answers of models, by
    teacher.
    """
    precision, failures, srl = (marts[f"teacher_{name}"] for name in ("precision", "failures", "srl"))
    return "\n".join(
        [
            "# Teachers",
            "",
            "A teacher attempts tasks. An attempt is **verified** when the text that it comes to is the text after, or the"
            " tests of the task pass; **precision** is verified attempts over all that are known. In brackets stands where the"
            " true share lies with 95 % confidence (Wilson's interval), were these attempts drawn at random from many like"
            " them. Of an attempt without a reward nothing is known (the machine was at fault), so it is counted and left"
            " out. The **mean reward** of the others is 1 for a verified attempt by a general action, less for a literal or"
            " a broad one, and at most 0.6 for one that only came nearer.",
            "",
            *_precision(precision, marts["teacher_levels"]),
            picture("precision.png", "precision by teacher, language, source of the instruction and dataset"),
            *_terms(terms or {}),
            *_comparison(marts["teacher_comparison"]),
            "## By general and literal actions",
            "",
            "A **general** attempt leaves something free in every action (a metavariable), so that it says something of other"
            " code as well; a **literal** one memorizes its example. Attempts that took no step have neither.",
            "",
            table(_by_actions(marts["teacher_levels"])),
            picture("levels.png", "valid attempts by the level they reached"),
            "## Failures by class",
            "",
            "The class is the cause for which the teacher gave up, or else how the attempt ended.",
            "",
            _table(failures),
            *([picture("failures.png", "attempts that are not verified, by class")] if failures else []),
            "## What single actions look like",
            "",
            "By form of the action (`pattern` with its rewrite, or a whole `rule`) and what the sandbox says of it.",
            "",
            _table(marts["teacher_steps"]),
            "## What actions do elsewhere",
            "",
            "Of the actions that were applied. *Changes nothing else in its text*: share of those that change nothing in the"
            " text of the task but what has to change. *Changes no other code*: share of those that change nothing in the"
            " background corpus, functions of released packages; *places in other code*: how many they change in 100,000"
            " characters of it. *Twice is once*: share of those that change nothing more when they are applied again. *Leaves"
            " counterexamples alone*: share of those that leave what the task says must stay; a dash where no task says so."
            " *Length against literal*: how long the action is to write down, over the length of literal rules for the same"
            " places; less than 1 generalizes. *Places put right*: how many places of the text an action mends, on average.",
            "",
            _table(marts["teacher_measures"]),
            picture("over_out.png", "steps by how often their actions change other code"),
            "## Similarity to the gold action",
            "",
            "How alike an action is to the one that is known to be right, in tenths (similarity of canonical actions, which"
            " [supervised reinforcement learning](https://arxiv.org/abs/2510.25992) rewards):"
            " steps by whether their attempt is verified. It says nothing of right and wrong, and no reward contains it.",
            "",
            _table(srl),
            *([picture("srl.png", "steps by similarity to the gold action")] if srl else []),
            "## Milliseconds",
            "",
            "By the wall clock of the machine that made the attempts. An attempt is all of one, sandbox and measures"
            " included; an answer is what the teacher took for one step.",
            "",
            _table(times) if times else "*not measured*\n",
            *([picture("milliseconds.png", "milliseconds per attempt and per answer")] if times else []),
        ]
    )


def wilson(count: int, total: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the share `count` of `total`; None where there is nothing.

    Wilson's (https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval), which stays between
    0 and 1 and has a width where all or none succeeded.
    """
    if not total:
        return None
    from scipy.stats import binomtest  # takes half a second to load, which definitions need not

    interval = binomtest(count, total).proportion_ci(method="wilson")
    return interval.low, interval.high


def describe_share(count: int, total: int) -> str:
    """Return a share with what it is of, and its interval: `496/498 = 99.6 % (98.5 to 99.9)`."""
    interval = wilson(count, total)
    if interval is None:
        return "-"
    low, high = interval
    return f"{count:,}/{total:,} = {100 * count / total:.1f} % ({100 * low:.1f} to {100 * high:.1f})"


def _precision(rows: Rows, levels: Rows) -> list[str]:
    """Return precision and levels of teachers that see the text after apart from those that are told what to do."""
    sections = [
        (
            "## Teachers that do what an instruction says",
            "They see the instruction and the text before, as an agent does, and never the text after. The source of an"
            " instruction is one of: " + "; ".join(f"**{name}**, {words}" for name, words in _SOURCES.items()) + ".",
            lambda row: row["teacher"] not in _ORACLES,
        ),
        (
            "## Induction: an oracle",
            "Induction is no agent: it sees the text after, and looks for rules that lead there, whatever the instruction says."
            " Its precision says which edits rules can make, not how well anybody does what an instruction says; it bounds"
            " what a teacher can reach whose actions are of this kind.",
            lambda row: row["teacher"] in _ORACLES,
        ),
    ]
    lines = []
    for heading, words, belongs in sections:
        chosen = [row for row in rows if belongs(row)]
        if not chosen:
            continue
        lines += [heading, "", words, "", table(_with_totals(chosen))]
        if by_level := _by_level([row for row in levels if belongs(row)]):
            means = "; ".join(f"**{name}**: {meaning}" for name, meaning in LEVELS.values())
            lines += [f"By how near the attempts came. {means}.", "", table(by_level)]
    if rows and all(row["teacher"] in _ORACLES for row in rows):
        lines.append(
            "No teacher has attempted tasks by their instructions: `graftline run --set teacher=glm-4.6` lets one.\n"
        )
    return lines


def _with_totals(rows: Rows) -> list[dict[str, Any]]:
    """Return the rows in words, each with its interval, and one more for each teacher that has several."""
    shown = [_share_row(row) for row in rows]
    for teacher, count in Counter(str(row["teacher"]) for row in rows).items():
        if count > 1:
            own = [row for row in rows if row["teacher"] == teacher]
            summed = {
                name: sum(row[name] or 0 for row in own) for name in ("valid", "verified", "general", "no_reward")
            }
            rewarded_rows = [row for row in own if row["mean_reward"] is not None and row["valid"]]
            valid = sum(row["valid"] for row in rewarded_rows)
            mean = sum(row["mean_reward"] * row["valid"] for row in rewarded_rows) / valid if valid else None
            costs = [row["cost_usd"] for row in own if row["cost_usd"] is not None]
            shown.append(
                _share_row(
                    {
                        "teacher": teacher, "language": "all", "instruction_source": "all", "dataset": "all", **summed,
                        "verified_steps": sum(row["verified_steps"] or 0 for row in own),
                        "mean_reward": None if mean is None else round(mean, 4),
                        "cost_usd": round(sum(costs), 6) if costs else None,
                    }
                )
            )  # fmt: skip
    return shown


def _share_row(row: Row) -> dict[str, Any]:
    names = ("teacher", "language", "instruction_source", "dataset")
    shown = {_WORDS.get(name, name): row[name] for name in names}
    shown["precision: verified/total"] = describe_share(row["verified"], row["valid"])
    for name in ("general", "verified_steps", "mean_reward", "no_reward"):
        shown[_WORDS[name]] = row[name]
    if row["teacher"] not in _ORACLES:
        shown[_WORDS["cost_usd"]] = row["cost_usd"]
    return shown


def _by_level(rows: Rows) -> list[dict[str, Any]]:
    """Return for each teacher, language and source of instructions how many attempts reached which level."""
    counts = defaultdict[tuple[str, str, str], Counter[str]](Counter)
    for row in rows:
        counts[row["teacher"], row["language"], row["instruction_source"]][row["level"]] += row["attempts"]
    reached = [level for level in LEVELS if any(levels[level] for levels in counts.values()) or level == Level.TESTS]
    return [
        {
            "teacher": teacher, "language": language, _WORDS["instruction_source"]: source,
            **{LEVELS[level][0]: describe_share(levels[level], levels.total()) for level in reached},
        }
        for (teacher, language, source), levels in sorted(counts.items())
    ]  # fmt: skip


def _by_actions(rows: Rows) -> list[dict[str, Any]]:
    counts = defaultdict[tuple[str, str], Counter[str]](Counter)
    for row in rows:
        counts[row["teacher"], row["actions"]]["verified" if row["is_verified"] else "not verified"] += row["attempts"]
    return [
        {
            "teacher": teacher,
            "actions": "no action" if actions == "none" else actions,
            "attempts": outcomes.total(),
            "verified": describe_share(outcomes["verified"], outcomes.total()),
        }
        for (teacher, actions), outcomes in sorted(counts.items())
    ]


def _terms(terms: Mapping[str, str]) -> list[str]:
    if not terms:
        return []
    rows = [{"teacher": teacher, "its answers": words} for teacher, words in sorted(terms.items())]
    return ["## Terms of answers", "", "By what `configs/vllm_actors.yaml` says today.", "", table(rows)]


def _comparison(rows: Rows) -> list[str]:
    if not rows:
        return []
    return [
        "## Side by side",
        "",
        "On the tasks that every teacher attempted. Tokens, cost and seconds are those of all attempts, the failed ones"
        " included, and are missing where no language model was asked or none has a price; the seconds are those of all answers"
        " of an attempt.",
        "",
        _table(rows),
    ]


def _table(rows: Rows) -> str:
    """Return `rows` as a table with the names of its columns in words."""
    return table([{_WORDS.get(name, name): _in_words(name, value) for name, value in row.items()} for row in rows])


def _in_words(name: str, value: Any) -> Any:
    if name == "level" and value in LEVELS:
        return LEVELS[value][0]
    return FAILURES.get(value, value) if name in ("failure", "ending", "verdict") else value


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
