"""One attempt: how it ends, what is stored of each step, and what a failure of the machine does to it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.cost import description_length
from graftline.codemod.equality import Level
from graftline.core.errors import BoundaryError, SandboxError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.reward import Reward, RewardWeights
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import FailedAttempt, NoProposal, Proposal
from graftline.rollouts.trajectory import ModelOutput, Prompt, SandboxOutcome, Trajectory, TrajectoryStep
from graftline.sandbox import Isolation, SandboxResult, Verdict
from graftline.sandbox.actions.memory import MemorySandbox

TaskOf = Callable[..., Task]
Action = PatternAction | RuleAction
Reading = Callable[[Sequence[Action]], Any]
Run = Callable[..., Trajectory]


def pattern(old: str, new: str) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new)


F, G = pattern("old($A)", "x($A)"), pattern("g(2)", "y(2)")
BEFORE, AFTER = "old(1)\ng(2)\n", "x(1)\ny(2)\n"


@pytest.fixture
def run(task_of: TaskOf, reading: Reading) -> Callable[..., Trajectory]:
    """A function of actions, and perhaps texts and settings, that returns the attempt in which they are proposed."""

    def attempt(*actions: Action, before: str = "old(1)\n", after: str = "x(1)\n", **settings: Any) -> Trajectory:
        task = task_of(before, after, gold_action=settings.pop("gold_action", None))
        return collect(task, reading(actions), settings.pop("sandbox", MemorySandbox()), RolloutConfig(**settings))

    return attempt


def test_all_of_an_attempt_is_stored(task_of: TaskOf, run: Run) -> None:
    shared: dict[str, Any] = {
        "task_id": "d:1",
        "is_kept": True,
        "parse_ok": True,
        "format_ok": True,
        "format_strict": True,
        "false_positives": 0,
        "background_matches": 0.0,
        "idempotent": True,
        "negatives_changed": None,
        "support": 1,
        "support_pairs": 1,
        "srl": None,
    }
    result: dict[str, Any] = {"verdict": Verdict.OK, "matches": 1, "error": "", "isolation": "none/memory"}
    first = TrajectoryStep(
        **shared,
        step=1,
        prompt=Prompt(instruction="Change it.", text=BEFORE),
        state_before=State(),
        model_output=ModelOutput(think="thought 1", action=F, state_update=StateUpdate(history=["step 1"])),
        sandbox_result=SandboxOutcome(**result, after="x(1)\ng(2)\n", diff="--- \n+++ \n@@ -1 +1 @@\n-old(1)\n+x(1)"),
        # two tokens of four are done, and 0.6 is paid for all of them
        level=Level.PARTIAL,
        progress=0.5,
        general=True,
        description_length=round(description_length(F) / description_length(pattern("old(1)", "x(1)")), 3),
        reward=Reward(value=0.3, cause="partial"),
    )
    second = TrajectoryStep(
        **shared,
        step=2,
        prompt=Prompt(instruction="Change it.", text="x(1)\ng(2)\n"),
        state_before=State(history=("step 1",)),
        model_output=ModelOutput(think="thought 2", action=G, state_update=StateUpdate(history=["step 2"])),
        sandbox_result=SandboxOutcome(**result, after=AFTER, diff="--- \n+++ \n@@ -2 +2 @@\n-g(2)\n+y(2)"),
        level=Level.EXACT,
        progress=1.0,
        general=False,
        # it is the literal rule
        description_length=1.0,
        # the second step memorises
        reward=Reward(value=0.8, cause="verified_literal"),
    )
    assert run(F, G, before=BEFORE, after=AFTER) == Trajectory(
        task_id="d:1",
        task_digest=task_of(BEFORE, AFTER).digest,
        dataset="d",
        language="python",
        instruction="Change it.",
        license="MIT",
        group="g",
        origin="o",
        tags=("a", "b"),
        teacher="reading",
        steps=(first, second),
        level=Level.EXACT,
        ending="done",
        failure="",
        reward=Reward(value=0.8, cause="verified_literal"),
    )


INVALID = pattern("old($A)", "$UNDEFINED")
# actions, the most steps, and then ending, number of steps, level and reward
ENDINGS: dict[str, tuple[list[PatternAction | RuleAction], int, tuple[str, int, Level, float | None, str]]] = {
    "done in one step": ([pattern("old($A)", "x($A)")], 12, ("done", 1, Level.EXACT, 1.0, "verified")),
    "done but for blanks": ([pattern("old($A)", "x( $A )")], 12, ("done", 1, Level.TREE, 1.0, "verified")),
    "done by heart": ([pattern("old(1)", "x(1)")], 12, ("done", 1, Level.EXACT, 0.8, "verified_literal")),
    "given up at once": ([], 12, ("gave_up", 0, Level.NONE, 0.0, "gave_up")),
    # 2 tokens of 4 are done: f is h now, which is as far away, so nothing of it counts
    "given up later": ([pattern("old($A)", "mid($A)")], 12, ("gave_up", 1, Level.NONE, 0.0, "no_progress")),
    "no match": ([pattern("no_such($A)", "x($A)")], 12, ("no_match", 1, Level.NONE, 0.0, "no_match")),
    "refused": ([INVALID], 12, ("action_error", 1, Level.NONE, 0.0, "action_error")),
    "the same text": ([pattern("old($A)", "old($A)")], 12, ("repeated_text", 1, Level.NONE, 0.0, "no_progress")),
    "round in a circle": (
        [pattern("old($A)", "mid($A)"), pattern("mid($A)", "old($A)"), pattern("old($A)", "x($A)")],
        12,
        ("repeated_text", 2, Level.NONE, 0.0, "no_progress"),
    ),
    "too many steps": (
        [pattern("old($A)", "mid($A)"), pattern("mid($A)", "next_mid($A)"), pattern("next_mid($A)", "x($A)")],
        2,
        ("max_steps", 2, Level.NONE, 0.0, "no_progress"),
    ),
    "done with the last step": (
        [pattern("old($A)", "mid($A)"), pattern("mid($A)", "x($A)")],
        2,
        ("done", 2, Level.EXACT, 1.0, "verified"),
    ),
    # what came first is not paid when the last step fails
    "refused after a good step": (
        [pattern("old($A)", "mid($A)"), INVALID],
        12,
        ("action_error", 2, Level.NONE, 0.0, "action_error"),
    ),
}


@pytest.mark.parametrize(("actions", "most", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_every_ending_has_its_name_and_its_reward(
    run: Run, actions: list[Action], most: int, expected: tuple[str, int, Level, float | None, str]
) -> None:
    trajectory = run(*actions, max_steps=most)
    reward = trajectory.reward
    assert (trajectory.ending, len(trajectory.steps), trajectory.level, reward.value, reward.cause) == expected
    assert trajectory.is_verified is (trajectory.ending == "done")


def test_each_step_is_asked_for_with_the_text_and_the_state_it_starts_from(task_of: TaskOf, reading: Reading) -> None:
    teacher = reading([F])
    collect(task_of(BEFORE, AFTER), teacher, MemorySandbox(), RolloutConfig())
    assert teacher.asked == [(BEFORE, State()), ("x(1)\ng(2)\n", State(history=("step 1",)))]


def test_what_a_failed_step_leaves_is_the_text_before(run: Run) -> None:
    trajectory = run(F, INVALID, before=BEFORE, after=AFTER)
    last = trajectory.steps[-1]
    assert last.sandbox_result is not None
    assert (last.sandbox_result.after, last.sandbox_result.diff, last.progress) == (None, "", 0.5)
    # the progress of the first step is kept as a fact, but the step that failed is worth nothing
    assert (last.level, last.reward) == (Level.PARTIAL, Reward(value=0.0, cause="action_error"))
    # without a cause of its own, a failure is called by its ending
    assert (trajectory.ending, trajectory.failure) == ("action_error", "action_error")


@pytest.mark.parametrize("rewrite", ["x(" + "1, " * 5_000 + ")", "-" * 400 + "1"], ids=["too long", "too deep"])
def test_a_text_too_large_to_be_read_again_is_a_failed_step(run: Run, rewrite: str) -> None:
    trajectory = run(pattern("old($A)", rewrite), before="old(1)\n" * 40)
    no_progress = Reward(value=0.0, cause="no_progress")
    assert (trajectory.ending, trajectory.level, trajectory.reward) == ("gave_up", Level.NONE, no_progress)


def test_a_long_difference_is_cut(run: Run) -> None:
    [step] = run(pattern("old($A)", "[\n" + "1,\n" * 5_000 + "]")).steps
    assert step.sandbox_result is not None
    assert len(step.sandbox_result.diff) == 20_000


def test_weights_are_those_of_the_configuration(run: Run) -> None:
    weights = RewardWeights(verified_general=0.5, verified_literal=0.25, progress=0.2)
    trajectory = run(F, G, before=BEFORE, after=AFTER, weights=weights)
    assert [step.reward.value for step in trajectory.steps] == [0.1, 0.25]


class FixedTeacher:
    """Gives the same answer every time it is asked; an error is raised."""

    name, uses_feedback = "fixed", False

    def __init__(self, answer: Proposal | NoProposal | Exception) -> None:
        self.answer = answer

    def propose(self, task: Task, text: str, state: State, *_: Any) -> Proposal | NoProposal:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_what_a_teacher_tried_and_what_else_it_knows_are_kept(task_of: TaskOf) -> None:
    failed, literal = FailedAttempt(action=pattern("$A(1)", "x(1)"), feedback="too broad"), pattern("old(1)", "x(1)")
    teacher = FixedTeacher(Proposal("", F, StateUpdate(), (failed,), (literal,)))
    output = collect(task_of("old(1)\n", "x(1)\n"), teacher, MemorySandbox(), RolloutConfig()).steps[0].model_output
    assert (output.attempts, output.alternatives) == ((failed,), (literal,))


class AnsweringSandbox:
    """Gives one verdict to everything."""

    isolation = Isolation("none", "answering")

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def apply_many(self, source: str, language: Language, actions: Sequence[Any]) -> list[SandboxResult]:
        return [SandboxResult(self._verdict, None, self.isolation) for _ in actions]

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
def test_a_verdict_that_ends_an_attempt_is_its_ending_and_its_cause(run: Run, verdict: Verdict) -> None:
    trajectory = run(F, G, sandbox=AnsweringSandbox(verdict))
    # the wall clock, and a sandbox that lacks what it needs, say nothing about the action; everything else does
    value = None if verdict in ("wall_timeout", "needs_cli", "runner_error") else 0.0
    assert (trajectory.ending, trajectory.reward) == (verdict.value, Reward(value=value, cause=verdict.value))
    assert [step.reward for step in trajectory.steps] == [trajectory.reward]


class FailingSandbox(MemorySandbox):
    """Fails the first calls, then answers."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def apply_many(self, source: str, language: Language, actions: Sequence[Any]) -> list[SandboxResult]:
        if self.failures:
            self.failures -= 1
            raise SandboxError("broken")
        return super().apply_many(source, language, actions)


