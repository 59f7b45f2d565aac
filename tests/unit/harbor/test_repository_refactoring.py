"""Whole repositories as an environment: by rules in a task app, by agents in boxes, and exported as Harbor tasks."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.astgrep.action import PatternAction
from graftline.cli.main import main
from graftline.core.errors import ConfigError, DataError
from graftline.core.jsonl import write_lines
from graftline.datasets.repository_changes.change import RepositoryChange
from graftline.evals.job import EvalJob, EvalJobConfig
from graftline.harbor.contract import FailureCause, RolloutRequest, RolloutResponse
from graftline.harbor.deployment_file import deployment_spec, load_deployment
from graftline.harbor.environments.policy import ServedModel
from graftline.harbor.environments.repository_refactoring import RepositoryRefactoringEnvironment
from graftline.harbor.localapi.rollouts import Rollouts
from graftline.harbor.refusal import RequestError
from graftline.harbor.task_app_client import create_task_app_client
from graftline.harbor.task_format.repository_tasks import repository_harbor_task
from graftline.harbor.task_format.task_folder import read_task
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.prompts.journal import MemoryJournal
from graftline.prompts.optimize import optimize
from graftline.prompts.proposers import OfflineProposer
from graftline.rollouts.repository_task import RepositoryTask
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.actions.memory import MemorySandbox
from tests.optimized_app import wanted
from tests.pages import fences
from tests.repository_tasks import TESTS, after_of, repository_task
from tests.unit.rollouts.test_repository_task import Ailing

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
BROAD = PatternAction(pattern="$C.fetch($A, timeout=$B)", rewrite="$C.get($A, timeout=$B)")


@pytest.fixture
def task() -> RepositoryTask:
    return repository_task()


def run(environment: RepositoryRefactoringEnvironment, **policy: Any) -> RolloutResponse:
    """How a task app answers, with what the environment raises too."""
    body = {"trace_correlation_id": "t", "env": {"seed": 0}, "policy": {"config": policy}}
    return asyncio.run(Rollouts(environment.run_rollout).response(RolloutRequest.model_validate(body), None))


# of induction, 3 of 3 places by 3 of 4 edits: one place does not say whose `fetch` is meant
@pytest.mark.parametrize(("teacher", "reward"), [("nop", 0.0), ("memory", 1.0), ("induction", 6 / 7)])
def test_who_acts_is_worth_the_places_that_come_out(task: RepositoryTask, teacher: str, reward: float) -> None:
    response = run(RepositoryRefactoringEnvironment([task], MemorySandbox()), teacher=teacher)
    objectives = response.reward_info.outcome_objectives
    assert (objectives["reward"], objectives["places_f1"]) == (pytest.approx(reward), pytest.approx(reward))
    assert (response.reward_valid, response.failure_cause) == (True, None)
    assert response.reward_info.details["places"] == 3


@pytest.fixture
def model() -> Iterator[tuple[dict[str, ServedModel], list[Any]]]:
    """A model that writes a rule which is too broad."""
    text = format_answer(Answer("", BROAD, StateUpdate(next_focus="done"), True), "json")
    scripted = MemoryChatModel(script_answers([text]), name="tiny")
    with BlockingChatModel(scripted) as blocking:
        yield {"tiny": ServedModel(blocking, load_prompt(CONFIGS, "small"), 4096)}, scripted.requests


def test_a_model_is_asked_about_one_place_with_the_prompt_of_whoever_optimizes(
    task: RepositoryTask, model: Any
) -> None:
    models, requests = model
    environment = RepositoryRefactoringEnvironment([task], MemorySandbox(), models=models)
    response = run(environment, model="tiny", prompt={"system": "Think of the other files."}, max_steps=1)
    assert response.reward_info.outcome_reward == pytest.approx(6 / 7)  # 3 of 3 places, 3 of 4 edits
    assert response.reward_info.details["block_reward"] == 1.0
    assert requests[0].messages[0].content == "Think of the other files."
    assert "get(" not in "".join(message.content for message in requests[0].messages[1:])


INSTRUCTION = "Let clients answer by get instead of fetch"


def test_the_whole_agent_acts_and_its_run_is_recorded() -> None:
    async def edit(request: Any) -> str:
        question = request.messages[-1].content
        return "```" + question.split("```")[1].replace("client.fetch", "client.get") + "```"

    task = repository_task(instruction=INSTRUCTION)
    with BlockingChatModel(MemoryChatModel(edit, name="tiny")) as blocking:
        models = {"tiny": ServedModel(blocking, load_prompt(CONFIGS, "small"), 4096)}
        environment = RepositoryRefactoringEnvironment([task], MemorySandbox(), models=models)
        response = run(environment, teacher="agent", model="tiny")
    assert (response.reward_info.outcome_reward, response.reward_valid) == (pytest.approx(6 / 7), True)
    assert (response.metadata["outcome"], len(response.metadata["rules"])) == ("changed", 1)
    assert response.cost_and_tokens[1] == response.metadata["total_tokens"] > 0
    assert response.trace is not None
    question, step = response.trace["steps"]
    assert question["message"].startswith(INSTRUCTION)
    assert step["extra"]["think"] == "a.py:3: 3 of 3 attempts agree"
    assert step["extra"]["state_before"]["goals"] == [INSTRUCTION]
    assert "get" in json.dumps(step["tool_calls"][0]["arguments"])
    assert "+client.get(url, timeout=5)" in step["observation"]["results"][0]["content"]
    assert (step["extra"]["reward"], step["extra"]["reward_cause"]) == (pytest.approx(6 / 7), "places")


def test_what_the_agent_cannot_do_is_said() -> None:
    environment = RepositoryRefactoringEnvironment([repository_task(instruction=INSTRUCTION)], MemorySandbox())
    alone = run(environment, teacher="agent")  # without a model it does not understand the sentence
    assert (alone.reward_info.outcome_reward, alone.metadata["outcome"]) == (0.0, "not asked")
    response = run(environment, teacher="agent", prompt="Think.")
    assert (response.reward_valid, response.status_detail) == (
        False,
        "prompt: only teacher 'openai' reads one; name it, or leave the prompt out",
    )
    with pytest.raises(RequestError, match="'other' is unknown"):
        run(environment, teacher="agent", model="other")
    body = {
        "trace_correlation_id": "t",
        "env": {"seed": 0, "config": {"task_id": "b"}},
        "policy": {"config": {"teacher": "agent"}},
    }
    with pytest.raises(RequestError, match="another was asked for"):
        environment.run_rollout(RolloutRequest.model_validate(body))


def test_what_the_machine_failed_is_no_reward(task: RepositoryTask) -> None:
    response = run(RepositoryRefactoringEnvironment([task], Ailing()), teacher="induction")
    assert (response.reward_info.outcome_reward, response.reward_valid, response.failure_cause is not None) == (
        None,
        False,
        True,
    )
    tested = repository_task(tests=TESTS)
    response = run(RepositoryRefactoringEnvironment([tested], _Silent()), teacher="memory")
    assert (response.reward_info.outcome_reward, response.failure_cause) == (None, FailureCause.VERIFIER_FAILED)


class _Silent(MemorySandbox):
    """A sandbox whose jail has no interpreter."""

    def run_tests(self, requests: Any) -> Any:
        raise DataError("there is no pytest")


def test_an_evaluation_takes_it_as_a_task_app(task: RepositoryTask) -> None:
    environment = RepositoryRefactoringEnvironment([task], MemorySandbox())
    config = EvalJobConfig(task_app_config=environment.task_app(), seeds=[0], policy_config={"teacher": "memory"})
    job = EvalJob(config)
    job.submit()
    result = job.poll_until_complete()
    assert [seed.reward for seed in result.seed_results] == [1.0]


def test_a_prompt_is_made_better_by_the_places_that_come_out() -> None:
    async def answer(request: Any) -> str:
        # one that was told of mistakes says whose method it is
        is_told = "Common mistakes" in request.messages[0].content
        pattern = "client.fetch($A, timeout=$B)" if is_told else "$C.fetch($A, timeout=$B)"
        action = PatternAction(pattern=pattern, rewrite=pattern.replace("fetch", "get"))
        return format_answer(Answer("", action, StateUpdate(next_focus="done"), True), "json")

    with BlockingChatModel(MemoryChatModel(answer, name="tiny")) as blocking:
        environment = RepositoryRefactoringEnvironment(
            [repository_task(id=f"acme/shop@{number}") for number in range(6)],
            MemorySandbox(),
            models={"tiny": ServedModel(blocking, load_prompt(CONFIGS, "small"), 4096)},
        )
        seeds = {"train_seeds": {"end": 4}, "validation_seeds": {"start": 4, "end": 6}}
        config = wanted({"evaluation": seeds}, policy={"config": {"model": "tiny", "max_steps": 1}})
        client = create_task_app_client(environment.task_app())
        outcome = optimize(config, client, OfflineProposer(), MemoryJournal(), "run")
    assert outcome.best_prompt is not None
    assert "Common mistakes" in outcome.best_prompt.texts["system"]
    assert outcome.gain is not None
    assert outcome.gain[0] == pytest.approx(1 / 7)  # from 6/7 to 1


def lay(spec_folder: Path, box: Path) -> Path:
    shutil.copytree(spec_folder, box)
    return box


def ask_program(box: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=box, env=environment, capture_output=True, check=False, text=True)


def write_deployment(root: Path, *tasks: RepositoryTask, **changes: Any) -> Path:
    write_lines(root / "changes.jsonl", tasks)
    environment = {"kind": "repository_refactoring", "changes": "changes.jsonl", "has_image": False, **changes}
    (root / "deployment.yaml").write_text(json.dumps({"name": "repositories", "environment": environment}), "utf-8")
    return root / "deployment.yaml"


@pytest.mark.parametrize(
    ("agent", "edits", "reward"),
    [
        ("nop", {}, {"reward": 0.0, "places_f1": 0.0, "tests": 0.0}),
        ("oracle", {}, {"reward": 1.0, "places_f1": 1.0, "tests": 1.0}),
        # one place of three: precision 1, recall 1/3
        ("codex", {"a.py": after_of}, {"reward": 0.5, "places_f1": 0.5, "tests": 1.0}),
        # all places, but what runs is broken
        (
            "codex",
            {"a.py": lambda text: after_of(text) + "import nothing_of_that_name\n"},
            {"reward": 0.0, "tests": 0.0},
        ),
    ],
)
def test_agents_in_boxes_are_graded_by_places_and_tests(
    tmp_path: Path, agent: str, edits: dict[str, Any], reward: dict[str, float]
) -> None:
    idle = agent if agent != "codex" else "nop"
    file = load_deployment(write_deployment(tmp_path, repository_task(tests=TESTS)))
    spec = deployment_spec(file, tmp_path, tmp_path / "staging", idle)  # type: ignore[arg-type]
    assert [(seed.seed, seed.task_id) for seed in spec.tasks] == [(0, repository_harbor_task(repository_task()).id)]
    assert spec.verifier is not None
    box = lay(spec.context_dir, tmp_path / "box")
    assert not [path for path in box.rglob("*") if path.is_file() and b"client.get(" in path.read_bytes()]
    (tmp_path / "in.json").write_text(json.dumps({"trace_correlation_id": "c"}))
    assert ask_program(box, "in_box.run_rollout", "--input", "../in.json", "--output", "../out.json").returncode == 0
    for name, edit in edits.items():
        path = box / "submission" / name
        path.write_text(edit(path.read_text()))
    verifier = lay(spec.verifier.context_dir, tmp_path / "verifier")
    shutil.copytree(box / "submission", verifier / "submission", dirs_exist_ok=True)
    words = spec.verifier.entrypoint.split()[2:]
    done = ask_program(verifier, *[str(tmp_path / "logs") if word == "/logs/verifier" else word for word in words])
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "logs" / "reward.json").read_text())
    assert {key: found[key] for key in reward} == pytest.approx(reward)


def test_where_tests_cannot_run_there_is_no_reward(tmp_path: Path) -> None:
    program = {"kind": "program", "program": "java", "arguments": ["A.java"], "expected_stdout": "1\n"}
    exported = repository_harbor_task(repository_task(tests=program))
    for name, file in exported.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
    environment = {"PATH": "/nowhere", "TESTS_DIR": str(tmp_path / "tests")}
    words = [
        sys.executable,
        str(tmp_path / "tests" / "place_score.py"),
        tmp_path / "environment",
        tmp_path / "tests",
        tmp_path / "logs",
    ]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "logs").exists()) == (3, False)
    assert done.stderr == "nothing can be graded: java --version fails on this machine\n"


def test_changes_are_exported_as_harbor_tasks(tmp_path: Path, task: RepositoryTask) -> None:
    write_lines(tmp_path / "changes.jsonl", [task])
    result = CliRunner().invoke(
        main, ["env", "export", str(tmp_path / "changes.jsonl"), str(tmp_path / "tasks"), "--json"]
    )
    [folder] = json.loads(result.stdout)["folders"]
    assert read_task(Path(folder)) == repository_harbor_task(task)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tests": {"kind": "calls", "module": "a", "calls": [{"function": "f", "expected": 1}]}},
            "our own jail alone",
        ),
        ({"untouched": [{"path": "Dockerfile", "text": ""}]}, "has a file 'Dockerfile'"),
    ],
)
def test_what_no_box_can_have_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        repository_harbor_task(repository_task(**changes))


def test_the_deployment_of_the_page_is_one_of_the_changes_of_the_lineage(tmp_path: Path, task: RepositoryTask) -> None:
    [shown] = [
        fence.body for fence in fences() if fence.page == "docs/harbor.md" and "repository_refactoring" in fence.body
    ]
    (tmp_path / "deployment.yaml").write_text(shown, "utf-8")
    (tmp_path / "data" / "repository_changes").mkdir(parents=True)
    write_lines(tmp_path / "data" / "repository_changes" / "test.jsonl", [RepositoryChange(**task.model_dump())])
    spec = deployment_spec(load_deployment(tmp_path / "deployment.yaml"), tmp_path, tmp_path / "staging")
    assert (len(spec.tasks), spec.metadata["agent_type"]) == (1, "codex")
    assert spec.dockerfile_path is not None
    assert spec.dockerfile_path.read_text().splitlines()[0].startswith("FROM python:3.11")


def test_changes_that_nobody_can_make_get_no_seed(tmp_path: Path) -> None:
    file = load_deployment(write_deployment(tmp_path, repository_task(answerable=False)))
    with pytest.raises(ConfigError, match="1 cannot be done from their instruction"):
        deployment_spec(file, tmp_path, tmp_path / "staging")
