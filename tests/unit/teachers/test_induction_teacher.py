"""The induction teacher: what it says, and that it never says what only the wanted text could tell it."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest

from graftline.actions.action import PatternAction
from graftline.actions.astgrep import Language
from graftline.errors import SandboxError
from graftline.rules.equality import equality
from graftline.sandbox import Isolation, SandboxResult, Verdict
from graftline.sandbox.memory import MemorySandbox
from graftline.state.state import State, StateUpdate
from graftline.tasks.task import Task
from graftline.teachers.base import Attempt, Proposal
from graftline.teachers.induction import InductionTeacher
from tests.snippets import parsable


def task(before: str, wanted: str, language: Language = "python", instruction: str = "Change it.") -> Task:
    return Task(
        id="d:1",
        dataset="d",
        language=language,
        instruction=instruction,
        before=before,
        wanted=wanted,
        licence="MIT",
        group="g",
        origin="o",
    )


def test_a_step_is_told_with_what_failed_on_the_way() -> None:
    given = task("old(1)\nx = 2\nold(2)\n", "new(1)\nx = 2\nold(2)\n")
    proposal = InductionTeacher(MemorySandbox()).propose(given, given.before, State())
    feedback = "it makes 1 unwanted edit(s), first at line 3"
    assert proposal == Proposal(
        think=(
            f"`old($A)` is too broad: {feedback}. `old($$$A)` is too broad: {feedback}."
            " I match `old(1)`, literally; that covers 1 place(s)."
        ),
        action=PatternAction(pattern="old(1)", rewrite="new(1)"),
        state_update=StateUpdate(
            goals=["Change it."],
            history=["rewrote 1 match(es) of `old(1)`"],
            open_issues=[],
            next_focus="done",
        ),
        attempts=(
            Attempt(action=PatternAction(pattern="old($A)", rewrite="new($A)"), feedback=feedback),
            Attempt(action=PatternAction(pattern="old($$$A)", rewrite="new($$$A)"), feedback=feedback),
        ),
    )


def test_what_is_left_is_carried_on_and_the_goal_is_set_once() -> None:
    given = task("old(1)\nx = 3\n", "new(1)\nx = 4\n")
    proposal = InductionTeacher(MemorySandbox()).propose(given, given.before, State(goals=("Change it.",)))
    assert proposal is not None
    assert proposal.think == "I match `old($A)`, keeping $A free; that covers 1 place(s)."
    assert proposal.state_update == StateUpdate(
        history=["rewrote 1 match(es) of `old($A)`"],
        open_issues=["1 place(s) still to change"],
        next_focus="the places that are left",
    )


def test_the_history_of_a_long_attempt_tells_its_steps_apart() -> None:
    before = "".join(f"old{number}({number})\n" for number in range(6))
    given, teacher, sandbox = (
        task(before, before.replace("old", "new")),
        InductionTeacher(MemorySandbox()),
        MemorySandbox(),
    )
    text, state = given.before, State()
    for _ in range(6):
        proposal = teacher.propose(given, text, state)
        assert proposal is not None
        [result] = sandbox.apply_many(text, "python", [proposal.action])
        assert result.after is not None
        text, state = result.after, state.merged(proposal.state_update)
    assert text == given.wanted
    # the last three of six
    assert state.history == tuple(f"rewrote 1 match(es) of `old{number}($A)`" for number in (3, 4, 5))


def test_an_instruction_too_long_for_a_goal_is_cut() -> None:
    given = task("old(1)\n", "new(1)\n", instruction="x" * 300)
    proposal = InductionTeacher(MemorySandbox()).propose(given, given.before, State())
    assert proposal is not None
    assert proposal.state_update.goals == ["x" * 255 + "…"]


class WaitingSandbox:
    """A sandbox on a machine that is too busy for anything."""

    isolation = Isolation("none", "waiting")

    def apply_many(self, source: str, language: Language, actions: object) -> list[SandboxResult]:
        assert isinstance(actions, list)
        return [SandboxResult(Verdict.WALL_TIMEOUT, None, self.isolation) for _ in actions]

    def close(self) -> None:
        """Nothing is held."""


def test_a_machine_too_busy_to_try_a_candidate_is_no_reason_to_give_up() -> None:
    given = task("old(1)\n", "new(1)\n")
    with pytest.raises(SandboxError):
        InductionTeacher(WaitingSandbox()).propose(given, given.before, State())


WORD = re.compile(r"[^\W\d]\w+")
# the teacher's own words, those of rules, kinds of nodes and the surroundings in which a piece of code can stand
OWN = set(
    WORD.findall(
        "is too broad it makes unwanted edit first at line match keeping free literally that covers place rewrote of"
        " still to change places are left done the null"
        " pattern kind regex has field name inside context selector rewrite fix"
        " import def pass match case if try for in with as async class constructor extends function let export from"
        " switch super void Object int"
    )
)


def test_nothing_is_said_that_only_the_wanted_text_could_tell(checkout: Path) -> None:
    with gzip.open(checkout / "data" / "samples" / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if len(row["pre"]) < 1500]
    sandbox = MemorySandbox()
    teacher, tasks, steps, secrets = InductionTeacher(sandbox), 0, 0, 0
    for row in random.Random(5).sample(rows, 120):
        sides = parsable(row["pre"], row["post"], row["language"])
        if sides is None:
            continue
        given = task(sides[0], sides[1], row["language"])
        tasks, text, state = tasks + 1, given.before, State()
        while (proposal := teacher.propose(given, text, state)) is not None and steps < 1000:
            feedback = [attempt.feedback for attempt in proposal.attempts]
            said = " ".join([proposal.think, *feedback, proposal.state_update.model_dump_json()])
            secret = set(WORD.findall(given.wanted)) - set(WORD.findall(text)) - OWN
            assert secret & set(WORD.findall(said)) == set(), proposal
            steps, secrets = steps + 1, secrets + len(secret)
            [result] = sandbox.apply_many(text, given.language, [proposal.action])
            assert result.after is not None
            if equality(result.after, given.wanted, given.language).is_verified or result.after == text:
                break
            text, state = result.after, state.merged(proposal.state_update)
    # there was enough to be silent about
    assert (tasks > 110, steps > 120, secrets > 150) == (True, True, True)
