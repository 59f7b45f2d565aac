"""Changes of repositories as tasks: which places count, and what rules and tests are worth."""

from typing import Any

import pytest
from pydantic import ValidationError

from graftline.astgrep.action import PatternAction
from graftline.codemod.place_score import PlaceScore, score_places, total_reward
from graftline.rollouts.repository_task import grade_actions, grade_repository_answer, grade_texts
from graftline.rollouts.reward import BAD_FORMAT
from graftline.rollouts.teachers.answer import AnswerFormat
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import SandboxResult, Verdict
from tests.repository_tasks import BEFORE, after_of, repository_task

OLD, NEW = "a\nb\nc\nd\ne\n", "a\nB\nc\nd\nE\n"


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        (OLD, (2, 0, 0, 0)),
        (NEW, (2, 2, 2, 2)),
        ("a\nB\nc\nd\ne\n", (2, 1, 1, 1)),
        ("a\nX\nc\nd\nE\n", (2, 1, 2, 1)),  # another text at one place
        ("a\nB\nC\nd\nE\n", (2, 1, 2, 1)),  # more than the place
        ("A\nB\nc\nd\nE\n", (2, 1, 2, 1)),
        ("", (2, 0, 1, 0)),  # the file is gone: one region, wrong
        ("a\nB\nc\nx\nd\nE\n", (2, 2, 3, 2)),  # an insertion elsewhere
    ],
)
def test_a_place_counts_if_its_text_is_that_of_the_change(text: str, counts: tuple[int, int, int, int]) -> None:
    assert score_places({"f": (OLD, NEW)}, {}, {"f": text}) == PlaceScore(*counts)


def test_what_changes_in_a_file_that_is_left_alone_is_wrong() -> None:
    score = score_places({"f": (OLD, NEW)}, {"g": OLD}, {"f": NEW, "g": NEW})
    # 2 of 2 places, by 2 of 4 edits: 2 * (1/2) * 1 / (3/2)
    assert (score, score.f1) == (PlaceScore(2, 2, 4, 2, false=2, untouched=1), pytest.approx(2 / 3))


def test_a_text_that_takes_too_long_to_compare_is_one_wrong_place() -> None:
    flood = "a\n" * 20_000_000
    assert score_places({"f": (OLD, NEW)}, {}, {"f": flood[:40_000_000]}) == PlaceScore(2, 0, 1, 0)


@pytest.mark.parametrize(
    ("score", "passes", "reward"),
    [
        (PlaceScore(2, 1, 1, 1), None, 2 / 3),
        (PlaceScore(2, 1, 1, 1), True, 2 / 3),
        (PlaceScore(2, 1, 1, 1), False, 0.0),
        (PlaceScore(2, 0, 0, 0), True, 0.0),  # tests pass where nothing was done
        (None, True, 1.0),
        (None, False, 0.0),
    ],
)
def test_the_reward_states_places_and_tests(score: PlaceScore | None, passes: bool | None, reward: float) -> None:
    parts = total_reward(score, passes)
    assert parts["reward"] == pytest.approx(reward)
    assert ("places_f1" in parts, "tests" in parts) == (score is not None, passes is not None)


RULES = {
    "client.fetch($A, timeout=$B)": 1.0,
    "$C.fetch($A, timeout=$B)": 6 / 7,  # 3 of 3 places, 3 of 4 edits
    "client.fetch(nobody)": 0.0,
}


@pytest.mark.parametrize(("pattern", "reward"), RULES.items())
def test_a_rule_is_worth_what_it_makes_of_all_files(pattern: str, reward: float) -> None:
    action = PatternAction(pattern=pattern, rewrite=pattern.replace("fetch", "get"))
    grade = grade_actions(repository_task(), [action], MemorySandbox())
    assert (grade.reward.value, grade.reward.cause) == (pytest.approx(reward), "places")


def test_an_answer_that_cannot_be_read_is_told_from_one_that_is_wrong() -> None:
    answer = '{"pattern": "client.fetch($A, timeout=$B)", "rewrite": "client.get($A, timeout=$B)"}'
    task, sandbox, form = repository_task(), MemorySandbox(), AnswerFormat(layout="action")
    is_read, reward = grade_repository_answer(task, answer, form, sandbox)
    assert (is_read, reward.value) == (True, 1.0)
    is_read, reward = grade_repository_answer(task, "I do not know.", form, sandbox)
    assert (is_read, reward.value, reward.cause) == (False, 0.0, BAD_FORMAT)


class Ailing(MemorySandbox):
    """A sandbox whose machine is too busy."""

    def apply_many(self, source: str, language: Any, actions: Any) -> list[SandboxResult]:
        return [SandboxResult(Verdict.WALL_TIMEOUT, None, self.isolation) for _ in actions]


def test_a_machine_that_fails_is_no_reward() -> None:
    action = PatternAction(pattern="a", rewrite="b")
    grade = grade_actions(repository_task(), [action], Ailing())
    assert (grade.reward.value, grade.reward.cause, grade.parts) == (None, "wall_timeout", {})


def test_the_block_is_one_place_and_not_its_file() -> None:
    block = repository_task(
        files=[{"path": "a.py", "before": BEFORE + "x = 1\n", "after": after_of(BEFORE) + "x = 1\n"}]
    ).block
    assert ("client.fetch" in block.before, "client.get" in block.target, "x = 1" in block.before) == (
        True,
        True,
        False,
    )


def test_a_task_that_nothing_can_judge_is_refused() -> None:
    for changes in (
        {"files": []},
        {"untouched": [{"path": "a.py", "text": ""}]},
        {"untouched": [{"path": "../b", "text": ""}]},
    ):
        with pytest.raises(ValidationError):
            repository_task(**changes)


def test_texts_are_graded_as_they_are() -> None:
    task = repository_task()
    assert grade_texts(task, {file.path: file.after for file in task.files}, MemorySandbox()).parts["places_f1"] == 1.0
