"""A teacher that asks a language model in the lineage: what is asked, kept, and not asked again."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ActorError
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.state import AttemptLog, StateStore
from tests.lineages import Run


def answer(pattern: str, rewrite: str) -> str:
    return json.dumps(
        {
            "think": "The calls change.",
            "action": {"pattern": pattern, "rewrite": rewrite},
            "state_update": {"history": ["did it"], "next_focus": "done"},
        }
    )


def asking(*answers: str) -> dict[str, Any]:
    return {
        "sandbox": "memory",
        "teacher": "openai",
        "chat_model": {"kind": "memory", "answers": list(answers)},
        "vector_store": "memory",
    }


RIGHT, WRONG = answer("old($A, $B)", "new($A, $B)"), answer("gone($A)", "there($A)")


@pytest.fixture
def rows(made: Path) -> Callable[[], list[dict[str, Any]]]:
    """A function that returns the attempts of all splits that count, of the teacher that asks."""

    def found() -> list[dict[str, Any]]:
        files = sorted((made / "data" / "trajectories" / "parquet").glob("python/*/trajectories.parquet"))
        return [row for file in files for row in read_parquet(file) if row["teacher"] == "openai/memory"]

    return found


def test_a_language_model_attempts_the_tasks(made: Path, run: Run, rows: Any) -> None:
    reasons = run(made, asking(WRONG, "no step at all"))
    assert reasons["teacher_trajectories python/train/openai-memory"] == "not there yet"
    found = rows()
    assert {(row["ending"], row["steps"], row["prompt_tokens"] > 0) for row in found} == {("max_failed", 3, True)}
    assert len({row["made_by"] for row in found}) == 1


def test_what_was_answered_is_not_asked_again(
    made: Path, run: Run, reconfigure: Callable[..., None], rows: Any
) -> None:
    run(made, asking(WRONG))
    before = [row["task_id"] for row in rows()]
    # the run is lost, but not what its workers stored
    for folder in (made / "data" / "trajectories" / "raw").glob("python/*/openai-memory"):
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    run(made, asking(RIGHT))
    assert ([row["task_id"] for row in rows()], {row["is_verified"] for row in rows()}) == (before, {False})


def test_attempts_go_on_until_one_is_verified_and_more_are_added_to_those_there_are(
    made: Path, run: Run, reconfigure: Callable[..., None], rows: Any
) -> None:
    run(made, asking(WRONG))
    tasks = len(rows())
    reconfigure(made, "trajectories.yaml", {"asking.attempts": 2})
    reasons = run(made, asking(WRONG))
    assert reasons["teacher_trajectories python/train/openai-memory"] == "config asking changed"
    assert Counter(row["attempt"] for row in rows()) == {1: tasks, 2: tasks}


def test_a_budget_ends_a_run_early_and_more_of_it_goes_on(
    made: Path, run: Run, reconfigure: Callable[..., None], rows: Any
) -> None:
    reconfigure(made, "trajectories.yaml", {"asking.budget.steps": 1, "asking.at_once": 1})
    run(made, asking(WRONG))
    few = len(rows())
    reconfigure(made, "trajectories.yaml", {"asking.budget.steps": None})
    run(made, asking(WRONG))
    folders = sorted((made / "data" / "tasks").glob("python/*/tasks.jsonl"))
    tasks = sum(len(path.read_text("utf-8").splitlines()) for path in folders)
    # at most one of each partition, and then all
    assert (few <= len(folders) < tasks, len(rows())) == (True, tasks)


def test_attempts_say_what_was_asked_and_the_states_are_kept(made: Path, run: Run) -> None:
    run(made, asking(RIGHT))
    attempts = [
        attempt
        for split in ("train", "dev", "test")
        for attempt in read_shards(sealed_shards(Paths(made).attempts("python", split, "openai/memory")))
    ]
    asked = [attempt.steps[0].model_output.generation for attempt in attempts]
    assert {(one.messages[0].role, one.text) for one in asked if one is not None} == {("system", RIGHT)}
    ended = {f"{attempt.task_id}#1": "verified" if attempt.is_verified else "failed" for attempt in attempts}
    verified = {key for key, phase in ended.items() if phase == "verified"}
    with StateStore(made / "data" / "state" / "state.sqlite") as states:
        statuses = {status.key: status for status in AttemptLog(states).statuses()}
        assert (0 < len(verified) < len(ended), {entry.key for entry in states.entries()}) == (True, verified)
    assert {key: status.phase for key, status in statuses.items()} == ended
    failed = [status for status in statuses.values() if status.phase == "failed"]
    assert all(status.reason.partition(": ")[0] == "max_failed" and status.reason[12:] for status in failed)


def test_examples_are_verified_steps_of_other_groups(made: Path, run: Run) -> None:
    run(made, asking(WRONG))
    folder = Paths(made).attempts("python", "dev", "openai/memory")
    asked = [
        message.content
        for attempt in read_shards(sealed_shards(folder))
        for message in attempt.steps[0].model_output.generation.messages  # type: ignore[union-attr]
    ]
    assert any("new(" in content for content in asked)


def test_no_answer_is_an_error_and_no_failed_attempt(made: Path, run: Run, rows: Any) -> None:
    # nobody listens there
    ports = asking() | {"chat_model": {"kind": "actors", "fleet": "smoke", "pool": {"patience_s": 0.1, "max_tries": 1}}}
    with pytest.raises(ActorError, match=r"attempts of openai/smollm2-135m that could not be made"):
        run(made, ports | {"queue": {"kind": "memory", "max_tries": 1}})
    assert rows() == []
