"""The refactoring environment: seeds, policies, rewards, as a task app and as the entrypoint of a deployment."""

import asyncio
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.core.errors import ActorError, ConfigError, DataError, SandboxError
from graftline.core.jsonl import write_lines
from graftline.harbor.contract import RolloutRequest, RolloutResponse, TaskSeed
from graftline.harbor.environments.manifest import SeedManifest, load_tasks, seed_tasks
from graftline.harbor.environments.policy import ServedModel
from graftline.harbor.environments.refactoring import RefactoringEnvironment
from graftline.harbor.environments.run_rollout import main
from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.rollouts import Rollouts
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.refusal import RequestError
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox import Case, CaseLimits
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Isolation, Request, SandboxResult, Verdict
from graftline.sandbox.jail.served import ServedJail
from tests.jails import has_user_namespaces
from tests.tasks import make_task

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
RENAMING = PatternAction(pattern="old($A)", rewrite="new($A)")
RIGHT = format_answer(
    Answer("Calls change.", RENAMING, StateUpdate(history=["renamed"], next_focus="done"), True), "json"
)


def task(id: str, number: int = 1, gold: PatternAction | None = RENAMING) -> Task:
    before, target = (f"x = {name}({number})\ny = {name}(b)\n" for name in ("old", "new"))
    return make_task(before, target, id=id, instruction="Rename `old` to `new`.", gold_action=gold, tags=("t",))


TASKS = [task("b", 2), task("a", 1, gold=None)]


def asked(seed: int | None = 0, policy: dict[str, Any] | None = None, **more: Any) -> RolloutRequest:
    body = {"trace_correlation_id": "t-1", "env": {"seed": seed}, "policy": {"config": policy or {}}, **more}
    return RolloutRequest.model_validate(body)


def ended(environment: RefactoringEnvironment, request: RolloutRequest) -> RolloutResponse:
    """How a task app answers: with what the environment raises too."""
    return asyncio.run(Rollouts(environment.run_rollout).response(request, None))


def environment(**settings: Any) -> RefactoringEnvironment:
    return RefactoringEnvironment(TASKS, MemorySandbox(), **settings)


@contextmanager
def served(
    answers: Sequence[str], context_tokens: int = 4096
) -> Iterator[tuple[dict[str, ServedModel], list[ChatRequest]]]:
    """Yield a model that gives `answers`, opened under its name, and the list of what it is asked."""
    model = MemoryChatModel(script_answers(answers), name="tiny")
    prompt = load_prompt(CONFIGS, "small")
    with BlockingChatModel(model) as blocking:
        yield {"tiny": ServedModel(blocking, prompt, context_tokens)}, model.requests


# seeds


def test_seeds_stand_for_tasks_by_their_ids_and_keep_them_when_others_come(tmp_path: Path) -> None:
    manifest = SeedManifest.of(TASKS)
    more = manifest.extend([*TASKS, task("aa"), task("0")])
    assert [entry.task_id for entry in manifest.entries] == ["a", "b"]
    assert [entry.task_id for entry in more.entries] == ["a", "b", "0", "aa"]
    assert (more.extend(TASKS) == more, more.version == manifest.version) == (True, False)
    more.write(tmp_path / "manifest.json")
    assert SeedManifest.load(tmp_path / "manifest.json") == more
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"),
        ("{", "is no manifest of seeds"),
        ('{"entries": [{"seed": "0"}]}', "entries.0.seed"),
        ('{"entries": [{"seed": 1, "task_id": "a", "task_digest": "d"}]}', "has a gap"),
        (
            json.dumps({"entries": [{"seed": seed, "task_id": "a", "task_digest": "d"} for seed in range(2)]}),
            "or a task twice",
        ),
    ],
)
def test_a_damaged_manifest_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "manifest.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(DataError, match=said):
        SeedManifest.load(path)


@pytest.mark.parametrize(
    ("tasks", "error", "fault"),
    [
        ([task("b", 3)], DataError, "seed 1: task 'b' is not what it was when it got the seed"),
        ([task("a"), task("a")], DataError, "task 'a': is there twice"),
        ([], ConfigError, "no seed stands for a task"),
    ],
)
def test_tasks_that_do_not_fit_their_seeds_are_refused(tasks: list[Task], error: type[Exception], fault: str) -> None:
    with pytest.raises(error, match=fault):
        RefactoringEnvironment(tasks, MemorySandbox(), manifest=SeedManifest.of(TASKS))


