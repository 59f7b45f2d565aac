import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.client import HarborAPIError, HarborTimeoutError
from graftline.harbor.contract import RewardInfo, RolloutRequest, RolloutResponse, TaskDescription, TaskInfo
from graftline.harbor.instances import create_harbor_instances
from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.server_events import ServerEvent
from graftline.prompts.journal import FileJournal
from graftline.prompts.prompt_learning import PromptLearningJob, PromptLearningStatus
from graftline.prompts.rollouts import policy_of
from graftline.prompts.settings import PromptLearningConfig
from tests.harbor_server import Fault, HarborServer
from tests.optimized_app import PaidApp, wanted

JOBS = "POST /api/prompt-learning/online/jobs"
WHOLE = """
[prompt_learning]
algorithm = "gepa"
task_app_url = "http://127.0.0.1:1/app"
task_app_id = "engine-bench"
task_app_type = "harbor"
env_name = "enginebench"
env_config = { split = "train" }
proxy_models = { small = "m" }
use_byok = false

[prompt_learning.initial_prompt]
id = "first"
name = "The first one"
wildcards = { query = "REQUIRED" }

[[prompt_learning.initial_prompt.messages]]
role = "system"
pattern = "Do {query}."
order = 0

[prompt_learning.policy]
provider = "openai"
model = "m"
inference_mode = "synth_hosted"
inference_url = "https://example.org"
temperature = 0
max_completion_tokens = 512
config = { effort = "low" }
context_override = { "AGENTS.md" = "text" }

[prompt_learning.verifier]
enabled = false
reward_source = "task_app"
weight_env = 0.5

[prompt_learning.gepa]
env_name = "enginebench"
env_config = {}
rng_seed = 7
proposer_type = "dspy"
proposer_effort = "LOW_CONTEXT"
proposer_output_tokens = "RAPID"
metaprompt = "Better."
modules = [{ module_id = "a" }]
unified_optimization = true
adaptive_pool = "LOW"
adaptive_batch = { level = "LOW" }
rollout = { budget = 100, max_concurrent = 20, minibatch_size = 8 }
mutation = { rate = 0.3 }
archive = { size = 64, pareto_set_size = 9, pareto_eps = 1e-6, feedback_fraction = 0.5 }
token = { max_limit = 1000, counting_model = "m", enforce_pattern_limit = true, max_spend_usd = 1.5 }

[prompt_learning.gepa.evaluation]
train_seeds = { start = 0, end = 20, step = 2 }
validation_seeds = [1, 3, 5]
test_pool = [100]
validation_pool = "valid"
validation_top_k = 3

[prompt_learning.gepa.population]
initial_size = 20
num_generations = 10
children_per_generation = 5
crossover_rate = 0.5
selection_pressure = 1
patience_generations = 3
"""


@pytest.fixture
def server(server: HarborServer) -> HarborServer:
    create_harbor_instances("dep-1", 10, server.url, server.key)
    server.asked.clear()
    return server


def read(tmp_path: Path, text: str) -> PromptLearningConfig:
    path = tmp_path / "gepa.toml"
    path.write_text(text, "utf-8")
    return PromptLearningConfig.from_toml(path)


def test_every_key_of_a_file_is_read(tmp_path: Path) -> None:
    config = read(tmp_path, WHOLE)

    assert config.gepa.evaluation.train_seeds == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert config.seeds == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 1, 3, 5, 100]
    assert (config.gepa.archive.pareto_set_size, config.policy.temperature) == (9, 0.0)
    assert (config.initial_prompt is not None, config.verifier.model_extra) == (True, {"weight_env": 0.5})
    assert config == PromptLearningConfig.from_path(tmp_path / "gepa.toml")
    sent = config.body("https://example.org/app")
    assert PromptLearningConfig.from_mapping(sent).body("https://example.org/app") == sent
    assert policy_of(config) == {
        "provider": "openai",
        "model": "m",
        "inference_url": "https://example.org",
        "temperature": 0.0,
        "max_completion_tokens": 512,
        "context_override": {"AGENTS.md": "text"},
        "effort": "low",
    }


