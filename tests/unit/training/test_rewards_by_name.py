"""What answers are worth by the name of the reward, and answers to problems of mathematics."""

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, DataError
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.training.math_answers import find_answer, read_number, verify_answer, verify_answers
from graftline.training.recipes.rewards import AnswerReward, open_reward
from tests.repository_tasks import after_of, repository_task
from tests.unit.training.answering import REWARDS, task


@pytest.fixture
def opened(checkout: Path) -> Any:
    def open_it(name: Any, prompt: str = "brief") -> AnswerReward:
        return open_reward(name, load_prompt(checkout / "configs", prompt), MemorySandbox, RewardWeights())

    return open_it


def test_the_sandbox_rewards_actions_and_code(opened: Any) -> None:
    chat, item = opened("sandbox").ask(task(1).model_dump(mode="json"), "a row")
    assert chat[-1]["content"].startswith("Rename the function")
    scores = {text: opened("sandbox").score(item, text).value for text in REWARDS}
    assert scores == pytest.approx(REWARDS)
    for text, value in (
        ("```\nx = new(1)\ny = new(2)\n```", 1.0),
        ("```\nx = old(1)\ny = old(2)\n```", 0.0),
        ("", -1.0),
    ):
        assert opened("sandbox", "edit").score(item, text).value == value


def test_the_agent_rewards_the_edit_of_a_place_by_what_follows_it(opened: Any) -> None:
    reward = opened("agent", "edit")
    chat, item = reward.ask(repository_task().model_dump(mode="json"), "a row")
    [place] = [message["content"].partition("\n")[2] for message in chat]
    assert "client.fetch(" in place
    # 3 of 3 places by 4 edits: a dog's method is called so as well
    assert reward.score(item, f"```python\n{after_of(place)}```").value == pytest.approx(6 / 7)
    # a place that is left as it was, code that is none, and another change of all three
    assert reward.score(item, f"```python\n{place}```").value == 0.0
    assert reward.score(item, "").value == -1.0
    wrong = reward.score(item, f"```python\n{place.replace('client.fetch(', 'client.obtain(')}```")
    assert (wrong.value, wrong.cause) == (0.0, "places")


def test_a_reward_says_what_it_is_not_of(opened: Any) -> None:
    with pytest.raises(
        ConfigError, match="reward: 'agent' is of code, and the prompt asks for actions; use prompt: edit"
    ):
        opened("agent")
    with pytest.raises(DataError, match="line 3: is a task of one text, and reward 'agent' is of repositories"):
        opened("agent", "edit").ask(task(1).model_dump(mode="json"), "line 3")
    with pytest.raises(DataError, match=r"line 3: is no problem \(answer: Field required\); `question` and `answer`"):
        opened("math").ask({"question": "What?"}, "line 3")


def test_a_problem_is_right_or_wrong(opened: Any) -> None:
    reward = opened("math")
    chat, item = reward.ask({"question": "How many are 6 times 7?", "answer": "6 * 7 = <<6*7=42>>42\n#### 42"}, "a row")
    assert chat == [{"role": "user", "content": "How many are 6 times 7?"}]
    scores = [reward.score(item, text) for text in ("So there are 42.", "I think of 41 or 43.", "Many.")]
    assert [(score.value, score.cause) for score in scores] == [(1.0, "verified"), (0.0, "wrong"), (-1.0, "bad_format")]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("12 + 3 = 15\n#### 15\n", "15"),
        ("First \\boxed{1}, then \\boxed{\\frac{1}{2}} of it.", "\\frac{1}{2}"),
        ("It costs $1,200.50.", "1,200.50"),
        ("\\boxed{never closed", ""),
        ("no number", ""),
        (f"#### {'x' * 3000}", ""),
    ],
)
def test_what_counts_is_what_a_solution_ends_with(text: str, answer: str) -> None:
    assert find_answer(text) == answer


@pytest.mark.parametrize(
    ("answer", "number"),
    [("$1,200.00", Fraction(1200)), ("-3/4", Fraction(-3, 4)), ("12.5%", Fraction(1, 8)), (".5", Fraction(1, 2))]
    + [(answer, None) for answer in ("1/0", "x", "", "9" * 50, "1 2")],
)
def test_numbers_are_read_as_they_are_written(answer: str, number: Fraction | None) -> None:
    assert read_number(answer) == number


def test_expressions_are_compared_and_what_no_machine_works_out_is_wrong() -> None:
    pytest.importorskip("math_verify", reason="pip install 'graftline[training]'")
    pairs = [
        ("\\boxed{x^2+1}", "\\boxed{1+x^2}"),
        ("\\boxed{x}", "\\boxed{y}"),
        ("\\boxed{9^{9^{9}}}", "\\boxed{9^{9^{8}}}"),
    ]
    assert verify_answers([*pairs, ("\\boxed{\\frac{1}{2}}", "\\boxed{0.5}")]) == [True, False, False, True]
    assert verify_answer("#### 3", "3.0000000001")
    assert not verify_answer("#### 3", "3.1", tolerance=0.01)