def test_a_seed_whose_task_is_gone_stands_for_none() -> None:
    left = RefactoringEnvironment([task("b", 2)], MemorySandbox(), manifest=SeedManifest.of(TASKS))
    assert [*left.tasks] == [1]
    with pytest.raises(RequestError, match="seed 0 stands for no task; there are 1 to 1"):
        left.run_rollout(asked(0))


def test_a_deployment_is_told_what_its_seeds_stand_for() -> None:
    assert seed_tasks(environment().tasks) == [
        TaskSeed(seed=0, task_id="a", metadata={"task_digest": TASKS[1].digest}),
        TaskSeed(seed=1, task_id="b", metadata={"task_digest": TASKS[0].digest}),
    ]


@pytest.mark.parametrize(
    ("line", "said"), [("{}", "tasks.jsonl:2: is no task"), ("", "tasks.jsonl:2: is no task"), (None, "cannot be read")]
)
def test_a_damaged_file_of_tasks_is_refused(tmp_path: Path, line: str | None, said: str) -> None:
    path = tmp_path / "tasks.jsonl"
    if line is not None:
        path.write_text(TASKS[0].model_dump_json() + f"\n{line}\n", "utf-8")
    with pytest.raises(DataError, match=said):
        load_tasks(path)


# what a rollout comes to


def test_a_rollout_is_an_attempt_with_its_reward_and_its_trace() -> None:
    here = environment()
    response = here.run_rollout(asked(0))
    assert response.trace is not None
    assert (response.success_status, response.status_detail, response.reward_valid) == ("success", "done", True)
    assert response.reward_info.outcome_objectives == {"reward": 1.0, "exact": 1.0, "verified": 1.0}
    assert response.reward_info.details == {
        **{"task_id": "a", "reward_cause": "verified", "exact": True, "verified": True, "level": "exact", "steps": 1},
        **{"ending": "done", "failure": "", "progress": 1.0, "all_general": True, "over_in": 0, "over_out": 0.0},
        **{"format_ok": True, "feedback": ""},
    }
    [artifact] = response.artifact or ()
    assert (artifact.content, artifact.metadata) == ("x = new(1)\ny = new(b)\n", {"name": "text_after"})
    assert response.metadata == {
        **{"teacher": "induction", "policy": {"attempt": 1}, "prompt_digest": ""},
        **{"manifest_version": here.manifest.version, "task_digest": TASKS[1].digest},
    }
    # nobody was asked
    assert response.model_dump()["execution_metadata"] == {"total_tokens": 0, "cost_usd": 0}
    assert response.trace["schema_version"] == "ATIF-v1.8"
    assert [step["source"] for step in response.trace["steps"]] == ["user", "agent"]
    assert response.trace["extra"]["task_id"] == "a"


@pytest.mark.parametrize(
    ("seed", "policy", "expected"),
    [
        (0, {"teacher": "nop"}, (0.0, "none", 0, "gave_up: nop")),
        (1, {"teacher": "memory"}, (1.0, "exact", 1, "done")),
        (1, {"teacher": "induction", "max_steps": 1}, (1.0, "exact", 1, "done")),
        (None, {"teacher": "induction"}, (1.0, "exact", 1, "done")),
    ],
)
def test_the_policy_says_who_acts(seed: int | None, policy: dict[str, Any], expected: Any) -> None:
    response = environment().run_rollout(asked(seed, policy))
    details = response.reward_info.details
    said = (response.reward_info.outcome_reward, details["level"], details["steps"], response.status_detail)
    assert (said, response.reward_valid) == (expected, True)


def test_a_task_without_gold_actions_has_no_reference_solution_to_grade() -> None:
    response = environment().run_rollout(asked(0, {"teacher": "memory"}))
    assert (response.reward_info.outcome_reward, response.failure_cause) == (None, "unclassified")
    assert response.status_detail == "task a: an edit of a real repository has no gold actions to take"