def test_what_is_not_set_of_a_policy_is_the_task_apps_to_decide() -> None:
    config = PromptLearningConfig.from_mapping({"policy": {"model": "m"}})

    assert policy_of(config) == {"model": "m"}
    assert policy_of(PromptLearningConfig.from_mapping(config.body(""))) == {"model": "m"}


def test_flat_names_are_those_of_the_parts(tmp_path: Path) -> None:
    flat = """
[prompt_learning.gepa]
rollout_budget = 50
mutation_rate = 0.2
evaluation_seeds = [1, 2, 3]
pareto_set_size = 2
max_spend_usd = 3
"""

    gepa = read(tmp_path, flat).gepa

    assert (gepa.rollout.budget, gepa.mutation.rate, gepa.evaluation.train_seeds) == (50, 0.2, [1, 2, 3])
    assert (gepa.archive.pareto_set_size, gepa.token.max_spend_usd) == (2, 3.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[prompt_learning]\ntask_app_ulr = 'a'",
            "prompt_learning.task_app_ulr: unknown key; did you mean 'task_app_url'?",
        ),
        (
            "[prompt_learning.gepa]\nmutation_rate = 1\n[prompt_learning.gepa.mutation]\nrate = 0.5",
            "gepa.mutation_rate: is gepa.mutation.rate as well; name it once",
        ),
        (
            "[prompt_learning.gepa.evaluation]\ntrain_seeds = [0, 1, 2]\nvalidation_seeds = [2, 3, 1]",
            "prompt_learning.gepa.evaluation: validation_seeds hold 2 of the train_seeds (1, 2); a prompt is judged on "
            "others",
        ),
        (
            "[prompt_learning.gepa.evaluation]\nseeds = [0, 1, 2]\n[prompt_learning.gepa.archive]\npareto_set_size = 3",
            "prompt_learning.gepa: archive.pareto_set_size is 3 of 3 train_seeds; expected fewer than there are seeds",
        ),
        (
            "[prompt_learning.gepa.evaluation]\nseeds = { start = 0, stop = 3 }",
            "prompt_learning.gepa.evaluation.seeds: unknown key 'stop'; a range of seeds has start, end and step",
        ),
        (
            f"[prompt_learning.gepa.evaluation]\nseeds = {{ end = {10**30} }}",
            "prompt_learning.gepa.evaluation.seeds: a range of seeds has its start, end and step from 0 to 2147483648",
        ),
        (
            "[prompt_learning.policy]\nmodel = 'm'\nconfig = { model = 'n' }",
            "prompt_learning.policy: model is config.model as well; name it once",
        ),
        (
            "[prompt_learning.verifier]\nenabledd = true",
            "prompt_learning.verifier: unknown key 'enabledd'; did you mean 'enabled'?; known here: enabled, reward_source,"
            " weight_…",
        ),
        (
            "[prompt_learning.verifier]\nreward_source = 'verifier'",
            "prompt_learning.verifier: asks for a verifier, and none is carried out: rewards are those of the task app;",
        ),
        ("[prompt_learning]\nalgorithm = 'mipro'", "prompt_learning.algorithm: input should be 'gepa'"),
        (
            "[prompt_learning.gepa.rollout]\nbudget = '1'",
            "prompt_learning.gepa.rollout.budget: input should be a valid integer",
        ),
        ("[prompt_learning.gepa.rollout]\nbudget = 2026-01-01", "a value is neither text, number, list nor table"),
        ("[optimization]\na = 1", "optimization: unknown table; expected [prompt_learning] alone"),
        ("", "has no table [prompt_learning] of settings; expected one, with algorithm = 'gepa'"),
        ("[prompt_learning", "not valid TOML: "),
    ],
)
def test_a_file_that_does_not_fit_says_where_and_what_is_meant(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'gepa.toml'}: {said}")


