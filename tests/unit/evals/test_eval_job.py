import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.evals.job import EvalJob, EvalJobConfig, EvalResult, EvalStatus, SeedResult
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.client import HarborAPIError, HarborTimeoutError
from graftline.harbor.contract import (
    FailureCause,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    TaskDescription,
    TaskInfo,
)
from graftline.harbor.coverage import summary_of
from graftline.harbor.localapi.app import create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app
from tests.harbor_server import Fault, HarborServer, reward

JOBS = "POST /api/eval/jobs"


def job_at(ref: HarborDeploymentRef, **more: Any) -> EvalJob:
    given = {"task_app_url": ref.task_app_url, "api_key": ref.api_key, "seeds": range(3), **more}
    return EvalJob(EvalJobConfig(**given))


SUMMARY = {
    "mean_reward": 0.0,
    "interval": [0.0, 0.0],
    "n_valid": 3,
    "n_infra": 0,
    "n_total": 3,
    "coverage": 1.0,
    "total_cost_usd": None,
    "total_tokens": 30,
}


def test_seeds_of_a_deployment_are_run_by_its_service(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.looks, server.job_fields = 2, {"summary": SUMMARY, "a_key_of_later": 1}
    server.outcome = lambda seed: reward(0.0)
    job = job_at(
        ref, backend_url=server.url, task_app_api_key="k", app_id="a", env_name="e", policy_config={"model": "m"}
    )

    assert job.submit() == job.submit() == job.job_id == "job-1"
    found = job.poll_until_complete(interval_s=0.01)

    # a mean of 0.0 is a number
    assert (found.mean_reward, found.interval, found.coverage) == (0.0, (0.0, 0.0), 1.0)
    assert (found.status, found.succeeded, found.failed, found.is_terminal) == (EvalStatus.COMPLETED, True, False, True)
    assert (found.num_completed, found.num_total, found.n_valid, found.n_infra) == (3, 3, 3, 0)
    assert (found.total_tokens, found.total_cost_usd, found.raw["a_key_of_later"]) == (30, None, 1)
    assert [(one.seed, one.reward, one.reward_valid) for one in found.seed_results] == [
        (n, 0.0, True) for n in range(3)
    ]
    assert len(server.of(JOBS)) == 1
    body = dict(server.of(JOBS)[0].body)
    assert body.pop("idempotency_key") == server.of(JOBS)[0].headers["idempotency-key"]
    assert body == {
        "task_app_url": ref.task_app_url,
        "app_id": "a",
        "env_name": "e",
        "seeds": [0, 1, 2],
        "policy": {"model": "m"},
        "env_config": {},
        "verifier_config": {},
        "max_concurrent": 20,
        "timeout": 600.0,
        "budget": {"max_rollouts": None, "max_usd": None, "max_tokens": None},
        "min_coverage": 0.95,
    }


@pytest.mark.parametrize("name", ["task_app_url", "local_api_url", "task_app_config"])
def test_a_task_app_behind_a_deployment_is_the_deployment(
    server: HarborServer, ref: HarborDeploymentRef, name: str
) -> None:
    config = LocalAPIConfig(app_id="tests", execution_backend="harbor", harbor=ref)

    EvalJob(EvalJobConfig(**{name: config}, seeds=[1])).submit()

    assert server.of(JOBS)[0].body["task_app_url"] == ref.task_app_url


def test_a_job_whose_answer_was_lost_is_one(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.fail(JOBS, Fault(torn=True, is_carried_out=True))

    assert job_at(ref).submit() == "job-1"
    assert len(server.jobs) == 1


def test_a_job_that_is_not_done_in_time_is_an_error_and_no_partial_result(
    server: HarborServer, ref: HarborDeploymentRef
) -> None:
    server.looks = 1000
    job = job_at(ref)
    job.submit()

    with pytest.raises(TimeoutError) as caught:
        job.poll_until_complete(timeout_s=0, interval_s=0.01)

    assert str(caught.value) == "evaluation 'job-1': 0 of 3 seeds have ended after 0 s; poll again, it goes on"
    assert isinstance(caught.value, HarborTimeoutError)


def test_a_job_can_be_cancelled_and_looked_at(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.looks = 1000
    job = job_at(ref)
    job.submit()

    assert job.results().status is EvalStatus.RUNNING
    assert job.cancel().status is EvalStatus.CANCELLED
    assert job.poll_until_complete().status is EvalStatus.CANCELLED


def test_progress_is_shown_on_standard_error(
    server: HarborServer, ref: HarborDeploymentRef, capsys: pytest.CaptureFixture[str]
) -> None:
    server.job_fields = {"summary": SUMMARY}
    job = job_at(ref)
    job.submit()

    job.poll_until_complete(progress=True)

    assert capsys.readouterr().err == "evaluation job-1: made (completed, 3 of 3 seeds count)\n"


def answered(request: RolloutRequest, value: float | None, **more: Any) -> RolloutResponse:
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id, reward_info=RewardInfo(outcome_reward=value), **more
    )


def tenths(request: RolloutRequest) -> RolloutResponse:
    return answered(request, request.seed / 10)


def local_job(rollout: Callable[..., Any], seeds: Sequence[int] = (0, 1, 2), **more: Any) -> EvalJob:
    app = LocalAPIConfig(app_id="tests", rollout=rollout)
    return EvalJob(EvalJobConfig(task_app_url=app, seeds=seeds, **more))


def result_of(job: EvalJob) -> EvalResult:
    job.submit()
    return job.poll_until_complete(interval_s=0.01)


def test_seeds_of_a_task_app_in_this_process_are_run_from_here() -> None:
    def rollout(request: RolloutRequest) -> RolloutResponse:
        seen.append(request)
        return answered(request, request.seed / 10, metadata={"cost_usd": 0.5, "tokens": 7})

    seen: list[RolloutRequest] = []

    found = result_of(local_job(rollout, env_name="e", policy_config={"model": "m"}, timeout=30.0))

    assert (found.status, found.mean_reward, found.coverage) == (EvalStatus.COMPLETED, pytest.approx(0.1), 1.0)
    assert (found.total_cost_usd, found.total_tokens, found.raw) == (1.5, 21, {})
    assert [(one.seed, one.reward) for one in found.seed_results] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert sorted(request.trace_correlation_id for request in seen) == [f"{found.job_id}-s{seed}" for seed in range(3)]
    first = min(seen, key=lambda request: request.seed)
    assert (first.env.env_name, first.policy.config, first.safety.max_time_s) == ("e", {"model": "m"}, 30.0)


def test_a_deployment_of_another_service_is_run_from_here(server: HarborServer, ref: HarborDeploymentRef) -> None:
    server.outcome = lambda seed: reward(seed / 10, cost_usd=0.1, tokens=3)

    found = result_of(job_at(ref, backend_url="https://example.org", api_key=None, task_app_api_key=ref.api_key))

    assert (found.mean_reward, found.total_tokens, len(server.rollouts), server.jobs) == (pytest.approx(0.1), 9, 3, {})
    assert found.seed_results[2].rollout_id


def test_no_more_seeds_than_allowed_are_run_at_the_same_time() -> None:
    lock, at_work, most = threading.Lock(), [0], [0]
    both = threading.Barrier(2, timeout=20)

    def rollout(request: RolloutRequest) -> RolloutResponse:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        # two are at work, or this breaks
        both.wait()
        with lock:
            at_work[0] -= 1
        return tenths(request)

    found = result_of(local_job(rollout, range(6), concurrency=2))

    assert (found.n_valid, most) == (6, [2])


def test_a_failure_has_no_reward_and_takes_nothing_from_the_mean() -> None:
    def rollout(request: RolloutRequest) -> RolloutResponse:
        if request.seed == 1:
            raise RuntimeError("no box")
        if request.seed == 2:
            return answered(request, None, failure_cause=FailureCause.SANDBOX_FAILED, status_detail="no space")
        return answered(request, 1.0)

    found = result_of(local_job(rollout))

    assert (found.mean_reward, found.n_valid, found.n_infra, found.coverage) == (1.0, 1, 2, 1 / 3)
    assert (found.status, found.succeeded, found.failed) == (EvalStatus.COMPLETED_WITH_ERRORS, False, False)
    assert found.error is not None
    assert found.error.startswith("2 of 3 seeds have no reward; seed ")
    assert [one.failure_cause for one in found.seed_results] == [None, "unclassified", "sandbox_failed"]


def test_an_evaluation_that_breaks_says_by_what() -> None:
    found = result_of(local_job(tenths, env_name="a\0b"))

    assert (found.status, found.failed, found.mean_reward) == (EvalStatus.FAILED, True, None)
    assert found.error is not None
    assert found.error.startswith("the evaluation ended early (ValidationError: 1 validation error for RolloutEnv")


def test_nothing_is_begun_at_a_task_app_that_refuses_the_key() -> None:
    app = LocalAPIConfig(app_id="tests", rollout=tenths, api_key="k")
    with serve_task_app(create_local_api(app)) as url:
        job = EvalJob(EvalJobConfig(task_app_url=url, task_app_api_key="wrong", seeds=[1]))
        with pytest.raises(HarborAPIError, match="answers 401"):
            job.submit()

    assert job.job_id is None


def test_an_evaluation_that_is_run_from_here_can_be_cancelled() -> None:
    began, goes_on = threading.Event(), threading.Event()

    def rollout(request: RolloutRequest) -> RolloutResponse:
        if request.seed == 0:
            return answered(request, 1.0)
        began.set()
        goes_on.wait(240)
        return answered(request, 1.0)

    job = local_job(rollout, concurrency=1)
    job.submit()
    began.wait(240)
    assert job.cancel().status is EvalStatus.CANCELLED

    found = job.poll_until_complete(interval_s=0.01)
    goes_on.set()

    assert (found.status, found.num_completed, found.num_total) == (EvalStatus.CANCELLED, 1, 3)


def test_an_evaluation_runs_inside_a_running_loop() -> None:
    async def notebook() -> tuple[float | None, float | None]:
        job = local_job(tenths)
        await job.submit_async()
        return result_of(local_job(tenths)).mean_reward, (
            await job.poll_until_complete_async(interval_s=0.01)
        ).mean_reward

    first, second = asyncio.run(notebook())

    assert first == second == pytest.approx(0.1)


def spending(usd: float | None, tokens: int | None = None) -> Callable[[RolloutRequest], RolloutResponse]:
    return lambda request: answered(request, 1.0, metadata={"cost_usd": usd, "tokens": tokens})


@pytest.mark.parametrize(
    ("budget", "usd", "tokens", "ran", "said"),
    [
        ({"max_rollouts": 3}, None, None, 3, "budget: max_rollouts of 3 is used up"),
        ({"max_usd": 1.0}, 0.4, None, 2, "budget: max_usd of 1 is used up"),
        ({"max_tokens": 35}, None, 10, 3, "budget: max_tokens of 35 is used up"),
        (
            {"max_usd": 1.0},
            None,
            None,
            1,
            "budget: a rollout did not say what it used, so max_usd of 1 cannot be kept",
        ),
    ],
)
def test_a_budget_ends_an_evaluation(
    budget: dict[str, float], usd: float | None, tokens: int | None, ran: int, said: str
) -> None:
    found = result_of(local_job(spending(usd, tokens), range(8), budget=budget))

    assert (found.n_valid, found.status) == (ran, EvalStatus.COMPLETED_WITH_ERRORS)
    left = [one for one in found.seed_results if not one.reward_valid]
    assert {(one.status, one.reward, one.failure_cause, one.error) for one in left} == {
        ("cancelled", None, "cancelled", said)
    }


APP = LocalAPIConfig(app_id="tests", rollout=tenths)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task_app_url": None}, "evaluation: names no task apps; expected one of task_app_url and task_app_config"),
        (
            {"local_api_url": "http://127.0.0.1:1"},
            "evaluation: names 2 task apps; expected one of task_app_url and task_app_config",
        ),
        ({"seeds": []}, "evaluation: seeds: names no seed; expected at least one"),
        ({"seeds": [1, 1]}, "evaluation: seeds: names seed 1 twice; expected each once"),
        (
            {"seeds": ["1"]},
            "evaluation: seeds: '1' is no seed; expected a whole number from 0 to 2147483647",
        ),
        ({"concurrency": 0}, "evaluation: concurrency is 0; expected 1 to 1000"),
        ({"timeout": 86_401}, "evaluation: timeout is 86401 s; expected up to 86400"),
        ({"min_coverage": 1.5}, "evaluation: min_coverage is 1.5; expected a share from 0 to 1"),
        ({"budget": {"max_usd": 0}}, "budget: max_usd is 0; expected more than 0, or None"),
        (
            {"budget": {"usd": 1}},
            "evaluation: budget names 'usd'; known: max_rollouts, max_tokens, max_usd",
        ),
    ],
)
def test_an_evaluation_that_does_not_fit_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        EvalJobConfig(**{"task_app_url": APP, "seeds": [1], **given})

    assert str(caught.value) == said