def test_a_policy_cannot_take_more_steps_than_the_environment_allows() -> None:
    config = environment().task_app()
    [info] = config.provide_task_instances([0])  # type: ignore[misc]
    assert info.limits == {"max_turns": 12}
    response = environment().run_rollout(asked(0, {"max_steps": 64}))
    assert response.reward_info.outcome_reward == 1.0
    # the key of the attempt is that of twelve steps
    assert response.trace["session_id"] != environment().run_rollout(asked(0, {"max_steps": 3})).trace["session_id"]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"teacher": "oracle"}, "policy.config.teacher: Input should be 'agent', 'induction', 'memory', 'nop' or 'openai'"),
        ({"temprature": 1.0}, "policy.config.temprature: Extra inputs are not permitted; known: teacher, model, "),
        ({"max_steps": True}, "policy.config.max_steps: "),
        ({"attempt": 0}, "policy.config.attempt: "),
        ({"prompt": {"assistant": "x"}}, "policy.config.prompt"),
        ({"model": "gpt-4o-mini", "provider": "openai"}, "policy.config.model: 'gpt-4o-mini' is unknown; known: none was opened"),
        ({"teacher": "openai"}, "policy.config.model: None is unknown; known: none was opened"),
    ],
)  # fmt: skip
def test_a_policy_that_there_is_not_is_refused(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=r"policy\.config") as refused:
        environment().run_rollout(asked(0, policy))
    assert (refused.value.status, str(refused.value)[: len(said)]) == (422, said)


def test_a_request_for_another_task_than_that_of_the_seed_is_refused() -> None:
    with pytest.raises(RequestError, match="seed 0: stands for task 'a', and another was asked for"):
        environment().run_rollout(asked(env={"seed": 0, "config": {"task_id": "b"}}))


# failures of machines


class _Failing(MemorySandbox):
    """Answers nothing, or that nothing is known."""

    def __init__(self, verdict: Verdict | None) -> None:
        self._verdict = verdict

    def apply_each(self, requests: Sequence[Request]) -> list[list[SandboxResult]]:
        return [self.apply_many(request.source, request.language, request.actions) for request in requests]

    def apply_many(self, source: str, language: Language, actions: Sequence[Any]) -> list[SandboxResult]:
        if self._verdict is None:
            raise SandboxError("the jail is gone")
        return [SandboxResult(self._verdict, None, Isolation("none", "failing")) for _ in actions]


@pytest.mark.parametrize(
    ("verdict", "cause", "detail"),
    [
        (None, "sandbox_failed", "the jail is gone"),
        (Verdict.WALL_TIMEOUT, "sandbox_failed", "wall_timeout: wall_timeout"),
        (Verdict.RUNNER_ERROR, "sandbox_failed", "runner_error: runner_error"),
        (Verdict.NEEDS_CLI, "verifier_failed", "needs_cli: needs_cli"),
    ],
)
def test_a_sandbox_that_fails_is_no_reward(verdict: Verdict | None, cause: str, detail: str) -> None:
    response = ended(RefactoringEnvironment(TASKS, _Failing(verdict)), asked(1, {"teacher": "memory"}))
    assert (response.reward_info.outcome_reward, response.reward_valid) == (None, False)
    assert (response.success_status, response.failure_cause, response.status_detail) == ("runtime_error", cause, detail)
    assert response.reward_info.outcome_objectives == {}


def test_a_model_that_is_not_to_be_had_is_no_reward() -> None:
    async def nobody(request: ChatRequest) -> str:
        raise ActorError("tiny: nobody answered within 5 s")

    prompt = load_prompt(CONFIGS, "small")
    with BlockingChatModel(MemoryChatModel(nobody, name="tiny")) as blocking:
        response = ended(environment(models={"tiny": ServedModel(blocking, prompt, 4096)}), asked(0, {"model": "tiny"}))
    assert (response.reward_info.outcome_reward, response.failure_cause, response.status_detail) == (
        None,
        "model_provider_failed",
        "tiny: nobody answered within 5 s",
    )


# served models and their prompts


def test_a_served_model_acts_by_the_prompt_it_was_opened_with() -> None:
    with served([RIGHT]) as (models, requests):
        response = environment(models=models).run_rollout(asked(0, {"teacher": "openai", "temperature": 0.5}))
        prompt = models["tiny"].prompt
    [request] = requests
    assert (request.messages[0].content, request.temperature) == (prompt.settings.system, 0.5)
    assert (response.reward_info.outcome_reward, response.metadata["teacher"]) == (1.0, "openai/tiny")
    assert response.trace["agent"]["model_name"] == "tiny"
    usage = response.model_dump()["execution_metadata"]
    # nobody said what it cost
    assert (usage["total_tokens"] > 0, "cost_usd" in usage) == (True, False)


SYSTEM = "Answer with JSON; $names and all are plain words here."