def test_a_file_that_is_not_there_or_no_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file or directory\); expected a TOML file"):
        PromptLearningConfig.from_toml(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match="byte 5 is not UTF-8"):
        PromptLearningConfig.from_toml(tmp_path / "bytes.toml")


def small(**more: Any) -> PromptLearningConfig:
    seeds = {"train_seeds": [1, 2, 3], "validation_seeds": [4]}
    return PromptLearningConfig.from_mapping({"gepa": {"evaluation": seeds}, **more})


def on_deployment(server: HarborServer, config: PromptLearningConfig) -> PromptLearningConfig:
    ref = HarborDeploymentRef("dep-1", server.url, server.key)
    config.task_app_config = LocalAPIConfig(app_id="tests", execution_backend="harbor", harbor=ref)
    return config


def submitted(server: HarborServer) -> PromptLearningJob:
    job = PromptLearningJob(on_deployment(server, small()))
    job.submit()
    return job


def test_a_job_on_a_deployment_is_submitted_as_the_shipped_script_does(server: HarborServer) -> None:
    config = on_deployment(server, small(task_app_url="http://127.0.0.1:1"))
    config.task_app_url = None
    job = PromptLearningJob(config=config)

    assert job.submit() == job.submit() == job.job_id == "job-1"

    assert [asked.path.removeprefix("/api/") for asked in server.asked] == [
        "harbor/deployments/dep-1/status",
        "harbor/deployments/dep-1/instances",
        "prompt-learning/online/jobs",
    ]
    body = server.of(JOBS)[0].body
    assert (body["algorithm"], body["auto_start"]) == ("gepa", True)
    sent = body["config_body"]["prompt_learning"]
    assert sent["task_app_url"] == f"{server.url}/api/harbor/deployments/dep-1"
    assert sent["gepa"]["evaluation"] == {
        "seeds": [],
        "train_seeds": [1, 2, 3],
        "validation_seeds": [4],
        "val_seeds": [],
    }
    assert server.key not in str(body)


@pytest.mark.parametrize("has_url", [True, False])
def test_a_deployment_can_be_named_by_a_file(server: HarborServer, has_url: bool) -> None:
    url = f"{server.url}/api/harbor/deployments/dep-1"
    config = small(harbor={"deployment_id": "dep-1"}, **({"task_app_url": url} if has_url else {}))

    PromptLearningJob(config, server.url, server.key).submit()

    assert server.of(JOBS)[0].body["config_body"]["prompt_learning"]["task_app_url"] == url


def tasks_of(seeds: list[int]) -> list[TaskInfo]:
    return [TaskInfo(task=TaskDescription(id=str(seed), name=str(seed))) for seed in seeds]


def rollout(request: RolloutRequest) -> RolloutResponse:
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id, reward_info=RewardInfo(outcome_reward=1.0)
    )


def test_a_task_app_at_a_url_is_asked_from_here_and_looked_at_first(server: HarborServer) -> None:
    paid = PaidApp()
    app = paid.config
    app.api_key = SecretStr("k")
    with serve_task_app(create_local_api(app)) as url:
        config = wanted(task_app_url=url)
        with pytest.raises(HarborAPIError, match="/health: answers 401"):
            PromptLearningJob(config, server.url, server.key, task_app_api_key="wrong").submit()
        assert paid.asked == []

        job = PromptLearningJob(config, server.url, server.key, task_app_api_key="k")
        job_id = job.submit()
        found = job.poll_until_complete(interval_s=0.05)

    assert (found.job_id, found.succeeded, found.error) == (job_id, True, None)
    assert found.num_completed == len(paid.asked) == job.results().rollouts
    assert server.asked == []


