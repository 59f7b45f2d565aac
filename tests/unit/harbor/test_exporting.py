"""Tasks of ours as Harbor tasks and back, and rollouts as trials."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction
from graftline.core.errors import DataError
from graftline.harbor.in_box.run_tests import grade
from graftline.harbor.task_format.exporting import export_harbor_task, slug, write_trial
from graftline.harbor.task_format.importing import import_harbor_tasks, place_task
from graftline.harbor.task_format.task_folder import read_task
from tests.tasks import make_task
from tests.unit.harbor.published import needs_harbor, published
from tests.unit.harbor.tiny_crate import write_card

TASK = make_task(
    "x = old('é')\r\ny = 1\n",
    "x = new('é')\r\ny = 1\n",
    id="pairs:java/1",
    instruction="Call new instead of old.\nKeep 'é' and \\ as they are.",
    gold_action=PatternAction(pattern="old($A)", rewrite="new($A)"),
    gold_next=(PatternAction(pattern='z("$A")', rewrite="w"),),
    tags=("a", "b"),
)


def test_a_task_of_ours_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = export_harbor_task(TASK, tmp_path)
    assert read_task(tmp_path / slug(TASK.id)) == made
    without = TASK.model_copy(update={"id": "plain", "gold_action": None, "gold_next": ()})
    made = export_harbor_task(without, tmp_path)
    assert read_task(tmp_path / "plain") == made
    assert made.toml.metadata["graftline"]["gold"] == []


def test_the_agent_gets_nothing_of_the_wanted_text(tmp_path: Path) -> None:
    export_harbor_task(TASK, tmp_path / "tasks")
    spec = import_harbor_tasks(tmp_path / "tasks", "ours", tmp_path / "staging", agent="nop", has_image=False)
    texts = [path.read_bytes() for path in spec.context_dir.rglob("*") if path.is_file()]
    assert not [text for text in texts if b"new('" in text or b"new($A)" in text]


@pytest.mark.parametrize(
    ("answer", "text", "reward"),
    [
        ("submission", TASK.before, 0),
        ("submission", TASK.target, 1),
        ("submission", TASK.target + "\n", 1),
        ("submission", None, 0),
        ("solution", None, 1),
    ],
)
def test_the_exported_test_grades_by_the_text(tmp_path: Path, answer: str, text: str | None, reward: int) -> None:
    task = export_harbor_task(TASK, tmp_path)
    box = tmp_path / task.id
    if text is not None:
        (box / "submission").mkdir()
        (box / "submission" / "source.py").write_bytes(text.encode())
    told = {"task_id": task.id, **place_task(task).for_agent, **place_task(task).for_verifier}
    assert grade(box, told, tmp_path / "logs", answer) == 0
    assert json.loads((tmp_path / "logs" / "reward.json").read_text()) == {"reward": reward}


def test_a_harbor_task_is_written_as_it_was_read(tmp_path: Path) -> None:
    task = read_task(write_card(tmp_path / "a"))
    export_harbor_task(task, tmp_path / "b")
    assert read_task(tmp_path / "b" / task.id).digest == task.digest


def test_nothing_is_written_over(tmp_path: Path) -> None:
    export_harbor_task(TASK, tmp_path)
    with pytest.raises(DataError, match="is there already; nothing is written over it"):
        export_harbor_task(TASK, tmp_path)


def test_names_that_no_folder_has_keep_apart() -> None:
    assert slug("df-001") == "df-001"
    assert slug("a:b") != slug("a/b")
    assert slug("../..").startswith("task-")


@needs_harbor
def test_the_published_package_reads_what_is_exported(tmp_path: Path) -> None:
    task = export_harbor_task(TASK, tmp_path)
    program = """
