"""Harbor tasks as a deployment: who sees what, which seed is which task, what a box does with it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.contract import HarborLimits
from graftline.harbor.task_format.importing import IN_BOX, import_harbor_tasks
from graftline.harbor.task_format.packed import HARBOR_TASK, unpack_task
from graftline.harbor.task_format.task_folder import read_task
from tests.unit.harbor.tiny_crate import write

COUNT = {
    "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 40\n[environment]\ncpus = 1.5\nmemory_mb = 256\n'
    'env = { GREETING = "${NAME:-hello}", SECRET = "${OPENAI_API_KEY}" }\n[metadata]\nmade = 2026-01-02\n',
    "instruction.md": "Write 3 into answer.txt.\n",
    "environment/Dockerfile": "FROM python:3.11-slim\n",
    "environment/start.txt": "0\n",
    "tests/test.sh": '#!/bin/sh\ngrep -q 3 answer.txt && r=1 || r=0\necho "{\\"reward\\": $r}" > "$LOGS_DIR/reward.json"\n',
    "solution/solve.sh": "#!/bin/sh\necho 3 > answer.txt\n",
}
BIGGER = {**COUNT, "task.toml": 'version = "1.0"\n[agent]\ntimeout_sec = 500\n[environment]\nmemory_mb = 9000\n'}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """A folder of two tasks."""
    write(tmp_path / "tasks" / "b-count", COUNT)
    write(tmp_path / "tasks" / "a-bigger", BIGGER)
    return tmp_path / "tasks"


def imported(*arguments: Any, **options: Any) -> HarborBuildSpec:
    """Return tasks as a deployment whose boxes have what their contexts hold, and no images."""
    return import_harbor_tasks(*arguments, **{"has_image": False, **options})


def laid(context: Path, folders: Sequence[str], box: Path) -> Path:
    """Lay a box as executors do."""
    for folder in folders or ("",):
        shutil.copytree(context / folder, box, dirs_exist_ok=True)
    return box


def acted(context: Path, folders: Sequence[str], box: Path, **request: Any) -> dict[str, Any]:
    """Return what the program of an agent's box leaves."""
    laid(context, folders, box)
    (box.parent / "in.json").write_text(json.dumps({"trace_correlation_id": "c", **request}))
    words = [sys.executable, "-m", "in_box.run_rollout", "--input", "../in.json", "--output", "../out.json"]
    subprocess.run(words, cwd=box, check=True)
    found: dict[str, Any] = json.loads((box.parent / "out.json").read_text())
    return found


def graded(box: Path, logs: Path, *more: str) -> int:
    """Return the status of the verifier's program."""
    return graded_with_output(box, logs, *more)[0]


def graded_with_output(box: Path, logs: Path, *more: str) -> tuple[int, str]:
    """Return the status of the verifier's program, and the last line that it printed."""
    words = [sys.executable, "-m", "in_box.run_tests", "--logs", str(logs), *more]
    environment = {**os.environ, "LC_ALL": "C"}
    ended = subprocess.run(words, cwd=box, env=environment, capture_output=True, check=False, text=True)
    return ended.returncode, (ended.stdout + ended.stderr).strip().rpartition("\n")[2]


def test_seeds_go_by_the_names_of_the_tasks(tasks: Path, tmp_path: Path) -> None:
    spec = imported(tasks, "mine", tmp_path / "staging")
    assert [(task.seed, task.task_id) for task in spec.tasks] == [(0, "a-bigger"), (1, "b-count")]
    assert spec.tasks[1].agent_files == spec.tasks[1].verifier_files == ("common", "tasks/b-count")
    assert spec.tasks[1].metadata == {
        "made": "2026-01-02",
        "digest": read_task(tasks / "b-count").digest,
        "limits": {"timeout_s": 70, "cpu_cores": 2, "memory_mb": 512, "disk_mb": 10240},
    }
    # the largest of the tasks'
    assert spec.limits == HarborLimits(timeout_s=530, cpu_cores=2, memory_mb=9000, disk_mb=10240)
    verifier = spec.verifier
    assert verifier is not None
    assert (verifier.timeout_s, verifier.artifacts, verifier.reward_key) == (600, ("submission",), "reward")
    with pytest.raises(
        DataError, match="agent 'gpt' is not known; known: codex, opencode, claude_code, mini_swe_agent, nop, oracle"
    ):
        imported(tasks, "mine", tmp_path / "staging", agent="gpt")


