"""Rollouts of a task app on a Harbor deployment.

A rollout is a resource of the service: it is asked for once, under the `trace_correlation_id` of the request, and looked at
until it has ended. No connection is held meanwhile, and the same request asked for again, after whatever was broken off, is
the same rollout. What fails without saying anything of the agent is an answer without a reward, with its cause; a request
that the service refuses is an error.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from pydantic import ValidationError

from graftline.core.errors import HarborError
from graftline.harbor import event_loop
from graftline.harbor.address import HarborDeploymentRef, deployment_path
from graftline.harbor.client import HarborAPIError, HarborClient, HarborTimeoutError, RetryPolicy
from graftline.harbor.contract import (
    MAX_TIMEOUT_S,
    FailureCause,
    RolloutEnv,
    RolloutPolicy,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskInfo,
)
from graftline.harbor.event_loop import blocking
from graftline.harbor.instances import HarborInstanceProvider
from graftline.harbor.messages import HarborDeploymentStatus, RolloutAnswer, RolloutStatus, read

logger = logging.getLogger(__name__)

ROLLOUTS = "/api/harbor/rollouts"
_ENDED = frozenset({"completed", "failed", "cancelled"})
_QUEUED = "queued"
_FIRST_POLL_S, _LONGEST_POLL_S, _GROWTH = 0.02, 2.0, 1.4
_CANCEL_S = 5.0
_QUEUE_S = 3600.0
"""So long a rollout may wait until it is begun."""
_UNREACHABLE_S, _MOST_FAILURES = 120.0, 20
"""A service that is started again loses nothing, so it is waited for; while it has a rollout, also one that fails."""


class HarborExecutionBackend:
    """Runs the rollouts of one deployment: `await backend(request)`; and is a `TaskAppClient` of it."""

    def __init__(
        self,
        deployment_ref: HarborDeploymentRef,
        timeout: float = 600.0,
        max_retries: int = 2,
        grace_s: float = 600.0,
        allow_http: bool = False,
        instance_provider: HarborInstanceProvider | None = None,
    ) -> None:
        """Take the deployment; nothing is asked yet.

        Args:
            deployment_ref: Which deployment.
            timeout: Seconds that one rollout may take; the service ends it then, the client waits for longer.
            max_retries: How often a call is tried again while the service fails; one that is busy is not counted.
            grace_s: Beyond `timeout`: for verification, and for a worker that was lost.
            allow_http: Whether the key may go to another machine unencrypted.
            instance_provider: Knows the tasks of seeds; one of the deployment where it is not given.
        """
        self.deployment_ref = deployment_ref
        self._provider = instance_provider or HarborInstanceProvider(deployment_ref, allow_http=allow_http)
        self._timeout_s, self._grace_s = timeout, grace_s
        self.client = HarborClient.of_deployment(deployment_ref, allow_http=allow_http)
        self._creation_policy = RetryPolicy(timeout_s=_QUEUE_S, unreachable_s=_UNREACHABLE_S, max_retries=max_retries)
        self._poll_policy = self._creation_policy._replace(max_retries=_MOST_FAILURES)

    async def __call__(self, request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
        """As `execute_async`; the request of the web framework is for handlers of another kind."""
        return await self.execute_async(request)

    async def execute_async(self, request: RolloutRequest) -> RolloutResponse:
        """Return how the rollout ended; canceled, it is canceled at the service as well.

        Raises:
            HarborAPIError: the service refuses the request: no such deployment, no such seed, another body before.
        """
        rollout_id = ""
        try:
            async with self.client.session():
                answer = await self._create(request)
                rollout_id = answer.rollout_id
                answer = await self._wait_for_end(answer)
        except asyncio.CancelledError:
            await self._give_up(rollout_id)
            raise
        except HarborError as error:
            if isinstance(error, HarborAPIError) and is_refusal(error):
                raise
            is_late = isinstance(error, HarborTimeoutError)
            if is_late:
                await self._give_up(rollout_id)
            status = SuccessStatus.TIMEOUT if is_late else SuccessStatus.NETWORK_ERROR
            return RolloutResponse.without_reward(
                request.trace_correlation_id, status, str(error), rollout_id=rollout_id
            )
        return _response(request, answer)

    async def check_deployment_ready_async(self) -> HarborDeploymentStatus:
        """Return the status of the deployment if it is ready.

        Raises:
            HarborError: it is not, or the service does not say.
        """
        name = self.deployment_ref.deployment_id
        content = await self.client.request_async("GET", f"{deployment_path(name)}/status")
        status = read(HarborDeploymentStatus, content, f"status of deployment {name!r}")
        if status.status != "ready":
            reason = f" ({status.error})" if status.error else ""
            raise HarborError(f"deployment {name!r}: is {status.status!r}{reason}; wait until it is 'ready'")
        return status

    execute = blocking(execute_async)
    check_deployment_ready = blocking(check_deployment_ready_async)
    rollout = execute_async

    @property
    def url(self) -> str:
        """The deployment as a task app."""
        return self.deployment_ref.task_app_url

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the task of every seed, in their order."""
        return await self._provider.task_info_async(seeds)

    async def health(self) -> Mapping[str, Any]:
        """Return the status of the deployment if it is ready."""
        return (await self.check_deployment_ready_async()).model_dump(mode="json", include={"status", "name"})

    async def _create(self, request: RolloutRequest) -> RolloutAnswer:
        body = request.model_dump(mode="json")
        # the service ends it before the client stops waiting
        body["safety"]["max_time_s"] = min(request.safety.max_time_s, self._timeout_s)
        body["deployment_id"] = self.deployment_ref.deployment_id
        title = f"rollout {request.trace_correlation_id!r}"
        try:
            content = await self.client.request_async(
                "POST",
                ROLLOUTS,
                body,
                idempotency_key=request.trace_correlation_id,
                patience=self._creation_policy,
            )
        except HarborAPIError as error:
            rollout_id = error.details.get("rollout_id")
            if error.status_code != HTTPStatus.CONFLICT or not isinstance(rollout_id, str):
                raise
            # the same request is at work already
            content = await self.client.request_async("GET", f"{ROLLOUTS}/{rollout_id}")
        return read(RolloutAnswer, content, title)

    async def _wait_for_end(self, answer: RolloutAnswer) -> RolloutAnswer:
        """Return the rollout when it has ended; every attempt of the service has its own time."""
        path, pause_s = f"{ROLLOUTS}/{answer.rollout_id}", _FIRST_POLL_S
        stage, deadline = _stage(answer), time.monotonic() + self._longest_s(answer)
        while answer.status not in _ENDED:
            # not all at the same moment
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.0))
            pause_s = min(pause_s * _GROWTH, _LONGEST_POLL_S)
            content = await self.client.request_async("GET", path, patience=self._poll_policy)
            answer = read(RolloutAnswer, content, f"rollout {answer.rollout_id!r}")
            if _stage(answer) != stage:
                stage, deadline = _stage(answer), time.monotonic() + self._longest_s(answer)
            if time.monotonic() > deadline and answer.status not in _ENDED:
                raise HarborTimeoutError(
                    f"rollout {answer.rollout_id!r}: is {answer.status!r} still after {self._longest_s(answer):g} s; "
                    "it was cancelled"
                )
        return answer

    def _longest_s(self, answer: RolloutAnswer) -> float:
        return _QUEUE_S if answer.status == _QUEUED else self._timeout_s + self._grace_s

    async def _give_up(self, rollout_id: str) -> None:
        """Cancel a rollout that nobody waits for; of one whose id is not known, the service ends it in time."""
        if not rollout_id:
            return
        with suppress(HarborError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self.client.request_async("POST", f"{ROLLOUTS}/{rollout_id}/cancel", idempotency_key=rollout_id)


def _stage(answer: RolloutAnswer) -> tuple[bool, int]:
    return answer.status == _QUEUED, len(answer.attempts)


def is_refusal(error: HarborAPIError) -> bool:
    """Return whether the caller has to mend something, rather than the service."""
    is_of_the_caller = HTTPStatus.BAD_REQUEST <= error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    return is_of_the_caller and error.status_code not in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def _response(request: RolloutRequest, answer: RolloutAnswer) -> RolloutResponse:
    try:
        answered = RolloutResponse.model_validate(answer.response) if answer.response is not None else None
    except ValidationError as error:
        key = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        logger.warning("rollout %s: the answer cannot be read at %s", answer.rollout_id, key)
        answered = None
    if answered is None:
        cause = FailureCause.CANCELLED if answer.status == "cancelled" else _cause(answer)
        reason = answer.error or f"the rollout is {answer.status!r}, and the service says no more of it"
        return RolloutResponse.without_reward(
            request.trace_correlation_id, SuccessStatus.RUNTIME_ERROR, reason, cause, answer.rollout_id
        )
    facts = {
        "rollout_id": answer.rollout_id,
        "instance_id": answer.instance_id,
        "cost_usd": answer.cost_usd,
        "tokens": answer.tokens,
        "attempts": len(answer.attempts),
    }
    answered.metadata = {**facts, **answered.metadata}
    return answered


def _cause(answer: RolloutAnswer) -> FailureCause:
    try:
        return FailureCause(answer.failure_cause or FailureCause.HARBOR_FAILED)
    except ValueError:
        # of a newer service
        return FailureCause.UNCLASSIFIED


def run_rollouts(
    ref: HarborDeploymentRef,
    seeds: Sequence[int],
    policy: Mapping[str, Any],
    at_once: int = 8,
    on_ended: Callable[[RolloutAnswer], None] = lambda rollout: None,
) -> list[RolloutAnswer]:
    """Return a rollout of every seed as the service shows it when it has ended, in their order; `policy` is its `config`.

    Raises:
        HarborError: the service refuses one of them; those that go on are cancelled.
    """
    # the deployment says for itself how long a rollout may take
    backend = HarborExecutionBackend(ref, timeout=float(MAX_TIMEOUT_S))
    # of another run of the same command the names differ, so that it asks for rollouts of its own
    run_id, places = uuid4().hex, asyncio.Semaphore(at_once)

    async def run_seed(seed: int) -> RolloutAnswer:
        request = RolloutRequest(
            trace_correlation_id=f"run-{run_id}-s{seed}",
            env=RolloutEnv(seed=seed),
            policy=RolloutPolicy(config=dict(policy)),
        )
        async with places:
            rollout = await _run(backend, request)
            on_ended(rollout)
            return rollout

    async def run_all() -> list[RolloutAnswer]:
        async with backend.client.session():
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(run_seed(seed)) for seed in seeds]
            except BaseExceptionGroup as group_error:
                # the first refusal says it; the others are of the same kind
                raise group_error.exceptions[0] from None
        return [task.result() for task in tasks]

    return event_loop.run(run_all())


async def _run(backend: HarborExecutionBackend, request: RolloutRequest) -> RolloutAnswer:
    response = await backend.execute_async(request)
    if rollout_id := response.metadata.get("rollout_id"):
        content = await backend.client.request_async("GET", f"{ROLLOUTS}/{rollout_id}")
        return read(RolloutAnswer, content, f"rollout {rollout_id!r}")
    # the service never had it
    return RolloutAnswer(
        seed=request.seed,
        trace_correlation_id=request.trace_correlation_id,
        status=RolloutStatus.FAILED,
        success_status=response.success_status,
        failure_cause=response.failure_cause,
        error=response.status_detail,
    )