from pathlib import Path
from harbor.models.task.config import TaskConfig
from harbor.publisher.packager import Packager
folder = Path(given)
config = TaskConfig.model_validate_toml((folder / "task.toml").read_text())
print(json.dumps([Packager.compute_content_hash(folder)[0], config.environment.memory_mb, config.task.name]))
"""
    assert published(program, str(tmp_path / task.id)) == [task.digest, 1024, f"graftline/{task.id}"]


VIEW: dict[str, Any] = {
    "rollout_id": "rol_1",
    "deployment_id": "dep_1",
    "trace_correlation_id": "c",
    "seed": 3,
    "task_id": "df-001-fox",
    "status": "completed",
    "reward": 0.65,
    "reward_valid": True,
    "success_status": "success",
    "failure_cause": None,
    "error": None,
    "created_at": "2026-01-02T03:04:05Z",
    "started_at": "2026-01-02T03:04:06Z",
    "finished_at": "2026-01-02T03:04:09Z",
    "cost_usd": None,
    "tokens": 120,
    "attempts": [
        {"number": 1, "started_at": "2026-01-02T03:04:06Z", "finished_at": None, "log_tail": "running 2 tests"}
    ],
    "lock": {"context_digest": "ab" * 32, "agent": {"agent_type": "codex", "model": "m"}},
    "response": {
        "reward_info": {"outcome_reward": 0.65, "outcome_objectives": {"score": 0.65, "tests_total": 2.0}},
        "trace": {"schema_version": "ATIF-v1.8", "agent": {"name": "a", "version": "1"}, "steps": []},
    },
}


def test_a_rollout_is_a_trial(tmp_path: Path) -> None:
    place = write_trial(VIEW, tmp_path)
    assert sorted(path.relative_to(place).as_posix() for path in place.rglob("*")) == [
        "agent",
        "agent/trajectory.json",
        "artifacts",
        "config.json",
        "lock.json",
        "result.json",
        "trial.log",
        "verifier",
        "verifier/reward.json",
        "verifier/test-stdout.txt",
    ]
    assert json.loads((place / "verifier" / "reward.json").read_text()) == {
        "score": 0.65,
        "tests_total": 2.0,
        "reward": 0.65,
    }
    result = json.loads((place / "result.json").read_text())
    assert (result["task_name"], result["exception_info"]) == ("df-001-fox", None)
    with pytest.raises(DataError, match="is there already"):
        write_trial(VIEW, tmp_path)


def test_a_rollout_without_a_reward_that_counts_has_none(tmp_path: Path) -> None:
    failed = {**VIEW, "status": "failed", "reward_valid": False, "failure_cause": "sandbox_failed", "error": "no box"}
    place = write_trial(failed, tmp_path)
    assert not (place / "verifier" / "reward.json").exists()
    assert (place / "exception.txt").read_text() == "sandbox_failed: no box\n"
    result = json.loads((place / "result.json").read_text())
    assert result["verifier_result"] is None
    assert result["exception_info"]["exception_type"] == "SandboxBuildFailedError"


def test_a_reward_of_zero_is_one(tmp_path: Path) -> None:
    zero = {**VIEW, "reward": 0.0, "response": {"reward_info": {}}}
    assert json.loads((write_trial(zero, tmp_path) / "verifier" / "reward.json").read_text()) == {"reward": 0.0}


def test_a_rollout_that_runs_is_no_trial_yet(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rollout rol_1: is running"):
        write_trial({**VIEW, "status": "running"}, tmp_path)


@needs_harbor
@pytest.mark.parametrize("cause", [None, "sandbox_failed", "agent_exhausted_budget", "verifier_failed", "cancelled"])
def test_the_published_package_reads_a_trial(tmp_path: Path, cause: str | None) -> None:
    is_valid = cause in (None, "agent_exhausted_budget")
    place = write_trial({**VIEW, "failure_cause": cause, "reward_valid": is_valid}, tmp_path)
    program = """
from pathlib import Path
from harbor.models.trial.result import TrialResult
result = TrialResult.model_validate_json(Path(given).read_text())
print(json.dumps([result.failure_cause, result.reward_valid]))
"""
    assert published(program, str(place / "result.json")) == [cause, is_valid]


def test_an_exported_task_runs_by_its_own_scripts(tmp_path: Path) -> None:
    # as another harness would: the scripts in a folder that is not the task's
    task = export_harbor_task(TASK, tmp_path)
    folder, work = tmp_path / task.id, tmp_path / "work"
    work.mkdir()
    variables = {
        **os.environ,
        "SOLUTION_DIR": str(folder / "solution"),
        "TESTS_DIR": str(folder / "tests"),
        "LOGS_DIR": str(tmp_path / "logs"),
    }
    for script in ("solution/solve.sh", "tests/test.sh"):
        subprocess.run([folder / script], cwd=work, env=variables, check=True)
    assert json.loads((tmp_path / "logs" / "reward.json").read_text()) == {"reward": 1}
