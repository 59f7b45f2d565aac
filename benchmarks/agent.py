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
import re
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
from benchmarks.migration_arms import MAX_QUESTIONS, ParsedSandbox, before_of, run_generalize, time_limit
from benchmarks.migration_measure import Commit, counts_of, read_commits
from benchmarks.migrations import DATA, HELD_OUT, summarize
from graftline.agent.edits import PlaceEdit, describe_context, edit_place, replace_block
from graftline.agent.model import AgentModel, Limits, open_model
from graftline.agent.places import MAX_BLOCK_LINES, Block, find_places, read_terms
from graftline.agent.refactor import Settings, refactor_files
from graftline.astgrep.action import Action
from graftline.codemod.change_places import Shown, language_of
from graftline.codemod.equality import compare_texts, normalize_whitespace
from graftline.codemod.source_files import SourceFile
from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import sha256_text
from graftline.core.secrets import open_secrets
from graftline.core.text_diff import summarize_change
from graftline.llm.questions import seed_of
from graftline.rollouts.state.state import State
from graftline.rollouts.teachers.answer import ParseError, parse_answer
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.base import ensure_decided

ANSWERS = CHECKOUT / "data" / "benchmarks" / "agent"
_FOLDER = Path("/repository")
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
    texts = commit.texts(shown)
    files = {
        path: SourceFile(_FOLDER / path, lang, text) for path, text in texts.items() if (lang := language_of(path))
    }
    examples = []
    for place in shown:
        language = language_of(place.path)
        assert language is not None
        sides = (before_of(commit, place), place.text)
        before, after = (SourceFile(Path(place.path), language, side) for side in sides)
        examples.append((before, after))
    settings = Settings(attempts=options.attempts, questions=MAX_QUESTIONS)
    proposal = refactor_files(commit.subject, files, _FOLDER, ParsedSandbox(), model, examples, settings=settings)
    return texts | {file.file.path.relative_to(_FOLDER).as_posix(): file.text for file in proposal.files}


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
    texts = commit.texts(())
    languages = {path: language for path in texts if (language := language_of(path))}
    blocks = find_places(commit.subject, texts, languages).blocks
    action = write_rule(commit.subject, textwrap.dedent(blocks[0].text), blocks[0].language, model) if blocks else None
    return texts if action is None else texts | apply_action(action, texts, blocks[0].language, ParsedSandbox())


def run_sed(
    commit: Commit, shown: Sequence[Shown], model: AgentModel, options: argparse.Namespace
) -> Mapping[str, str]:
    """Return the texts in which the words of the subject that go are those that come."""
    texts, terms = commit.texts(()), read_terms(commit.subject)
    old = [term.text for term in terms if term.role == "old" and term.is_code and not term.is_qualifier]
    new = [term.text for term in terms if term.role == "new" and not term.is_qualifier]
    for before, after in zip(old, new, strict=False):
        for path, text in texts.items():
            texts[path] = re.sub(rf"(?<![\w$]){re.escape(before)}(?![\w$])", lambda _, word=after: word, text)  # type: ignore[misc]
    return texts


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


@dataclass(frozen=True, slots=True)
class SinglePlace:
    """A place of a commit."""

    commit: Commit
    shown: Shown
    block: Block
    text: str
    """Of the file before."""
    example: str
    """Another edit of the commit."""


def draw_places(commits: Sequence[Commit], count: int) -> list[SinglePlace]:
    """Return at most `count` places, of as many commits as there are, in an order that depends on the commits alone."""
    rounds: list[list[SinglePlace]] = [[], []]
    for commit in commits:
        places = commit.show(0, 6)
        own = []
        for place in places:
            text, language = before_of(commit, place), language_of(place.path)
            if place.end - place.start > MAX_BLOCK_LINES or language is None:
                continue
            lines = text.split("\n")[place.start : place.end]
            others = [other for other in places if other is not place]
            example = summarize_change(others[0].hunk.before, others[0].hunk.after)[:800] if others else ""
            block = Block(place.path, language, place.start, place.end, "\n".join(lines) + "\n")
            own.append(SinglePlace(commit, place, block, text, example))
        for members, single in zip(rounds, own, strict=False):
            members.append(single)
    return [*rounds[0], *rounds[1]][:count]


def is_right(place: SinglePlace, text: str) -> bool:
    """Return whether a text of the file is that of the commit at this place."""
    if normalize_whitespace(text) == normalize_whitespace(place.shown.text):
        return True
    try:
        return compare_texts(text, place.shown.text, place.block.language).is_verified
    except DataError:
        return False


def measure_place(place: SinglePlace, arm: str, model: AgentModel, options: argparse.Namespace) -> dict[str, Any]:
    """Return what became of one place."""
    began, tokens = time.monotonic(), model.spent.tokens
    row: dict[str, Any] = {"commit": place.commit.id, "arm": arm, "lines": place.block.end - place.block.start}
    if arm == "write-rule":
        code = textwrap.dedent(place.block.text)
        action = write_rule(place.commit.subject, code, place.block.language, model)
        after = code
        if action is not None:
            result = ensure_decided(*ParsedSandbox().apply_many(code, place.block.language, [action]))
            after = result.after if result.after is not None else code
        row["right"] = after != code and is_right(place, replace_block(place.text, place.block, after))
        row["outcome"] = "no rule" if action is None else "unchanged" if after == code else "edited"
    else:
        context = describe_context(place.text, place.block, State()) if arm == "edit-imports" else ""
        if arm == "edit-example":
            context = f"An edit of this kind:\n{place.example}\n\n" if place.example else ""
        edit: PlaceEdit = edit_place(
            place.commit.subject, place.block, place.text, model, options.attempts, 0,
            lambda text: sha256_text(normalize_whitespace(text)), context,
        )  # fmt: skip
        first = edit.attempts[0]
        row |= {"right": not first.fault and is_right(place, first.text), "outcome": first.fault or "edited"}
        row |= {"votes": edit.votes, "attempts": len(edit.attempts), "agreed_right": is_right(place, edit.after)}
    return {**row, "tokens": model.spent.tokens - tokens, "wall_s": round(time.monotonic() - began, 1)}


def summarize_places(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of an arm over single places."""
    figures: dict[str, Any] = {"places": len(rows), "right": sum(row["right"] for row in rows)}
    figures["outcomes"] = dict(Counter(row["outcome"] for row in rows))
    for least in (3, 4):
        agreed = [row for row in rows if row.get("votes", 0) >= least]
        figures[f"agree_{least}"] = {"places": len(agreed), "right": sum(row["agreed_right"] for row in agreed)}
    return figures | {"tokens": sum(row["tokens"] for row in rows), "wall_s": round(sum(row["wall_s"] for row in rows))}


PLACE_ARMS = ("edit", "edit-imports", "edit-example", "write-rule")


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