@pytest.mark.parametrize(
    ("policy", "overrides"),
    [
        ({"model": "tiny", "prompt": SYSTEM}, []),
        ({"model": "tiny", "prompt": {"system": SYSTEM}}, []),
        ({"model": "tiny"}, [{"file_artifacts": {"prompts/system.txt": SYSTEM}}]),
        (
            {"model": "tiny", "prompt": "of the policy"},
            [{"file_artifacts": {"prompts/system.txt": "earlier"}}, {"file_artifacts": {"prompts/system.txt": SYSTEM}}],
        ),
    ],
)
def test_a_request_brings_a_prompt_of_its_own(policy: dict[str, Any], overrides: list[Any]) -> None:
    with served([RIGHT]) as (models, requests):
        here = environment(models=models)
        response = here.run_rollout(asked(0, policy, context_overrides=overrides))
        plain = here.run_rollout(asked(0, {"model": "tiny"}))
    assert [request.messages[0].content == SYSTEM for request in requests] == [True, False]
    assert response.metadata["prompt_digest"] != plain.metadata["prompt_digest"]
    assert response.trace["session_id"] != plain.trace["session_id"]
    assert "prompt" not in response.metadata["policy"]


@pytest.mark.parametrize(
    ("policy", "overrides", "said"),
    [
        ({"prompt": {"user": "Do it."}}, [], "prompt: user: Value error, $instruction is missing: the model has to be told"),
        ({"prompt": {"kept": "$before"}}, [], "prompt: kept: Value error, $before is unknown; known here: "),
        ({"prompt": "x" * 100_001}, [], "prompt: system has more than 100000 characters"),
        ({}, [{"file_artifacts": {"../x": ""}}], "context_overrides: '../x' is no file of this environment; known: prompts/"),
        ({}, [{"env_vars": {"A": "1"}}], "context_overrides: env_vars change nothing here"),
        ({"teacher": "induction", "prompt": "x"}, [], "prompt: only teacher 'openai' reads one"),
    ],
)  # fmt: skip
def test_a_prompt_that_cannot_be_used_is_no_reward_and_no_failure_of_a_machine(
    policy: dict[str, Any], overrides: list[Any], said: str
) -> None:
    with served([RIGHT]) as (models, requests):
        here = environment(models=models)
        response = ended(here, asked(0, {"model": "tiny", **policy}, context_overrides=overrides))
    assert (response.status_detail or "")[: len(said)] == said
    assert (response.success_status, response.failure_cause) == ("apply_failed", "unclassified")
    assert (response.reward_info.outcome_reward, requests) == (None, [])


def test_an_answer_that_leaves_no_room_for_a_prompt_and_a_model_that_was_not_opened_are_refused() -> None:
    with served([RIGHT], context_tokens=512) as (models, _):
        for policy, fault in (
            ({"model": "tiny", "max_tokens": 600}, "512; ask for fewer"),
            ({"model": "big"}, "known: tiny"),
        ):
            with pytest.raises(RequestError, match=fault):
                environment(models=models).run_rollout(asked(0, policy))


# as a task app


def test_the_environment_as_a_task_app_over_http() -> None:
    config = environment().task_app(SecretStr("k"))
    bodies = [asked(seed).model_dump(mode="json") for seed in (0, 1, 2)]
    with (
        serve_task_app(create_local_api(config, {})) as url,
        httpx.Client(base_url=url, headers={"X-API-Key": "k"}) as http,
    ):
        taskset, instances = http.get("/task_info").json(), http.get("/task_info?seeds=1&seeds=0").json()
        missing, rollouts = http.get("/task_info?seed=2"), [http.post("/rollout", json=body) for body in bodies]
    version = SeedManifest.of(TASKS).version
    common = {"id": "refactoring", "version": version, "num_tasks": 2, "seeds": {"first": 0, "last": 1}, "models": []}
    assert common.items() <= taskset["taskset"].items()
    assert (taskset["taskset"]["languages"], taskset["taskset"]["datasets"]) == ({"python": 2}, {"d": 2})
    description = {"id": "a", "name": "a", "description": "Rename `old` to `new`.", "version": version}
    assert ([info["task"]["id"] for info in instances], instances[1]["task"]) == (["b", "a"], description)
    assert instances[1]["task_metadata"] == {
        **{"seed": 0, "language": "python", "text": "x = old(1)\ny = old(b)\n", "license": "MIT", "group": "g"},
        **{"origin": "o", "tags": ["t"], "task_digest": TASKS[1].digest},
        **{name: getattr(TASKS[1], name) for name in ("instruction_source", "answerable", "answerable_by")},
    }
    assert "new(1)" not in json.dumps(instances)
    assert [response.status_code for response in (missing, *rollouts)] == [404, 200, 200, 404]
    assert [response.json()["reward_info"]["outcome_reward"] for response in rollouts[:2]] == [1.0, 1.0]
    assert missing.json() == rollouts[2].json()