PATIENT = FixedTeacher(Proposal("", F, StateUpdate()))


def test_a_sandbox_that_fails_once_is_asked_once_more(task_of: TaskOf) -> None:
    task = task_of("old(1)\n", "x(1)\n")
    again = collect(task, PATIENT, FailingSandbox(1), RolloutConfig())
    assert again == collect(task, PATIENT, MemorySandbox(), RolloutConfig())


def test_a_sandbox_that_fails_twice_is_an_error_and_no_attempt(task_of: TaskOf) -> None:
    sandbox = FailingSandbox(3)
    with pytest.raises(SandboxError):
        collect(task_of("old(1)\n", "x(1)\n"), PATIENT, sandbox, RolloutConfig())
    assert sandbox.failures == 1


def test_a_teacher_that_cannot_answer_is_an_error_and_no_attempt(task_of: TaskOf) -> None:
    silent = FixedTeacher(BoundaryError("no answer"))
    with pytest.raises(BoundaryError):
        collect(task_of("old(1)\n", "x(1)\n"), silent, MemorySandbox(), RolloutConfig())


def test_why_a_teacher_gave_up_is_the_class_of_the_failure(task_of: TaskOf) -> None:
    teacher = FixedTeacher(NoProposal("too_different"))
    trajectory = collect(task_of("old(1)\n", "x(1)\n"), teacher, MemorySandbox(), RolloutConfig())
    assert (trajectory.ending, trajectory.failure, trajectory.format_ok) == ("gave_up", "too_different", True)


