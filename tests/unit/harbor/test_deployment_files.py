"""The files of `configs/harbor`, and the deployments they make."""

import json
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError
from graftline.harbor.contract import HarborLimits
from graftline.harbor.deployment_file import (
    REFACTORING_ENTRYPOINT,
    calibration_policy,
    deployment_spec,
    load_deployment,
)
from tests.tasks import make_task
from tests.unit.harbor.tiny_crate import write, write_card, write_crate

TASK = make_task()


def test_the_shipped_engine_bench_is_made_of_the_examples(checkout: Path, tmp_path: Path) -> None:
    file = load_deployment(checkout / "configs" / "harbor" / "engine_bench.yaml")
    spec = deployment_spec(file, checkout, tmp_path)
    spec.validate_paths()
    assert spec.limits == HarborLimits(timeout_s=600, cpu_cores=4, memory_mb=8192, disk_mb=20480)
    assert [task.task_id for task in spec.tasks] == [
        "df-001-emberfox",
        "df-002-tidecrab",
        "df-003-mosswyrm",
        "df-004-voltmoth",
        "df-005-stonecub",
    ]
    assert spec.metadata == {"agent_type": "codex", "benchmark": "engine-bench", "version": "1.0"}
    assert spec.verifier is not None
    assert (spec.verifier.reward_key, spec.verifier.timeout_s) == ("score", 300)
    assert file.calibration_path == Path("data/harbor/calibration/engine-bench.json")


def test_the_shipped_refactoring_file_runs_our_environment(checkout: Path, tmp_path: Path) -> None:
    file = load_deployment(checkout / "configs" / "harbor" / "refactoring.yaml")
    write(tmp_path, {"data/tasks/python/test/tasks.jsonl": TASK.model_dump_json() + "\n"})
    spec = deployment_spec(file, tmp_path, tmp_path / "staging")
    assert spec.entrypoint == REFACTORING_ENTRYPOINT
    assert [(task.seed, task.task_id) for task in spec.tasks] == [(0, "d:1")]
    assert sorted(path.name for path in spec.context_dir.iterdir()) == ["manifest.json", "tasks.jsonl"]
    assert json.loads((spec.context_dir / "tasks.jsonl").read_text())["id"] == "d:1"


def test_doing_nothing_is_another_deployment_of_an_agent_and_another_teacher_of_ours(
    checkout: Path, tmp_path: Path
) -> None:
    cards = load_deployment(checkout / "configs" / "harbor" / "engine_bench.yaml")
    oracle = deployment_spec(cards, checkout, tmp_path / "oracle", "oracle")
    assert (oracle.name, calibration_policy(cards, "oracle")) == ("engine-bench-oracle", {})
    assert oracle.verifier is not None
    assert oracle.verifier.entrypoint.endswith(" --answer solution")
    assert deployment_spec(cards, checkout, tmp_path / "nop", "nop").metadata["agent_type"] == "nop"
    ours = load_deployment(checkout / "configs" / "harbor" / "refactoring.yaml")
    write(tmp_path, {"data/tasks/python/test/tasks.jsonl": TASK.model_dump_json() + "\n"})
    assert deployment_spec(ours, tmp_path, tmp_path / "staging", "oracle").name == "refactoring-python"
    assert calibration_policy(ours, "oracle") == {"teacher": "memory"}


def test_any_harbor_tasks_are_a_deployment(tmp_path: Path) -> None:
    write_card(tmp_path / "tasks")
    text = "name: mine\nenvironment: {kind: harbor_tasks, tasks: tasks, agent: opencode}\nmetadata: {team: a}\n"
    write(tmp_path, {"mine.yaml": text})
    spec = deployment_spec(load_deployment(tmp_path / "mine.yaml"), tmp_path, tmp_path / "staging")
    assert (spec.name, spec.metadata) == ("mine", {"agent_type": "opencode", "format": "harbor", "team": "a"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\nenvironment: {kind: cards}\n", r"environment: .*'engine_bench', 'harbor_tasks', 'refactoring'"),
        ("name: a b\nenvironment: {kind: refactoring, tasks: t}\n", "name: "),
        (
            "name: a\nenvironment: {kind: refactoring, tasks: t, agent: codex}\n",
            r"agent: unknown key; known here: .*manifest",
        ),
        ("name: a\nenvironment: {kind: harbor_tasks, tasks: t, agent: nop}\n", "agent: "),
        ("name: a\nenvironment: {kind: refactoring, tasks: t}\nlimits: {timeout_s: 5}\n", r"limits\.timeout_s: "),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    write(tmp_path, {"a.yaml": text})
    with pytest.raises(ConfigError, match=message):
        load_deployment(tmp_path / "a.yaml")


def test_what_a_file_names_has_to_be_there(tmp_path: Path) -> None:
    write(
        tmp_path, {"a.yaml": "name: a\nenvironment: {kind: engine_bench, tasks: tasks, crate: crate, dockerfile: D}\n"}
    )
    file = load_deployment(tmp_path / "a.yaml")
    with pytest.raises(ConfigError, match=r"environment\.tasks: 'tasks' is not there; name a path relative to"):
        deployment_spec(file, tmp_path, tmp_path / "s")
    write_card(tmp_path / "tasks")
    write(tmp_path, {"D": "FROM rust\n"})
    with pytest.raises(ConfigError, match=r"environment\.crate: 'crate' is not there"):
        deployment_spec(file, tmp_path, tmp_path / "s")
    write_crate(tmp_path / "crate")
    assert [task.task_id for task in deployment_spec(file, tmp_path, tmp_path / "s").tasks] == ["df-001-fox"]
