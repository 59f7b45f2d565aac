"""What every teacher answers, whichever implementation it is."""

from collections.abc import Iterator

import pytest

from graftline.astgrep.action import PatternAction
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import InductionTeacherConfig, MemoryTeacherConfig, NoProposal, Proposal, Teacher
from graftline.rollouts.teachers.open import open_teacher
from graftline.sandbox import MemorySandboxConfig, Sandbox, Verdict, open_sandbox
from tests.tasks import make_task

CONFIGS = {"induction": InductionTeacherConfig(), "memory": MemoryTeacherConfig()}


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    opened = open_sandbox(MemorySandboxConfig())
    yield opened
    opened.close()


@pytest.fixture(params=sorted(CONFIGS))
def teacher(request: pytest.FixtureRequest, sandbox: Sandbox) -> Teacher:
    return open_teacher(CONFIGS[request.param], sandbox)


def task(before: str, target: str, gold: PatternAction | None = None) -> Task:
    return make_task(before, target, instruction="Rename `old` to `new`.", gold_action=gold)


RENAME = PatternAction(pattern="old($A)", rewrite="new($A)")
SOLVABLE = task("x = old(1)\ny = old(2)\n", "x = new(1)\ny = new(2)\n", RENAME)


def test_a_teacher_is_called_what_it_is_configured_as(sandbox: Sandbox) -> None:
    assert {open_teacher(config, sandbox).name: kind for kind, config in CONFIGS.items()} == {
        "induction": "induction",
        "memory": "memory",
    }


def test_a_proposal_is_a_step_with_a_thought_an_action_and_an_update(teacher: Teacher) -> None:
    proposal = teacher.propose(SOLVABLE, SOLVABLE.before, State())
    assert isinstance(proposal, Proposal)
    assert (proposal.action, proposal.attempts) == (RENAME, ())
    assert proposal.think.strip()
    assert isinstance(proposal.state_update, StateUpdate)


def test_what_is_proposed_can_be_applied(teacher: Teacher, sandbox: Sandbox) -> None:
    proposal = teacher.propose(SOLVABLE, SOLVABLE.before, State())
    assert isinstance(proposal, Proposal)
    [result] = sandbox.apply_many(SOLVABLE.before, SOLVABLE.language, [proposal.action])
    assert (result.verdict, result.after) == (Verdict.OK, SOLVABLE.target)


def test_the_update_leaves_a_state_that_can_be_stored(teacher: Teacher) -> None:
    long = SOLVABLE.model_copy(update={"instruction": "Rename it. " * 500})
    proposal = teacher.propose(long, long.before, State())
    assert isinstance(proposal, Proposal)
    state = State().apply(proposal.state_update)
    assert State.model_validate_json(state.model_dump_json()) == state
    assert (len(state.history), state.next_focus) == (1, "done")


def test_the_same_question_has_the_same_answer(teacher: Teacher) -> None:
    first, second = (teacher.propose(SOLVABLE, SOLVABLE.before, State()) for _ in range(2))
    assert first == second


def test_one_teacher_does_not_mix_up_its_tasks(teacher: Teacher) -> None:
    other = task("y = 1\n", "y = 2\n", PatternAction(pattern="y = 1", rewrite="y = 2"))
    alone = teacher.propose(SOLVABLE, SOLVABLE.before, State())
    teacher.propose(other, other.before, State())
    assert teacher.propose(SOLVABLE, SOLVABLE.before, State()) == alone


def test_a_teacher_that_is_done_gives_up(teacher: Teacher) -> None:
    proposal = teacher.propose(SOLVABLE, SOLVABLE.before, State())
    assert isinstance(proposal, Proposal)
    state = State().apply(proposal.state_update)
    assert teacher.propose(SOLVABLE, SOLVABLE.target, state) == NoProposal("done")


UNSOLVABLE = {
    "a source that cannot be read": (task("-" * 500 + "a\n", "-" * 500 + "b\n"), "unreadable"),
    "no source at all": (task("\ud800", "x\n"), "unreadable"),
    "a line that is too long": (task("x" * 20_000 + "\n", "y\n"), "too_large"),
    "nothing at all": (task("x = 1\n", "x = 1\n"), "done"),
}


@pytest.mark.parametrize("name", UNSOLVABLE)
def test_a_teacher_that_knows_nothing_gives_up_and_says_why(teacher: Teacher, name: str) -> None:
    given, cause = UNSOLVABLE[name]
    expected = {"induction": NoProposal(cause), "memory": NoProposal("no_gold")}
    assert teacher.propose(given, given.before, State()) == expected[teacher.name]


def test_several_gold_actions_are_proposed_in_their_order(sandbox: Sandbox) -> None:
    second = PatternAction(pattern="new($A)", rewrite="newer($A)")
    given = SOLVABLE.model_copy(update={"gold_next": (second,), "target": "x = newer(1)\ny = newer(2)\n"})
    teacher, text, state, proposed = open_teacher(MemoryTeacherConfig(), sandbox), given.before, State(), []
    while isinstance(answer := teacher.propose(given, text, state), Proposal):
        proposed.append(answer.action)
        [result] = sandbox.apply_many(text, given.language, [answer.action])
        assert result.after is not None
        text, state = result.after, state.apply(answer.state_update)
    assert (proposed, answer) == ([RENAME, second], NoProposal("done"))