def test_blanks_that_ast_grep_writes_on_empty_lines_are_taken_off(run: Run) -> None:
    after = "if a:\n    x(1)\n\n    y(1)\n"
    trajectory = run(pattern("old($A)", "x($A)\n\ny($A)"), before="if a:\n    old(1)\n", after=after)
    assert trajectory.steps[0].sandbox_result is not None
    assert (trajectory.level, trajectory.steps[0].sandbox_result.after) == (Level.EXACT, after)


def test_wrong_matches_take_their_share_of_what_progress_pays(run: Run) -> None:
    before, after = "old(1, 2)\nold(1, 3)\nold(4)\n", "x(1, 5)\nx(1, 6)\nold(4)\n"
    [step] = run(pattern("old($$$A)", "x($$$A)"), before=before, after=after).steps
    assert step.sandbox_result is not None
    # 8 tokens are to go and come, 4 of them did, and 2 more that should not: 6 are left
    assert (step.progress, step.false_positives, step.sandbox_result.matches) == (0.25, 1, 3)
    # 0.6 * 0.25 * (1 - 1/3)
    assert step.reward == Reward(value=0.1, cause="partial")


LEN = pattern("len($A)", "size($A)")


NARROW = PatternAction(pattern="len(no_such_name)", rewrite="size(no_such_name)")
# ast-grep refuses it, so that nobody knows how much foreign code it changes
UNKNOWN = PatternAction(pattern="len($A)", rewrite="$UNDEFINED")


