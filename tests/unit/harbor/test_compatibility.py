"""The verdict on each task of a folder: by reading it, and by what doing nothing and its solution came to."""

from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.compatibility import TaskVerdict, judge, select_tasks
from graftline.harbor.messages import RolloutAnswer
from tests.harbor_tasks import TASKS
from tests.unit.harbor.tiny_crate import write


def an_answer(task: str, reward: float | None, error: str = "") -> RolloutAnswer:
    cause = "verifier_failed" if error else None
    status = "failed" if error else "completed"
    fields = {
        "rollout_id": "r",
        "seed": 0,
        "status": status,
        "trace_correlation_id": "t",
        "deployment_id": "d",
        "lock": {"executor": "docker"},
    }
    return RolloutAnswer.model_validate(
        {**fields, "task_id": task, "reward": reward, "reward_valid": not error, "failure_cause": cause, "error": error}
    )


def test_one_bad_task_refuses_no_other(tmp_path: Path) -> None:
    write(tmp_path / "good", TASKS["image"])
    write(tmp_path / "bad", {**TASKS["image"], "task.toml": '[environment]\nos = "windows"\n'})
    write(tmp_path / "vast", {**TASKS["image"], "task.toml": "[environment]\ncpus = 64\n"})
    tasks, verdicts = select_tasks(tmp_path)
    assert [task.id for task in tasks] == ["good"]
    assert [(verdict.task, verdict.verdict) for verdict in verdicts] == [
        ("bad", "refused"),
        ("good", "imported"),
        ("vast", "refused"),
    ]
    assert "environment.os = windows" in verdicts[0].reason
    assert "environment.cpus (comes to 64, at most 8)" in verdicts[2].reason
    with pytest.raises(DataError, match=r"bad: .*environment\.os = windows"):
        select_tasks(tmp_path / "bad")


def test_what_the_agents_earned_is_the_verdict_and_why_nothing_is_known_its_reason() -> None:
    verdicts = [TaskVerdict(name, "imported") for name in ("easy", "good", "unknown")]
    verdicts.append(TaskVerdict("bad", "refused", "uses what is not supported"))
    nop = [an_answer("good", 0.0), an_answer("easy", 1.0), an_answer("unknown", None, "needs network")]
    oracle = [an_answer("good", 1.0), an_answer("easy", 1.0), an_answer("unknown", None, "needs network")]
    judged, calibration = judge(verdicts, {"nop": nop, "oracle": oracle}, "mine")
    assert [(verdict.task, verdict.verdict, verdict.reason, verdict.executor) for verdict in judged] == [
        ("easy", "nop_reaches_oracle", "", "docker"),
        ("good", "sound", "", "docker"),
        ("unknown", "nop_unknown, oracle_unknown", "needs network", "docker"),
        ("bad", "refused", "uses what is not supported", ""),
    ]
    assert calibration.ceiling == 1.0
