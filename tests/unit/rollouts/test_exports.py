"""What training gets of attempts: chats of verified steps, pairs, groups, prefixes, and the format of Harbor."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.exports.chats import dpo_rows, rl_rows, sft_rows, srl_rows
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import FailedAttempt, Generation, InvalidAnswer, NoProposal, Proposal
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox
from tests.unit.rollouts.test_feedback_attempts import ASKED, BROAD, MISSED, OLD, SILENT, attempted

TaskOf = Callable[..., Task]


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    return load_prompt(Path(__file__).resolve().parents[3] / "configs", "small")


@pytest.fixture
def task(task_of: TaskOf) -> Task:
    return task_of("old(1)\nb(1)\n", "x(1)\nb(1)\n")


class TriedTeacher:
    """Rejects an action by itself before it proposes another, without a language model."""

    name, uses_feedback = "tried", False

    def propose(self, task: Task, text: str, state: State, *_: Any) -> Proposal | InvalidAnswer | NoProposal:
        return Proposal(
            "Calls of old.",
            OLD,
            StateUpdate(history=["did it"]),
            (FailedAttempt(think="All calls.", action=BROAD, feedback="Too broad."),),
        )


def induced(task: Task) -> Trajectory:
    return collect(task, TriedTeacher(), MemorySandbox(), RolloutConfig())


def contents(messages: Sequence[dict[str, str]]) -> list[str]:
    return [message["content"] for message in messages]


def action_in(answer: str) -> Any:
    return json.loads(answer)["action"]


def test_the_chat_of_a_verified_step_ends_with_its_answer(task: Task, prompt: Prompt) -> None:
    [row] = sft_rows([induced(task)], prompt)
    *asked, answer = row["messages"]
    assert (answer["role"], action_in(answer["content"])) == ("assistant", {"pattern": "old($A)", "rewrite": "x($A)"})
    assert [message["role"] for message in asked][-4:] == ["assistant", "user", "assistant", "user"]
    # what was said to what was tried and rejected
    assert "An earlier try was wrong. Too broad." in asked[-1]["content"]
    assert (row["task_id"], row["teacher"], row["license"], row["reward"]) == ("d:1", "tried", "MIT", 1.0)


def test_a_chat_that_was_sent_is_the_one_that_is_learned_from(task: Task, prompt: Prompt) -> None:
    trajectory, _ = attempted(task, MISSED, OLD)
    [row] = sft_rows([trajectory], prompt)
    assert row["messages"][:-1] == [{"role": "user", "content": "Change it."}]


def test_what_is_not_verified_is_not_learned_from(task: Task, prompt: Prompt) -> None:
    failed, _ = attempted(task, MISSED, MISSED, MISSED)
    assert [list(rows([failed], prompt)) for rows in (sft_rows, srl_rows, dpo_rows)] == [[], [], []]


def test_the_wanted_text_is_in_no_question(task_of: TaskOf, prompt: Prompt) -> None:
    secret = task_of("old(1)\n", "x(1)\nSECRET = 1\n")
    tried, _ = attempted(secret, OLD, MISSED, MISSED, MISSED)
    questions = [row["prompt"] for row in rl_rows([tried], prompt)]
    assert [text for question in questions for text in contents(question) if "SECRET" in text] == []


def test_what_failed_at_a_text_is_the_other_side_of_a_pair(task: Task, prompt: Prompt) -> None:
    listened, _ = attempted(task, MISSED, BROAD, OLD)
    pairs = list(dpo_rows([induced(task), listened], prompt))
    assert [(action_in(pair["rejected"][0]["content"])["pattern"], pair["rejected_for"]) for pair in pairs] == [
        # of the induction, by itself; that of the other teacher is the same action
        ("$F(1)", "tried"),
        ("odl($A)", "no_match"),
    ]
    assert {action_in(pair["chosen"][0]["content"])["pattern"] for pair in pairs} == {"old($A)"}
    # nothing of what one of them heard before stands in the question
    assert {contents(pair["prompt"])[-1].count("old(1)") for pair in pairs} == {1}


def test_a_step_of_which_nothing_is_known_is_no_wrong_answer(task: Task, prompt: Prompt) -> None:
    trajectory, _ = attempted(task, MISSED, OLD)
    unknown = trajectory.steps[0].model_copy(
        update={"reward": trajectory.steps[0].reward.model_copy(update={"value": None, "cause": "wall_timeout"})}
    )
    doubtful = trajectory.model_copy(update={"steps": (unknown, *trajectory.steps[1:])})
    assert list(dpo_rows([doubtful], prompt)) == []


def test_attempts_at_one_task_are_a_group(task: Task, prompt: Prompt) -> None:
    verified, silent = induced(task), attempted(task, SILENT, SILENT, SILENT)[0]
    unknown = verified.model_copy(update={"reward": verified.reward.model_copy(update={"value": None})})
    [group] = rl_rows([verified, silent, unknown], prompt)
    assert [(one["teacher"], one["reward"], one["rl_reward"], one["is_verified"]) for one in group["attempts"]] == [
        ("tried", 1.0, 1.0, True),
        ("listening", 0.0, -1.0, False),
    ]
    # of 1 and -1
    assert (group["reward_deviation"], group["attempts"][1]["answers"]) == (1.0, ["?", "?", "?"])


def test_a_prefix_comes_with_what_the_expert_did_next(task_of: TaskOf, prompt: Prompt) -> None:
    task = task_of("old(1)\ng(2)\n", "x(1)\ny(2)\n")
    trajectory, _ = attempted(task, OLD, PatternAction(pattern="g($B)", rewrite="y($B)"))
    assert [(row["expert_action"], row["step"], row["steps"]) for row in srl_rows([trajectory], prompt)] == [
        ({"pattern": "old($A)", "rewrite": "x($A)"}, 1, 2),
        ({"pattern": "g($A)", "rewrite": "y($A)"}, 2, 2),
    ]


def test_a_trajectory_in_the_format_of_harbor(task: Task) -> None:
    trajectory, _ = attempted(task, MISSED, OLD)
    document = atif(trajectory)
    assert [(step["step_id"], step["source"]) for step in document["steps"]] == [
        (1, "user"),
        (2, "agent"),
        (3, "agent"),
    ]
    last = document["steps"][-1]
    assert last["tool_calls"] == [
        {
            "tool_call_id": "call-2",
            "function_name": "apply_astgrep",
            "arguments": {"pattern": "old($A)", "rewrite": "x($A)"},
        }
    ]
    assert last["observation"]["results"][0]["source_call_id"] == "call-2"
    assert document["final_metrics"] == {
        "total_prompt_tokens": 6,
        "total_completion_tokens": 2,
        "total_cached_tokens": 0,
        "total_steps": 3,
    }
    assert (document["extra"]["reward"], document["extra"]["is_verified"]) == (1.0, True)


def test_a_step_without_a_language_model_says_so(task: Task) -> None:
    [_, step] = atif(induced(task))["steps"]
    # neither metrics nor reasoning, for nothing was sampled
    assert (step["llm_call_count"], "metrics" in step, "reasoning_content" in step, step["extra"]["think"]) == (
        0,
        False,
        False,
        "Calls of old.",
    )


def test_an_answer_that_could_not_be_read_is_a_step_without_a_call(task: Task) -> None:
    trajectory, _ = attempted(task, SILENT, OLD)
    step = atif(trajectory)["steps"][1]
    assert ("tool_calls" in step, step["observation"]) == (False, {"results": [{"content": "there is no <action>"}]})


def test_a_price_is_summed_only_where_all_answers_have_one(task: Task) -> None:
    trajectory, _ = attempted(task, MISSED, OLD)
    priced = [_priced(step, 0.25) for step in trajectory.steps]
    half = trajectory.model_copy(update={"steps": (priced[0], trajectory.steps[1])})
    whole = trajectory.model_copy(update={"steps": tuple(priced)})
    assert [atif(one)["final_metrics"].get("total_cost_usd") for one in (half, whole)] == [None, 0.5]


def _priced(step: Any, cost_usd: float) -> Any:
    asked: Generation = ASKED.model_copy(update={"cost_usd": cost_usd})
    return step.model_copy(update={"model_output": step.model_output.model_copy(update={"generation": asked})})