# as the entrypoint of a deployment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a box, with its tasks."""
    write_lines(tmp_path / "tasks.jsonl", TASKS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_entrypoint(folder: Path, request: Any) -> tuple[int, dict[str, Any]]:
    raw = request if isinstance(request, bytes) else json.dumps(request).encode()
    (folder / "rollout.json").write_bytes(raw)
    code = main(["--input", str(folder / "rollout.json"), "--output", str(folder / "result.json")])
    return code, json.loads((folder / "result.json").read_text("utf-8"))


@pytest.mark.parametrize(
    "request_body",
    [
        asked(1).model_dump(mode="json"),
        # as the first runners asked
        {"trace_correlation_id": "t-1", "seed": 1, "prompt_template": {}, "limits": {"timeout_s": 300}, "params": {}},
    ],
)
def test_the_entrypoint_leaves_the_result_of_a_task_app(folder: Path, request_body: dict[str, Any]) -> None:
    code, result = run_entrypoint(folder, request_body)
    assert (code, result) == (0, environment().run_rollout(asked(1)).model_dump(mode="json"))


def test_the_entrypoint_keeps_to_the_manifest_beside_its_tasks(folder: Path) -> None:
    first = SeedManifest.of([TASKS[0]])
    first.extend(TASKS).write(folder / "manifest.json")
    _, result = run_entrypoint(folder, asked(0).model_dump(mode="json"))
    assert result["reward_info"]["details"]["task_id"] == "b"


@pytest.mark.parametrize(
    ("request_body", "said"),
    [
        (b"{", "request: is not JSON; send a RolloutRequest"),
        (b"[]", "request: is not an object of JSON; send a RolloutRequest"),
        (b"[" * 100_000, "request: is not JSON; send a RolloutRequest"),
        (b" " * ((8 << 20) + 1), "request: has more than 8388608 bytes"),
        ({"seed": 0}, "request: trace_correlation_id: Field required; send a RolloutRequest"),
        (
            {"trace_correlation_id": "t-1", "env": {"seed": 9}},
            "seed 9 stands for no task; there are 0 to 1",
        ),
        (
            {"trace_correlation_id": "t-1", "policy": {"config": {"model": "m"}}},
            "policy.config.model: 'm' is unknown; known: none was opened",
        ),
    ],
)
def test_the_entrypoint_says_why_nothing_was_run(
    folder: Path, capsys: pytest.CaptureFixture[str], request_body: Any, said: str
) -> None:
    code, result = run_entrypoint(folder, request_body)
    assert (code, result["status_detail"], capsys.readouterr().err) == (1, said, f"{said}\n")
    assert (result["reward_info"]["outcome_reward"], result["reward_valid"]) == (None, False)
    assert (result["success_status"], result["failure_cause"]) == ("runtime_error", "unclassified")


def test_the_entrypoint_without_tasks_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, result = run_entrypoint(tmp_path, asked(0).model_dump(mode="json"))
    expected = "tasks.jsonl: cannot be read (No such file or directory); expected tasks, one line of JSON for each"
    assert (code, result["trace_correlation_id"], result["status_detail"]) == (1, "t-1", expected)


def test_the_entrypoint_speaks_over_its_streams_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = io.BytesIO(json.dumps(asked(1).model_dump(mode="json")).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw))
    assert main(["--stdio"]) == 0
    assert json.loads(capsys.readouterr().out)["reward_info"]["outcome_reward"] == 1.0


def test_the_entrypoint_works_inside_our_jail() -> None:
    if not has_user_namespaces():
        pytest.skip("this machine has no user namespaces")
    lines = "".join(task.model_dump_json() + "\n" for task in TASKS).encode()
    command = ("-m", "graftline.harbor.environments.run_rollout", "--stdio")
    request = asked(1, {"teacher": "induction"}).model_dump_json().encode()
    jail = ServedJail("namespaces", "namespaces", CaseLimits(memory_mb=2048), ("python",))
    try:
        end = jail.run(Case("python", command, {"tasks.jsonl": lines}, stdin=request))
    finally:
        jail.close()
    assert (end.verdict, end.exit_code, end.stderr) == (Verdict.OK, 0, b"")
    expected = environment().run_rollout(asked(1, {"teacher": "induction"}))
    assert json.loads(end.stdout) == expected.model_dump(mode="json")
    assert expected.reward_info.outcome_reward == 1.0
