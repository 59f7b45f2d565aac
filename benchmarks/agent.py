"""How much of a change a language model makes from the subject of its commit: in a repository, and at single places.

`--part repositories` has the mechanical commits of the half that is tuned on (`benchmarks.migrations`), of which a model sees no
edit; the measure is that of `graftline.codemod.change_places`, every hunk of the commit counts:

* `agent`: `graftline.agent.refactor`, by the subject alone;
* `example`: the same with one place of the commit as an example, so that the model only answers `--questions`;
* `write-rule`: the model is shown the likeliest place and writes a pattern with its rewrite, by the prompt `small` of the teachers;
* `sed`, the peer: the code that the subject says is to go, at word boundaries, becomes the code that it says is to come;
* `gold`, the ceiling: the rules of one place of the commit as people edited it, nobody asked (`generalize`).

`--part canitedit` has files of CanItEdit, 40 lines at most, with the detailed instruction; `free` are those whose tests
pass with what the model writes, `rules` those whose tests pass where the rules that are made of it are applied;
`--problems` names the folder of its files.

`--part places` has single places of these commits, 25 lines at most; what the model writes is compared with the commit:

* `edit`: the block back, `--attempts` times; `right` is the first answer, `agreed` those where at least three of four do the same,
  with how many of these are right; `told` are those places whose new words the subject or the block has; `edit-imports` is also
  shown the imports of the file, `edit-example` an edit of the commit elsewhere;
* `write-rule`: as above, for the text that its rule makes of the block.

A fleet has to be up. Answers of the model are kept in `--answers`, and rows in `--journal`, so that a run which was ended
goes on where it was; several may run side by side, each with a `--shard`.

    graftline model serve --fleet embedded
    python -m benchmarks.agent --part places [--arms edit,write-rule] [--limit N] [--attempts 4]
"""

import argparse
import json
import os
import re
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.arguments import some_of
from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from benchmarks.migration_arms import ParsedSandbox, run_generalize, time_limit
from benchmarks.migration_measure import Commit, counts_of, read_commits, score_of
from benchmarks.migrations import DATA, HELD_OUT, summarize
from graftline.agent.edits import PlaceEdit, edit_place, replace_block
from graftline.agent.model import AgentModel, Limits, open_model
from graftline.agent.places import Block
from graftline.agent.proposal import Settings
from graftline.agent.single_places import (
    Shows,
    SinglePlace,
    is_told,
    list_single_places,
    shares_words,
    take_turns,
)
from graftline.agent.texts import propose_change, texts_of
from graftline.astgrep.action import Action
from graftline.codemod.change_places import ShownPlace
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.induce import induce
from graftline.core.errors import BoundaryError
from graftline.core.hashing import sha256_text
from graftline.core.secrets import open_secrets
from graftline.datasets.commit_messages import clean_message
from graftline.evals.canitedit import read_problems
from graftline.evals.cases import find_shown_block
from graftline.evals.change_solvers import describe_single_place, replace_words
from graftline.evals.place_metrics import is_enough
from graftline.harbor.coverage import interval_of
from graftline.llm.questions import seed_of
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.task_tests import run_tests
from graftline.rollouts.teachers.answer import ParseError, parse_answer
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions import WarmSandboxConfig, open_sandbox
from graftline.sandbox.base import ensure_decided
from graftline.sandbox.jail.open import JailConfig
from graftline.sandbox.runner import language_of

ANSWERS = CHECKOUT / "data" / "benchmarks" / "agent"
_CPU_S = 240
LANGUAGE_SHARES = {"python": 29, "java": 11, "javascript": 20}
"""Places of each language, of 60; TypeScript is JavaScript here."""
_MAX_PLACES_OF_COMMIT, _MAX_PROBLEM_LINES = 3, 40


@dataclass(frozen=True, slots=True)
class RuleTask:
    """What the prompt of a teacher is filled in with."""

    instruction: str
    language: Any