def test_a_task_app_of_this_process_is_asked_without_a_service_and_tells_what_happens() -> None:
    config, paid = wanted(), PaidApp()
    config.task_app_config = paid.config
    job = PromptLearningJob(config)
    assert job.job_id is None
    job.submit()

    async def kinds() -> list[str]:
        return [event.kind.removeprefix("prompt_learning.") async for event in job.events()]

    told, found = asyncio.run(kinds()), job.poll_until_complete(interval_s=0.05)
    outcome = job.results()

    assert (told[0], told[1], told[-1]) == ("created", "running", "succeeded")
    assert told.count("candidate.evaluated") == len(outcome.prompts)
    best = outcome.best_prompt
    assert best is not None
    assert (found.best_prompt, found.mean_reward) == (best.texts, outcome.best_score)


def test_one_that_is_run_from_here_is_cancelled_and_resumed_by_another_job(tmp_path: Path) -> None:
    config, paid, waits, may_go = wanted(), PaidApp(), threading.Event(), threading.Event()

    def asked(number: int) -> None:
        # from here on they are kept, so that it does not end before it is cancelled
        if number >= 20:
            waits.set()
            assert may_go.wait(240)

    config.task_app_config = paid.config
    paid.on_asked = asked
    job = PromptLearningJob(config, folder=tmp_path)
    job_id = job.submit()
    assert waits.wait(240)
    # to cancel is to wait for those that are under way
    threading.Timer(1.0, may_go.set).start()
    cancelled = job.cancel()
    assert cancelled.status is PromptLearningStatus.CANCELLED
    journal = FileJournal(tmp_path / "journal.jsonl")
    kept = {(line["candidate"], line["seed"]) for line in journal.lines() if line["kind"] == "rollout"}

    again = PromptLearningJob(config, folder=tmp_path)
    again.resume()
    found = again.poll_until_complete(interval_s=0.05)

    assert (again.job_id, found.succeeded) == (job_id, True)
    lines = [(line["candidate"], line["seed"]) for line in journal.lines() if line["kind"] == "rollout"]
    assert len(set(lines)) == len(lines)
    assert kept < set(lines)


def test_another_job_in_the_same_folder_is_refused_while_the_first_goes_on(tmp_path: Path) -> None:
    config, paid, waits, may_go = wanted(), PaidApp(), threading.Event(), threading.Event()
    config.task_app_config = paid.config
    paid.on_asked = lambda number: (waits.set(), may_go.wait(240))[0]
    first, second = PromptLearningJob(config, folder=tmp_path), PromptLearningJob(config, folder=tmp_path)
    first.submit()
    assert waits.wait(240)
    second.submit()
    refused = second.poll_until_complete(interval_s=0.05)
    may_go.set()

    assert refused.failed
    assert "another job goes on with this optimization" in str(refused.error)
    assert first.poll_until_complete(interval_s=0.05).succeeded


def test_one_that_ended_before_it_was_judged_says_so() -> None:
    config, paid = wanted({"token": {"max_spend_usd": 0.05}}), PaidApp()
    config.task_app_config = paid.config
    job = PromptLearningJob(config)
    job.submit()
    found = job.poll_until_complete(interval_s=0.05)

    assert found.succeeded
    assert found.error == (
        "the best prompt was not judged on seeds that had no part in its choice: budget: max_usd of 0.05 is used up"
    )


def test_as_long_as_was_said_is_waited(server: HarborServer) -> None:
    server.job_fields = {"status": "succeeded", "best_score": 0.75}
    job = submitted(server)
    server.looks = 1

    # the second look is due after five seconds, and there is one when the time is over
    assert job.poll_until_complete(timeout_s=0.2, interval_s=5.0).succeeded


def test_a_seed_that_the_task_app_does_not_know_is_told_before_a_job_is_sent(server: HarborServer) -> None:
    config = PromptLearningConfig.from_mapping({"gepa": {"evaluation": {"seeds": [77]}}})

    with pytest.raises(HarborError, match="deployment 'dep-1': has no instance of seed 77"):
        PromptLearningJob(on_deployment(server, config)).submit()

    assert server.of(JOBS) == []


