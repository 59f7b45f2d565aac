"""How much of a change a language model makes from the subject of its commit: in a repository, and at single places.

`--part repositories` has the mechanical commits of the half that is tuned on (`benchmarks.migrations`), of which a model sees no
edit; the measure is that of `graftline.codemod.change_places`, every hunk of the commit counts:

* `agent`: `graftline.agent.refactor`, by the subject alone;
* `example`: the same with one place of the commit as an example, so that the model only answers questions;
* `write-rule`: the model is shown the likeliest place and writes a pattern with its rewrite, by the prompt `small` of the teachers;
* `sed`, the peer: the code that the subject says is to go, at word boundaries, becomes the code that it says is to come;
* `gold`, the ceiling: the rules of one place of the commit as people edited it, nobody asked (`generalize`).

`--part places` has single places of these commits, 25 lines at most; what the model writes is compared with the commit:

* `edit`: the block back, `--attempts` times; `right` is the first answer, `agreed` those where at least three of four do the same,
  with how many of these are right; `edit-imports` is also shown the imports of the file, `edit-example` an edit of the commit
  elsewhere;
* `write-rule`: as above, for the text that its rule makes of the block.

A fleet has to be up. Answers of the model are kept in `--answers`, so that a run which was ended goes on where it was.

    graftline model serve --fleet embedded
    python -m benchmarks.agent --part places [--arms edit,write-rule] [--limit N] [--attempts 4]
"""

import argparse
import json
import os
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from benchmarks.migration_arms import MAX_QUESTIONS, ParsedSandbox, run_generalize, time_limit
from benchmarks.migration_measure import Commit, counts_of, read_commits
from benchmarks.migrations import DATA, HELD_OUT, summarize
from graftline.agent.edits import PlaceEdit, edit_place, replace_block
from graftline.agent.model import AgentModel, Limits, open_model
from graftline.agent.refactor import Settings
from graftline.agent.single_places import Shows, SinglePlace, list_single_places, take_turns
from graftline.agent.texts import propose_change, texts_of
from graftline.astgrep.action import Action
from graftline.codemod.change_places import Shown, language_of
from graftline.codemod.equality import normalize_whitespace
from graftline.core.errors import BoundaryError
from graftline.core.hashing import sha256_text
from graftline.core.secrets import open_secrets
from graftline.evals.cases import find_shown_block
from graftline.evals.change_solvers import describe_single_place, replace_words
from graftline.llm.questions import seed_of
from graftline.rollouts.state.state import State
from graftline.rollouts.teachers.answer import ParseError, parse_answer
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.base import ensure_decided

ANSWERS = CHECKOUT / "data" / "benchmarks" / "agent"
_CPU_S = 240


@dataclass(frozen=True, slots=True)
class RuleTask:
    """What the prompt of a teacher is filled in with."""

    instruction: str
    language: Any


def run_agent(
    commit: Commit, shown: Sequence[Shown], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts that the agent changes; `shown` leads where there is one."""
    settings = Settings(attempts=options.attempts, questions=MAX_QUESTIONS)
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
    commit: Commit, shown: Sequence[Shown], model: AgentModel, options: argparse.Namespace
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
    commit: Commit, shown: Sequence[Shown], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts in which the words of the subject that go are those that come."""
    return replace_words(commit.subject, commit.texts())


def run_gold(
    commit: Commit, shown: Sequence[Shown], model: AgentModel, options: argparse.Namespace
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
        **counts_of(counts), "commit": commit.id, "arm": arm, "cause": cause, "tokens": model.spent.tokens - tokens,
        "seconds": round(time.process_time() - cpu, 2), "wall_s": round(time.monotonic() - began, 1),
    }  # fmt: skip


def draw_places(commits: Sequence[Commit], count: int) -> list[tuple[Commit, SinglePlace]]:
    """Return at most `count` places, of as many commits as there are, in an order that depends on the commits alone."""
    return take_turns([[(commit, place) for place in list_single_places(commit)] for commit in commits], 2)[:count]


def measure_place(
    item: tuple[Commit, SinglePlace], arm: str, model: AgentModel, options: argparse.Namespace
) -> dict[str, Any]:
    """Return what became of one place."""
    commit, place = item
    began, tokens = time.monotonic(), model.spent.tokens
    row: dict[str, Any] = {"commit": commit.id, "arm": arm, "lines": place.block.end - place.block.start}
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
    figures: dict[str, Any] = {"places": len(rows), "right": sum(row["right"] for row in rows)}
    figures["outcomes"] = dict(Counter(row["outcome"] for row in rows))
    for least in (3, 4):
        agreed = [row for row in rows if row.get("votes", 0) >= least]
        figures[f"agree_{least}"] = {"places": len(agreed), "right": sum(row["agreed_right"] for row in agreed)}
    return figures | {"tokens": sum(row["tokens"] for row in rows), "wall_s": round(sum(row["wall_s"] for row in rows))}


PLACE_ARMS: Mapping[str, Shows] = {
    "edit": "block",
    "edit-imports": "imports",
    "edit-example": "example",
    "write-rule": "block",
}
"""What is shown of a place."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON; on standard error a line for each result."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.agent", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=("repositories", "places"), default="repositories")
    parser.add_argument("--arms", help="all of the part if none are given")
    parser.add_argument("--fleet", default="embedded")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--answers", type=Path, default=ANSWERS)
    parser.add_argument("--limit", type=int, default=60, help="commits or places at most, a fair sample")
    parser.add_argument("--attempts", type=int, default=4)
    options = parser.parse_args(arguments)
    commits = [commit for commit in read_commits(options.data) if commit.repository not in HELD_OUT]
    commits.sort(key=lambda commit: sha256_text(commit.id))
    is_places = options.part == "places"
    arms = options.arms.split(",") if options.arms else [*(PLACE_ARMS if is_places else REPOSITORY_ARMS)]
    limits = Limits(tokens=10**12, seconds=10**9)
    secrets = open_secrets(os.environ, CHECKOUT)
    model = open_model(options.fleet, CHECKOUT / "configs", secrets, options.answers, limits)
    items: list[Any] = draw_places(commits, options.limit) if is_places else commits[: options.limit]
    measure: Callable[..., dict[str, Any]] = measure_place if is_places else measure_repository
    rows = []
    try:
        for item in items:
            for arm in arms:
                rows.append(measure(item, arm, model, options))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    finally:
        model.model.close()
    figures: dict[str, Any] = {"model": model.model.name, "attempts": options.attempts}
    for arm in arms:
        own = [row for row in rows if row["arm"] == arm]
        if is_places:
            figures[arm] = summarize_places(own)
        else:
            walls = {"tokens": sum(row["tokens"] for row in own), "wall_s": round(sum(row["wall_s"] for row in own))}
            figures[arm] = summarize(own) | walls
    print(json.dumps({"name": f"agent_{options.part}", "figures": figures, "machine": machine()}))


if __name__ == "__main__":
    main()