@pytest.mark.parametrize(
    ("golds", "expected"),
    [
        ((), Reward(value=0.6, cause="verified_broad")),
        ((NARROW,), Reward(value=0.6, cause="verified_broad")),
        ((LEN,), Reward(value=1.0, cause="verified")),
        ((UNKNOWN,), Reward(value=1.0, cause="verified")),
        ((NARROW, UNKNOWN), Reward(value=1.0, cause="verified")),
    ],
    ids=["without a gold", "a narrow gold", "a gold as broad", "a gold of unknown spread", "one gold of two unknown"],
)
def test_a_gold_of_unknown_spread_is_held_against_nobody(
    task_of: TaskOf, reading: Reading, golds: tuple[PatternAction, ...], expected: Reward
) -> None:
    gold = {"gold_action": golds[0] if golds else None, "gold_next": golds[1:]}
    task = task_of("len(b)\n", "size(b)\n").model_copy(update=gold)
    trajectory = collect(task, reading([LEN]), MemorySandbox(), RolloutConfig())
    assert (trajectory.reward, trajectory.steps[0].srl is None) == (expected, not golds)


def test_a_broad_step_on_the_way_is_not_forgotten(run: Run) -> None:
    trajectory = run(LEN, F, before="len(b)\nold(1)\n", after="size(b)\nx(1)\n")
    assert [step.reward.cause for step in trajectory.steps] == ["partial", "verified_broad"]


def test_how_long_an_attempt_took_is_known_but_neither_stored_nor_compared(run: Run) -> None:
    first, second = (run(F, G, before=BEFORE, after=AFTER) for _ in range(2))
    assert (first, first.model_dump_json()) == (second, second.model_dump_json())
    assert (len(first.timings.answers_ms), first.timings.attempt_ms > sum(first.timings.answers_ms)) == (2, True)
    assert Trajectory.model_validate_json(first.model_dump_json()).timings.attempt_ms == 0.0