def test_a_config_shows_no_key() -> None:
    config = EvalJobConfig(
        task_app_url="http://127.0.0.1:1", api_key="secret-1", task_app_api_key="secret-2", seeds=[1]
    )

    assert "secret" not in repr(config)


def test_a_job_that_was_not_submitted_says_so() -> None:
    with pytest.raises(ConfigError, match=r"was not submitted; call submit\(\) first"):
        local_job(tenths).poll_until_complete()


def ended(*rewards: float | None, cost: float | None = None) -> list[SeedResult]:
    return [
        SeedResult(seed=seed, status="completed", reward=value, reward_valid=value is not None, cost_usd=cost)
        for seed, value in enumerate(rewards)
    ]


def test_a_summary_is_over_what_counts() -> None:
    found = summary_of(ended(0.0, None, 1.0, cost=0.5), n_total=4)

    assert (found.mean_reward, found.n_valid, found.n_infra, found.n_total, found.coverage) == (0.5, 2, 1, 4, 0.5)
    assert (found.total_cost_usd, found.total_tokens) == (1.5, None)
    nothing = summary_of([])
    assert (nothing.mean_reward, nothing.interval, nothing.coverage, nothing.total_cost_usd) == (None, None, 0.0, None)


def test_a_reward_that_does_not_count_is_not_in_the_mean() -> None:
    doubtful = SeedResult(seed=2, status="failed", reward=0.0, reward_valid=False)

    assert summary_of([*ended(1.0, 1.0), doubtful]).mean_reward == 1.0


def test_a_task_app_that_is_gone_is_an_error_at_once() -> None:
    def of(seeds: Sequence[int]) -> list[TaskInfo]:
        return [TaskInfo(task=TaskDescription(id=str(seed), name=str(seed))) for seed in seeds]

    config = LocalAPIConfig(app_id="tests", provide_task_instances=of)
    with pytest.raises((ConfigError, HarborError), match="has nothing that runs a rollout"):
        EvalJob(EvalJobConfig(task_app_url=config, seeds=[1]))