def run_agent(
    commit: Commit, shown: Sequence[ShownPlace], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts that the agent changes; `shown` leads where there is one."""
    settings = Settings(attempts=options.attempts, questions=options.questions)
    proposal = propose_change(commit, commit.subject, shown, model, ParsedSandbox(), settings)
    return commit.texts(shown) | texts_of(proposal)


def write_rule(instruction: str, code: str, language: Any, model: AgentModel) -> Action | None:
    """Return the rule that the model writes for a piece of code; None where its answer is none."""
    prompt = load_prompt(CHECKOUT / "configs", "small")
    messages = prompt.chat(RuleTask(instruction, language), code, State(), [], [], "")
    request = chat_request(prompt.settings, tuple(messages), 0.0, seed_of(instruction, code))
    answer = model.ask(request)
    parsed = parse_answer(answer.text, prompt.settings.answer) if answer else None
    return None if parsed is None or isinstance(parsed, ParseError) else parsed.action


def apply_action(action: Action, texts: Mapping[str, str], language: Any, sandbox: ParsedSandbox) -> dict[str, str]:
    """Return the texts that a rule changes."""
    changed = {}
    for path, text in texts.items():
        if language_of(path) == language:
            result = ensure_decided(*sandbox.apply_many(text, language, [action]))
            if result.after is not None and result.after != text:
                changed[path] = result.after
    return changed


def run_rule(
    commit: Commit, shown: Sequence[ShownPlace], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts that the rule which the model writes for the likeliest place changes."""
    texts = commit.texts()
    block = find_shown_block(commit.subject, texts)
    action = write_rule(commit.subject, textwrap.dedent(block.text), block.language, model) if block else None
    return (
        texts
        if action is None or block is None
        else texts | apply_action(action, texts, block.language, ParsedSandbox())
    )


def run_sed(
    commit: Commit, shown: Sequence[ShownPlace], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts in which the words of the subject that go are those that come."""
    return replace_words(commit.subject, commit.texts())


def run_gold(
    commit: Commit, shown: Sequence[ShownPlace], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return what the rules of one place of the commit change."""
    return run_generalize(commit, shown, ParsedSandbox(), "nobody")


REPOSITORY_ARMS: Mapping[str, tuple[int, Callable[..., Mapping[str, str]]]] = {
    "agent": (0, run_agent),
    "example": (1, run_agent),
    "write-rule": (0, run_rule),
    "sed": (0, run_sed),
    "gold": (1, run_gold),
}
"""Places of the commit that are shown, and what returns the texts that come out."""


def measure_repository(commit: Commit, arm: str, model: AgentModel, options: argparse.Namespace) -> dict[str, Any]:
    """Return the counts of one commit."""
    count, run = REPOSITORY_ARMS[arm]
    shown = commit.show(0, count)
    began, cpu, tokens, cause = time.monotonic(), time.process_time(), model.spent.tokens, ""
    produced: Mapping[str, str] = {}
    try:
        with time_limit(_CPU_S):
            produced = run(commit, shown, model, options)
    except TimeoutError:
        cause = "time"
    except BoundaryError:  # nothing is known of the commit
        raise
    except Exception as error:  # a defect of one run must not end the others; it is counted and shown
        cause = f"{type(error).__name__}: {error}"[:200]
    counts = commit.score(produced if not cause else commit.texts(shown), shown)
    return {
        **counts_of(counts), "item": commit.id, "commit": commit.id, "arm": arm, "cause": cause,
        "tokens": model.spent.tokens - tokens,
        "seconds": round(time.process_time() - cpu, 2), "wall_s": round(time.monotonic() - began, 1),
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of CanItEdit."""

    task: Task

    @property
    def id(self) -> str:
        """What tells it from others."""
        return self.task.id


def read_problems_of(folder: Path, count: int) -> list[Problem]:
    """Return at most `count` problems of at most `_MAX_PROBLEM_LINES` lines, with the detailed instruction."""
    cases = read_problems(folder, "canitedit", "", ("descriptive",))
    tasks = [case.task for case in cases if case.task.before.count("\n") < _MAX_PROBLEM_LINES]
    return [Problem(task) for task in sorted(tasks, key=lambda task: sha256_text(task.id))][:count]


@dataclass(frozen=True, slots=True)
class CommitPlace:
    """A place of a commit."""

    commit: Commit
    place: SinglePlace

    @property
    def id(self) -> str:
        """What tells it from others."""
        return f"{self.commit.id}:{self.place.block.path}:{self.place.block.start}"

    @property
    def is_named(self) -> bool:
        """Whether the subject has a word of a line that goes or comes."""
        return shares_words(clean_message(self.commit.subject), self.place.before, self.place.after)

    @property
    def is_told(self) -> bool:
        """Whether the words that come are in the subject or in the block before."""
        return is_told(self.commit.subject, self.place.block.text, self.place.target, self.place.block.language)


def draw_places(commits: Sequence[Commit], count: int) -> list[CommitPlace]:
    """Return at most `count` places, by the shares of `LANGUAGE_SHARES`, of as many commits as there are.

    Their subjects share a word with a line that the edit changes: others say too little for anybody to edit by.
    """
    lists = [[CommitPlace(commit, place) for place in list_single_places(commit)] for commit in commits]
    total = sum(LANGUAGE_SHARES.values())
    room = {language: ceil(count * share / total) for language, share in LANGUAGE_SHARES.items()}
    drawn: list[CommitPlace] = []
    for item in take_turns([[item for item in items if item.is_named] for items in lists], _MAX_PLACES_OF_COMMIT):
        language = item.place.block.language
        family = "javascript" if language in ("typescript", "tsx") else language
        if room.get(family, 0) and len(drawn) < count:
            room[family] -= 1
            drawn.append(item)
    return drawn


def measure_place(item: CommitPlace, arm: str, model: AgentModel, options: argparse.Namespace) -> dict[str, Any]:
    """Return what became of one place."""
    commit, place = item.commit, item.place
    began, tokens = time.monotonic(), model.spent.tokens
    row: dict[str, Any] = {"item": item.id, "arm": arm, "lines": place.block.end - place.block.start}
    row["is_told"] = item.is_told
    if arm == "write-rule":
        action = write_rule(commit.subject, place.code, place.block.language, model)
        after = place.code
        if action is not None:
            result = ensure_decided(*ParsedSandbox().apply_many(after, place.block.language, [action]))
            after = result.after if result.after is not None else after
        is_edited = after != place.code
        row["right"] = is_edited and is_right(place, replace_block(place.before, place.block, after))
        row["outcome"] = "no rule" if action is None else "edited" if is_edited else "unchanged"
    else:
        edit: PlaceEdit = edit_place(
            commit.subject, place.block, place.before, model, options.attempts, 0,
            lambda text: sha256_text(normalize_whitespace(text)), describe_single_place(place, PLACE_ARMS[arm]),
        )  # fmt: skip
        first = edit.attempts[0]
        row |= {"right": not first.fault and is_right(place, first.text), "outcome": first.fault or "edited"}
        row |= {"votes": edit.votes, "attempts": len(edit.attempts), "agreed_right": is_right(place, edit.after)}
    return {**row, "tokens": model.spent.tokens - tokens, "wall_s": round(time.monotonic() - began, 1)}


def is_right(place: SinglePlace, text: str) -> bool:
    """Return whether a text of the file is that of the commit at this place."""
    return place.grade(text).is_verified


def summarize_places(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of an arm over single places."""
    told = [row for row in rows if row["is_told"]]
    figures: dict[str, Any] = {"places": len(rows), "right": sum(row["right"] for row in rows)}
    figures["told"] = {"places": len(told), "right": sum(row["right"] for row in told)}
    figures["outcomes"] = dict(Counter(row["outcome"] for row in rows))
    for least in (3, 4):
        agreed = [row for row in rows if row.get("votes", 0) >= least]
        figures[f"agree_{least}"] = {"places": len(agreed), "right": sum(row["agreed_right"] for row in agreed)}
    return figures | {"tokens": sum(row["tokens"] for row in rows), "wall_s": round(sum(row["wall_s"] for row in rows))}


def measure_problem(problem: Problem, arm: str, model: AgentModel, options: argparse.Namespace) -> dict[str, Any]:
    """Return whether a problem of CanItEdit is solved by what the model writes, and by the rules that are made of it."""
    began, tokens, task = time.monotonic(), model.spent.tokens, problem.task
    assert task.tests is not None
    lines = task.before.count("\n") + 1
    block = Block("solution.py", "python", 0, lines, task.before + "\n")
    edit = edit_place(task.instruction, block, task.before, model, 1, 0, sha256_text)
    row: dict[str, Any] = {
        "item": problem.id,
        "arm": arm,
        "lines": lines,
        "outcome": edit.attempts[0].fault or "edited",
    }
    made, texts = "", {"reference": task.target}
    if edit.after != task.before:
        induction = induce(task.before, edit.after, "python", ParsedSandbox())
        made = induction.result or task.before
        texts |= {"free": edit.after, "rules": made}
    with closing(open_sandbox(WarmSandboxConfig(), JailConfig(required_level="confined"))) as sandbox:
        verdicts = run_tests([(task.tests, text) for text in texts.values()], sandbox)
    row |= {name: bool(verdict.passes) for name, verdict in zip(texts, verdicts, strict=True)}
    return {**row, "tokens": model.spent.tokens - tokens, "wall_s": round(time.monotonic() - began, 1)}


def summarize_problems(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many of the problems whose reference passes in this jail are solved."""
    judged = [row for row in rows if row["reference"]]
    return {
        "problems": len(rows), "judged": len(judged), "free": sum(row.get("free", False) for row in judged),
        "rules": sum(row.get("rules", False) for row in judged), "tokens": sum(row["tokens"] for row in rows),
        "wall_s": round(sum(row["wall_s"] for row in rows)),
    }  # fmt: skip


PLACE_ARMS: Mapping[str, Shows] = {
    "edit": "block",
    "edit-imports": "imports",
    "edit-example": "example",
    "write-rule": "block",
}
"""What is shown of a place."""


def read_rows(journal: Path) -> list[dict[str, Any]]:
    """Return the rows of a journal, those that were cut off left out."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for line in journal.read_text().splitlines() if journal.is_file() else []:
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def _read_shard(text: str) -> slice:
    """Return which items a shard has."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    number, count = map(int, match.groups()) if match else (0, 0)
    if not 1 <= number <= count:
        raise argparse.ArgumentTypeError(f"{text!r} is no shard; expected N/M with N from 1 to M, such as 2/4")
    return slice(number - 1, None, count)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON; on standard error a line for each result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agent", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("repositories", "places", "canitedit"), default="repositories")
    parser.add_argument("--arms", help="all of the part if none are given")
    parser.add_argument("--fleet", default="embedded")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--problems", type=Path, help="folder of the files of CanItEdit, for that part")
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    parser.add_argument("--limit", type=int, default=60, help="commits or places at most, a fair sample")
    parser.add_argument("--attempts", type=int, default=4)
    parser.add_argument("--questions", type=int, default=0, help="that the model is asked about places of a repository")
    parser.add_argument(
        "--journal",
        type=Path,
        help="rows that are there are not measured again; in --answers by default, one of each setting",
    )
    parser.add_argument("--shard", type=_read_shard, default="1/1", help="N/M: of M runs side by side, the N-th")
    options = parser.parse_args(arguments)
    commits = [commit for commit in read_commits(options.data) if commit.repository not in HELD_OUT]
    commits.sort(key=lambda commit: sha256_text(commit.id))
    if options.part == "canitedit" and options.problems is None:
        parser.error("--part canitedit needs the folder with the files of the benchmark, --problems")
    items: list[Any]
    measure: Callable[..., dict[str, Any]]
    if options.part == "repositories":
        items, measure, names = commits[: options.limit], measure_repository, [*REPOSITORY_ARMS]
    elif options.part == "places":
        items, measure, names = draw_places(commits, options.limit), measure_place, [*PLACE_ARMS]
    else:
        items, measure, names = read_problems_of(options.problems, options.limit), measure_problem, ["edit"]
    try:
        arms = some_of(names)(options.arms) if options.arms else names
    except argparse.ArgumentTypeError as error:
        parser.error(f"--arms: {error}")
    limits = Limits(tokens=10**12, seconds=10**9)
    secrets = open_secrets(os.environ, CHECKOUT)
    model = open_model(options.fleet, CHECKOUT / "configs", secrets, options.answers, limits)
    settings = f"{options.part}-{options.fleet}-{options.attempts}-{options.questions}"
    journal = options.journal or options.answers / f"{settings}.jsonl"
    rows = read_rows(journal)
    try:
        for item in items[options.shard]:
            for arm in arms:
                if (item.id, arm) not in {(row["item"], row["arm"]) for row in rows}:
                    rows.append(measure(item, arm, model, options))
                    with journal.open("a") as stream:  # a whole line at once: others append as well
                        stream.write(json.dumps(rows[-1]) + "\n")
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    finally:
        model.model.close()
    figures: dict[str, Any] = {"model": model.model.name, "attempts": options.attempts}
    ids = {item.id for item in items}
    for arm in arms:
        own = [row for row in rows if row["arm"] == arm and row["item"] in ids]
        if options.part == "places":
            figures[arm] = summarize_places(own)
        elif options.part == "canitedit":
            figures[arm] = summarize_problems(own)
        else:
            walls = {"tokens": sum(row["tokens"] for row in own), "wall_s": round(sum(row["wall_s"] for row in own))}
            scores = [score_of(row) for row in own]
            precise = [(score.recall or 0.0) * is_enough(score.precision) for score in scores]
            figures[arm] = {**(summarize(own) if own else {}), **walls, "recall_at_p90_interval": interval_of(precise)}
    if {"edit", "write-rule"} <= set(arms):
        sides = [{row["item"]: row["right"] for row in rows if row["arm"] == arm} for arm in ("edit", "write-rule")]
        pairs = [sides[0][item] - sides[1][item] for item in sides[0].keys() & sides[1].keys() & ids]
        figures["edit_over_rule"] = {
            "places": len(pairs),
            "share": sum(pairs) / max(1, len(pairs)),
            "interval": interval_of(pairs),
        }
    print(json.dumps({"name": f"agent_{options.part}", "figures": figures, "machine": machine()}))


if __name__ == "__main__":
    main()