def test_tests_and_solutions_are_only_where_the_verifier_is(tasks: Path, tmp_path: Path) -> None:
    spec = imported(tasks, "mine", tmp_path / "staging")
    for_agent = {
        path.relative_to(spec.context_dir).as_posix() for path in spec.context_dir.rglob("*") if path.is_file()
    }
    programs = {f"common/in_box/{path.name}" for path in IN_BOX.glob("*.py")}
    own = ("instruction.md", "task.json", "environment/Dockerfile", "environment/start.txt")
    assert for_agent == {
        "common/agent.json",
        *programs,
        *(f"tasks/{task}/{path}" for task in ("a-bigger", "b-count") for path in own),
    }
    assert spec.verifier is not None
    assert (spec.verifier.context_dir / "tasks" / "b-count" / "solution" / "solve.sh").is_file()
    assert (spec.verifier.context_dir / "tasks" / "b-count" / "tests" / "test.sh").is_file()


def test_tasks_bring_their_own_images_unless_one_is_given_for_all(tasks: Path, tmp_path: Path) -> None:
    (tasks / "a-bigger" / "environment" / "Dockerfile").write_text("FROM alpine:3.20\n")
    (tasks / "b-count" / "tests" / "server.pem").write_text("a file of a task that no archive takes by its name\n")
    spec = imported(tasks, "mine", tmp_path / "staging", has_image=True)
    assert (spec.entrypoint, spec.dockerfile_path, spec.verifier) == (HARBOR_TASK, None, None)
    names = sorted(path.name for path in spec.context_dir.rglob("*") if path.is_file())
    assert names == ["a-bigger.tar", "b-count.tar", "harbor-tasks.json"]
    task, reward_key = unpack_task(spec.context_dir, "b-count")
    assert (task, reward_key) == (read_task(tasks / "b-count"), "reward")
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\n")
    (tasks / "b-count" / "tests" / "server.pem").unlink()
    spec = imported(tasks, "mine", tmp_path / "staging", dockerfile=tmp_path / "Dockerfile")
    text = spec.get_dockerfile_content() or ""
    assert text == "FROM python:3.11\nCOPY . /rollout/\nWORKDIR /rollout\nENV TASK_IN_CONTAINER=1\n"
    without = imported(tasks, "mine", tmp_path / "staging")
    assert without.dockerfile_path is None


def test_all_faults_of_all_tasks_come_in_one_message(tasks: Path, tmp_path: Path) -> None:
    (tasks / "a-bigger" / "task.toml").write_text('[environment]\nos = "windows"\n')
    (tasks / "b-count" / "tests" / "test.sh").unlink()
    with pytest.raises(DataError, match=r"(?s)a-bigger.*environment\.os.*b-count: has no tests/test\.sh"):
        imported(tasks, "mine", tmp_path / "staging")


def test_what_needs_the_image_of_a_task_is_refused_without_it(tasks: Path, tmp_path: Path) -> None:
    (tasks / "b-count" / "task.toml").write_text('[environment]\ngpus = 1\n[verifier]\nuser = "nobody"\n')
    with pytest.raises(DataError, match=r"b-count: .*: verifier\.user, environment\.gpus; import it with its image"):
        imported(tasks, "mine", tmp_path / "staging")
    assert len(imported(tasks, "mine", tmp_path / "staging", has_image=True).tasks) == 2


def test_a_task_that_wants_more_than_there_is_is_refused(tasks: Path, tmp_path: Path) -> None:
    (tasks / "b-count" / "task.toml").write_text("[agent]\ntimeout_sec = 86401\n[environment]\ncpus = 64\n")
    with pytest.raises(DataError) as caught:
        imported(tasks, "mine", tmp_path / "staging")
    assert str(caught.value) == (
        "b-count: wants more than a deployment may have: agent.timeout_sec (comes to 86401, at most 86400), environment.cpus"
        " (comes to 64, at most 8)"
    )


