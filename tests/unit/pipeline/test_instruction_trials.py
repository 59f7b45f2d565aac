"""Instructions of tasks that a served model tries: what becomes known, what is kept, and what stays unknown."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ActorError, ConfigError
from graftline.datasets.splits import SPLITS
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import load_fleet
from graftline.llm.memory import MemoryChatModel
from graftline.pipeline.instruction_trials import check_terms, try_instructions
from graftline.rollouts.task import WORDS_ALONE, Task
from tests.lineages import Opened, Run
from tests.tasks import make_task

ON = {"round_trip": {"attempts": 2}, "at_once": 1}


@pytest.fixture
def tried(small_checkout: Any, opened: Opened, reconfigure: Callable[..., None]) -> Callable[..., Any]:
    """A function that lets a model try the instructions of tasks; returns the tasks, and what the model was asked."""

    def tried(tasks: list[Task], **settings: Any) -> tuple[list[Task], list[ChatRequest]]:
        model = MemoryChatModel(rename)
        reconfigure(small_checkout.root, "trajectories.yaml", {"instructions": {**ON, **settings}})
        with BlockingChatModel(model) as blocking, opened() as lineage:
            lineage.ports.replace("chat_model", blocking)
            return try_instructions(lineage, "python", "train", tasks)[0], model.requests

    return tried


async def rename(request: ChatRequest) -> str:
    """Do what is asked for where that is a new name; nobody answers where the instruction says `down`."""
    system, question = (message.content for message in request.messages)
    if "down" in question:
        raise ActorError("the server is down")
    if "colleague" in system:
        return "Please call `new` wherever `old` is called."
    code = question.partition("```python\n")[2].partition("```")[0]
    return f"```\n{code.replace('old', 'new') if '`new`' in question else code}```"


def commit(number: int, instruction: str, **changes: Any) -> Task:
    values = {"instruction_source": "commit", "answerable": None, "answerable_by": None, **changes}
    return make_task(f"old({number})\n", f"new({number})\n", id=f"d:{number}", instruction=instruction, **values)


SAYS, SAYS_NOTHING = "Call `new` instead.", "Fix the tests."


def test_messages_of_commits_become_answerable_or_not_and_are_not_asked_about_twice(tried: Callable[..., Any]) -> None:
    tasks = [
        commit(1, SAYS),
        commit(2, SAYS_NOTHING),
        commit(3, "", instruction_source="none", answerable=False, answerable_by="no_instruction"),
        commit(4, SAYS, tags=(WORDS_ALONE,)),
        commit(5, SAYS, instruction_source="rule", answerable=True, answerable_by="reader"),
    ]
    outcome, requests = tried(tasks)
    expected = [(True, "model"), (False, "model")]
    assert [(task.answerable, task.answerable_by) for task in outcome[:2]] == expected
    assert (outcome[2:], len(requests)) == (tasks[2:], 3)
    assert [task.digest for task in outcome] == [task.digest for task in tasks]
    assert tried(tasks) == (outcome, [])
    # more attempts are another question
    assert len(tried(tasks, round_trip={"attempts": 3})[1]) == 4


def test_what_a_reader_does_is_put_into_other_words_where_that_is_wanted(tried: Callable[..., Any]) -> None:
    task = commit(1, "Rename `old` to `new`.", instruction_source="rule", answerable=True, answerable_by="reader")
    [reworded], _ = tried([task], round_trip={"rewordings": 1})
    assert reworded == task.model_copy(
        update={
            "instruction": "Please call `new` wherever `old` is called.",
            "instruction_source": "model",
            "answerable_by": "model",
        }
    )
    unsaid = task.model_copy(update={"target": "new(2)\n"})
    assert tried([unsaid], round_trip={"rewordings": 1})[0] == [unsaid]


def test_what_nobody_answered_is_not_known_and_is_asked_again(tried: Callable[..., Any]) -> None:
    tasks = [commit(1, "Is down."), commit(2, SAYS)]
    outcome, _ = tried(tasks)
    assert ([task.answerable for task in outcome], outcome[0]) == ([None, True], tasks[0])
    assert len(tried(tasks)[1]) == 1


def test_a_fleet_that_is_down_ends_the_run_and_what_was_answered_is_kept(tried: Callable[..., Any]) -> None:
    tasks = [commit(0, SAYS), *(commit(number, "Is down.") for number in range(1, 12))]
    fault = "python/train: memory fails 8 questions about instructions one after the other: the server is down; mend"
    with pytest.raises(ActorError, match=fault):
        tried(tasks)
    outcome, requests = tried(tasks[:1])
    assert (outcome[0].answerable, requests) == (True, [])


@pytest.mark.parametrize("limit", [{"most_tokens": 1}, {"most_minutes": 1e-9}])
def test_at_its_limits_a_run_asks_no_more(tried: Callable[..., Any], limit: dict[str, float]) -> None:
    tasks = [commit(number, SAYS) for number in range(3)]
    outcome, requests = tried(tasks, **limit)
    answered = int("most_tokens" in limit)
    assert ([task.answerable for task in outcome].count(True), len(requests)) == (answered, answered)


def test_what_was_not_answered_is_asked_again_and_what_is_made_of_it_stays(
    made: Path, run: Run, reconfigure: Callable[..., None]
) -> None:
    stored = made / "data" / "tasks" / "python" / "train" / "tasks.jsonl"
    before = stored.read_bytes()

    def run_within(**limits: float) -> dict[str, str]:
        reconfigure(made, "trajectories.yaml", {"instructions": {"round_trip": {"rewordings": 1}, **limits}})
        reasons = run(made, {"sandbox": "memory", "chat_model": {"kind": "memory", "answers": ["Change it."]}})
        return {name: reason for name, reason in reasons.items() if reason}

    assert run_within(most_minutes=1e-9)["tasks python/train"] == "config instructions changed"
    made_again = dict.fromkeys(
        [f"tasks python/{split}" for split in SPLITS], "unfinished: instructions that nobody answered about: 1"
    )
    assert run_within(most_minutes=1e-9) == made_again
    assert run_within() == made_again
    trials = [*map(json.loads, (made / "data" / "instructions" / "python" / "train.jsonl").read_text().splitlines())]
    assert trials
    assert not any(trial["is_answerable"] for trial in trials)
    assert (stored.read_bytes(), run_within()) == (before, {})


@pytest.mark.parametrize(
    ("may_train", "rewordings", "is_refused"), [(False, 1, True), (False, 0, False), (None, 1, False)]
)
def test_rewordings_are_not_asked_of_a_fleet_whose_answers_may_not_be_trained_on(
    checkout: Path, may_train: bool | None, rewordings: int, is_refused: bool
) -> None:
    fleet = load_fleet(checkout / "configs", "glm-4.6")
    assert fleet.outputs is not None
    forbidding = fleet.model_copy(update={"outputs": fleet.outputs.model_copy(update={"may_train": may_train})})
    with pytest.raises(ConfigError, match="may not be trained on") if is_refused else nullcontext():
        check_terms(forbidding, rewordings)