@pytest.mark.parametrize(
    ("fields", "mean"),
    [
        ({"status": "succeeded", "best_score": 0.75}, 0.75),
        # a mean of 0.0 is a number
        ({"status": "completed", "best_score": 0.75, "mean_reward": 0.0}, 0.0),
    ],
)
def test_a_job_is_waited_for(server: HarborServer, fields: dict[str, Any], mean: float) -> None:
    server.job_fields = {**fields, "best_prompt": {"system": "Do."}, "more": 1}
    job = submitted(server)
    server.looks = 2

    found = job.poll_until_complete(interval_s=0.01)

    assert (found.status, found.succeeded, found.failed) == (fields["status"], True, False)
    assert (found.best_score, found.mean_reward, found.best_prompt) == (0.75, mean, {"system": "Do."})
    assert found.raw["more"] == 1


def test_a_job_fails_is_late_or_is_cancelled(server: HarborServer) -> None:
    server.job_fields = {"status": "failed", "error": "no proposer"}
    job = submitted(server)
    server.looks = 2

    with pytest.raises(HarborTimeoutError, match="'job-1': is running still after 0 s"):
        job.poll_until_complete(timeout_s=0)
    failed = job.poll_until_complete(interval_s=0.01)
    assert (failed.failed, failed.error, failed.mean_reward) == (True, "no proposer", None)
    assert job.cancel().status is PromptLearningStatus.CANCELLED
    assert job.status().status is PromptLearningStatus.CANCELLED


def test_events_are_read_past_a_broken_connection(server: HarborServer) -> None:
    server.events = [
        'event: prompt_learning.created\ndata: {"a": 1}',
        "",
        ": a comment\nevent: prompt_learning.succeeded\ndata: {\ndata: }",
        "event: never\ndata: 1",
    ]
    job = submitted(server)

    async def all_events() -> list[ServerEvent]:
        return [event async for event in job.events()]

    assert asyncio.run(all_events()) == [
        ServerEvent("prompt_learning.created", {"a": 1}, "1"),
        ServerEvent("message", "after the break", "2"),
        ServerEvent("prompt_learning.succeeded", {}, "3"),
    ]
    streams = [asked for asked in server.asked if asked.path.endswith("/stream")]
    assert [asked.headers.get("last-event-id") for asked in streams] == [None, "1"]


def test_events_that_are_refused_are_an_error(server: HarborServer) -> None:
    job = submitted(server)
    server.fail("GET /api/prompt-learning/online/jobs/job-1/events/stream", Fault(status=404))

    async def first() -> None:
        async for _ in job.events():
            return

    with pytest.raises(HarborAPIError, match="answers 404"):
        asyncio.run(first())


def test_a_job_that_cannot_be_asked_for_is_refused(server: HarborServer) -> None:
    given = (server.url, server.key)
    here = LocalAPIConfig(app_id="tests", rollout=rollout, provide_task_instances=tasks_of)

    with pytest.raises(ConfigError, match="prompt_learning: names no task app; expected task_app_url, task_app_config"):
        PromptLearningJob(small(), *given).submit()
    config = small(task_app_url="http://127.0.0.1:1")
    config.task_app_config = here
    with pytest.raises(ConfigError, match="has both task_app_url and task_app_config; set the one to None"):
        PromptLearningJob(config, *given).submit()
    config.task_app_url = None
    with pytest.raises(ConfigError, match="initial_prompt: has no messages"):
        PromptLearningJob(config, *given).submit()
    other = small(harbor={"deployment_id": "dep-2"}, task_app_url=f"{server.url}/api/harbor/deployments/dep-1")
    with pytest.raises(ConfigError, match=r"harbor\.deployment_id: is 'dep-2', and the task app is another one"):
        PromptLearningJob(other, *given).submit()
    with pytest.raises(ConfigError, match="names no train_seeds"):
        PromptLearningJob(PromptLearningConfig(), *given).submit()
    with pytest.raises(ConfigError, match="was not submitted"):
        PromptLearningJob(small(), *given).poll_until_complete()
    assert server.asked == []