@pytest.mark.parametrize(
    ("agent_s", "timeout_s", "with_image_s"),
    [(86400, 86400, 86400), (86390, 86400, 86390), (60.5, 91, 61), (1, 31, 30)],
)
def test_a_task_may_take_as_long_as_a_deployment_may(
    tasks: Path, tmp_path: Path, agent_s: float, timeout_s: int, with_image_s: int
) -> None:
    (tasks / "b-count" / "task.toml").write_text(f"[agent]\ntimeout_sec = {agent_s}\n[verifier]\ntimeout_sec = 7200\n")
    assert imported(tasks / "b-count", "mine", tmp_path / "staging").limits.timeout_s == timeout_s
    spec = imported(tasks / "b-count", "mine", tmp_path / "staging", has_image=True)
    assert spec.limits.timeout_s == with_image_s


def test_doing_nothing_and_the_solution_are_graded_apart(tasks: Path, tmp_path: Path) -> None:
    spec = imported(tasks, "mine", tmp_path / "staging", agent="nop")
    assert spec.verifier is not None
    task = spec.tasks[1]
    result = acted(spec.context_dir, task.agent_files, tmp_path / "agent", task_id="b-count")
    assert result["failure_cause"] is None
    assert result["reward_info"]["outcome_reward"] is None
    assert result["reward_info"]["details"]["submitted"] == ["start.txt"]
    box = laid(spec.verifier.context_dir, task.verifier_files, tmp_path / "verifier")
    shutil.copytree(tmp_path / "agent" / "submission", box / "submission")
    assert graded(box, tmp_path / "logs") == 0
    assert json.loads((tmp_path / "logs" / "reward.json").read_text()) == {"reward": 0}
    assert graded(box, tmp_path / "logs", "--answer", "solution") == 0
    assert json.loads((tmp_path / "logs" / "reward.json").read_text()) == {"reward": 1}
    assert imported(tasks, "mine", tmp_path / "other", agent="oracle").verifier.entrypoint == (  # type: ignore[union-attr]
        "python3 -m in_box.run_tests --logs /logs/verifier --answer solution"
    )


def test_a_file_that_the_agent_removed_is_gone(tasks: Path, tmp_path: Path, fake_agent: Path) -> None:
    fake_agent.write_text("#!/bin/sh\nrm start.txt; echo 3 > answer.txt\n")
    (tasks / "b-count" / "tests" / "test.sh").write_text(
        '#!/bin/sh\ntest ! -e start.txt && echo 1 > "$LOGS_DIR/reward.txt"\n'
    )
    spec = imported(tasks, "mine", tmp_path / "staging")
    acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", **ASKED)
    assert spec.verifier is not None
    box = laid(spec.verifier.context_dir, spec.tasks[1].verifier_files, tmp_path / "verifier")
    shutil.copytree(tmp_path / "agent" / "submission", box / "submission")
    assert graded(box, tmp_path / "logs") == 0
    assert (tmp_path / "logs" / "reward.txt").read_text() == "1\n"


def test_a_reward_that_was_there_before_is_no_reward(tasks: Path, tmp_path: Path) -> None:
    (tasks / "b-count" / "tests" / "test.sh").write_text("#!/bin/sh\nexit 1\n")
    spec = imported(tasks, "mine", tmp_path / "staging")
    assert spec.verifier is not None
    box = laid(spec.verifier.context_dir, spec.tasks[1].verifier_files, tmp_path / "verifier")
    write(tmp_path / "logs", {"reward.json": '{"reward": 1}', "reward.txt": "1"})
    assert graded(box, tmp_path / "logs") == 0
    assert not list((tmp_path / "logs").iterdir())


