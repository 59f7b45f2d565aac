"""Nothing is said that only the wanted text could tell, over real edits: word by word, and by renaming what is new.

The second is the stronger one: if new names get other names in the wanted text, and the teacher picks the same matchers,
it must say the very same before its actions.
"""

import ast
import gzip
import inspect
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import LANGUAGES, parse
from graftline.codemod import grammar
from graftline.codemod.equality import compare_texts, normalize_blank_lines
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers import critic, thoughts, wording
from graftline.rollouts.teachers.base import NoProposal, Proposal
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.sandbox.actions.memory import MemorySandbox
from tests.snippets import parsable

WORD = re.compile(r"[^\W\d]\w+")
MAX_STEPS = 6
MAX_WORDS = 120


def words(*texts: str) -> set[str]:
    return {word for text in texts for word in WORD.findall(text)}


def words_in(model: BaseModel) -> set[str]:
    """Return the words of all texts in `model`; in its JSON a letter may follow the `t` of a tab."""

    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            yield from texts(inner)

    return words(*texts(model.model_dump()))


def own_words() -> set[str]:
    """Return the words of the phrases themselves, read from the sources, and of the surroundings of code."""
    found = {word for table in grammar.CONTEXTS.values() for word in words(*table.values())}
    for module in (critic, thoughts, wording):
        nodes = list(ast.walk(ast.parse(inspect.getsource(module))))
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
                found |= words(node.value)
    return found | {word.capitalize() for word in found}


@pytest.fixture
def tasks(checkout: Path) -> list[Task]:
    with gzip.open(checkout / "data" / "samples" / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if len(row["pre"]) < 1500]
    sampled = random.Random(5).sample(rows, 70)
    sides = ((row, parsable(row["pre"], row["post"], row["language"])) for row in sampled)
    return [
        Task(
            id=row["id"],
            dataset="release_pairs",
            language=row["language"],
            instruction=f"Change `{row['qual']}` as {row['pkg']} did from {row['old']} to {row['new']}.",
            before=pair[0],
            target=pair[1],
            license=row["license"],
            group=row["pkg"],
            origin=row["source"],
        )
        for row, pair in sides
        if pair is not None
    ]


def steps(task: Task) -> Iterator[tuple[str, State, Proposal]]:
    """Yield text, state and proposal of each step of an attempt at `task`."""
    sandbox = MemorySandbox()
    teacher, text, state = InductionTeacher(sandbox), task.before, State()
    for _ in range(MAX_STEPS):
        proposal = teacher.propose(task, text, state)
        if isinstance(proposal, NoProposal):
            return
        yield text, state, proposal
        [result] = sandbox.apply_many(text, task.language, [proposal.action])
        text, state = normalize_blank_lines(text, result), state.apply(proposal.state_update)
        if compare_texts(text, task.target, task.language).is_verified:
            return


def test_no_word_of_the_wanted_text_alone_is_said_before_the_action_that_brings_it(tasks: list[Task]) -> None:
    own, said_steps, secrets, attempts = own_words(), 0, 0, 0
    for task in tasks:
        kinds = words(*(node.kind for node in parse(task.before, task.language).root.walk()))
        for text, state, proposal in steps(task):
            prompt = words(task.instruction, text) | words_in(state)
            secret = words(task.target) - prompt - own - kinds
            before_actions = [*(attempt.think for attempt in proposal.attempts), proposal.think]
            feedback = [attempt.feedback for attempt in proposal.attempts]
            assert words(*before_actions, *feedback) & secret == set(), proposal
            brought = words_in(proposal.action)
            assert words_in(proposal.state_update) & (secret - brought) == set(), proposal
            said_steps, secrets, attempts = said_steps + 1, secrets + len(secret), attempts + len(feedback)
            assert max(len(said.split()) for said in before_actions) <= MAX_WORDS
    # there was enough to be silent about, and enough was said
    assert (said_steps > 60, secrets > 60, attempts > 10) == (True, True, True), (said_steps, secrets, attempts)


def renamed(task: Task) -> Task | None:
    """Return `task` with other names for all that its wanted text has anew; None where it has none."""
    known = words(task.instruction, task.before)
    tree = parse(task.target, task.language)
    leaves = (node for node in tree.root.walk() if not node.children and node.kind.endswith("identifier"))
    new = sorted({tree.of(leaf) for leaf in leaves} - known)
    names = {name: f"{'Q' if name[0].isupper() else 'q'}z{number}" for number, name in enumerate(new)}
    if not names:
        return None
    wanted = re.sub(r"(?<!\w)[^\W\d]\w*", lambda name: names.get(name[0], name[0]), task.target)
    return task.model_copy(update={"target": wanted})


def matcher(action: PatternAction | RuleAction) -> object:
    return rule_of(action)["rule"]


def test_what_is_said_stays_the_same_when_all_that_is_new_gets_other_names(tasks: list[Task]) -> None:
    teacher, compared, told = InductionTeacher(MemorySandbox()), 0, 0
    for task in tasks:
        other = renamed(task)
        if other is None:
            continue
        pair = [teacher.propose(one, one.before, State()) for one in (task, other)]
        first, second = pair
        if isinstance(first, NoProposal) or isinstance(second, NoProposal):
            continue
        told += 1
        tried = [[matcher(one.action) for one in (proposal, *proposal.attempts)] for proposal in (first, second)]
        if tried[0] != tried[1]:  # other names can make another rule the shortest
            continue
        compared += 1
        assert first.think == second.think
        assert [(one.think, one.feedback) for one in first.attempts] == [
            (one.think, one.feedback) for one in second.attempts
        ]
    assert (compared > 20, compared > 0.6 * told) == (True, True), (compared, told)


def test_every_language_is_among_them(tasks: list[Task]) -> None:
    # the sample has no TSX and little TypeScript
    assert {task.language for task in tasks} >= set(LANGUAGES) - {"tsx", "typescript"}