@pytest.fixture
def fake_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `codex` that a test writes."""
    folder = tmp_path / "bin"
    write(folder, {"codex": "#!/bin/sh\nexit 0\n"})
    (folder / "codex").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder / "codex"


ASKED = {"policy": {"config": {"model": "gpt-4o-mini", "inference_url": "http://127.0.0.1:1/v1"}}}


def test_an_agent_works_in_the_folder_of_the_task(
    tasks: Path, tmp_path: Path, fake_agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the key")
    fake_agent.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$@" > args.txt\ncp "$HOME/.codex/config.toml" .\n'
        'echo "$GREETING ${SECRET-unset} $OPENAI_BASE_URL $OPENAI_API_KEY" > env.txt\nln -s /etc/passwd link\n'
    )
    spec = imported(tasks, "mine", tmp_path / "staging")
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", **ASKED)
    left = tmp_path / "agent" / "submission"
    assert result["success_status"] == "success"
    assert (left / "args.txt").read_text().splitlines() == [
        "exec", "--yolo", "--skip-git-repo-check", "-m", "gpt-4o-mini", "Write 3 into answer.txt.", "",
    ]  # fmt: skip
    # variables of a task are its defaults: nothing of the box is filled in
    assert (left / "env.txt").read_text() == "hello unset http://127.0.0.1:1/v1 the key\n"
    assert 'base_url = "http://127.0.0.1:1/v1"' in (left / "config.toml").read_text()
    assert "the key" not in (left / "config.toml").read_text()
    assert not (left / "link").exists()


@pytest.mark.parametrize(
    ("script", "cause", "status"),
    [
        ("echo nobody knows; exit 3", "unclassified", "runtime_error"),
        ("echo 429 Too Many Requests: rate limit; exit 1", "model_provider_failed", "network_error"),
        ("echo ERROR: 401 Unauthorized: invalid API key", "model_provider_failed", "network_error"),
        ("sleep 60", "agent_exhausted_budget", "timeout"),
        ("echo Error 402 budget_exhausted: the rollout has used 2 calls; exit 1", "agent_exhausted_budget", "timeout"),
    ],
)
def test_how_an_agent_ends_is_said_without_a_reward(
    tasks: Path, tmp_path: Path, fake_agent: Path, script: str, cause: str, status: str
) -> None:
    fake_agent.write_text(f"#!/bin/sh\n{script}\n")
    spec = imported(tasks, "mine", tmp_path / "staging")
    # those that end by themselves do so in time, on a busy machine too
    limits = {"timeout_s": 0.3 if script.startswith("sleep") else 60}
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", **ASKED, limits=limits)
    assert (result["failure_cause"], result["success_status"]) == (cause, status)
    assert result["reward_info"]["outcome_reward"] is None


def test_an_agent_that_is_not_installed_is_not_asked_for_again(tasks: Path, tmp_path: Path, fake_agent: Path) -> None:
    fake_agent.unlink()
    spec = imported(tasks, "mine", tmp_path / "staging")
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", **ASKED)
    # a cause that is never tried again
    assert result["failure_cause"] == "unclassified"
    assert result["error"].startswith("the agent codex cannot be started: this box has no codex: ")
    assert result["reward_info"]["outcome_reward"] is None


def test_a_rollout_cannot_make_an_agent_of_doing_nothing(tasks: Path, tmp_path: Path, fake_agent: Path) -> None:
    spec = imported(tasks, "mine", tmp_path / "staging", agent="oracle")
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", params={"agent": "codex"})
    assert result["reward_info"]["details"]["agent"] == "oracle"
    spec = imported(tasks, "mine", tmp_path / "staging")
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "other", params={"agent": "nop"})
    assert result["failure_cause"] == "unclassified"
    assert result["error"] == "agent 'nop' is not known; known: codex, opencode, claude_code, mini_swe_agent"


def test_a_prompt_is_said_before_the_instruction(tasks: Path, tmp_path: Path, fake_agent: Path) -> None:
    fake_agent.write_text('#!/bin/sh\nfor last; do :; done; printf %s "$last" > said.txt\n')
    spec = imported(tasks, "mine", tmp_path / "staging")
    for number, prompt in enumerate(("Be brief.", {"system": "Be brief.", "more": ""})):
        asked = {"policy": {"config": {"model": "m", "prompt": prompt}}}
        acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / f"agent{number}", **asked)
        said = (tmp_path / f"agent{number}" / "submission" / "said.txt").read_text()
        assert said == "Be brief.\n\nWrite 3 into answer.txt.\n"


def test_what_was_built_does_not_travel(tasks: Path, tmp_path: Path, fake_agent: Path) -> None:
    fake_agent.write_text("#!/bin/sh\nmkdir target kept; touch target/CACHEDIR.TAG target/a kept/b\n")
    spec = imported(tasks, "mine", tmp_path / "staging")
    result = acted(spec.context_dir, spec.tasks[1].agent_files, tmp_path / "agent", **ASKED)
    assert result["reward_info"]["details"]["submitted"] == ["kept/b", "start.txt"]


def test_a_single_task_lies_at_the_top(tasks: Path, tmp_path: Path) -> None:
    spec = imported(tasks / "b-count", "mine", tmp_path / "staging", agent="nop")
    assert [(task.seed, task.agent_files) for task in spec.tasks] == [(0, ())]
    result = acted(spec.context_dir, (), tmp_path / "agent")
    assert result["reward_info"]["details"]["task_id"] == "b-count"
