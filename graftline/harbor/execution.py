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
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from graftline.core.errors import HarborError
from graftline.harbor import event_loop
from graftline.harbor.answers import HarborDeploymentStatus, RolloutAnswer, read
from graftline.harbor.client import HarborAPIError, HarborClient, HarborTimeoutError, Patience
from graftline.harbor.contract import FailureCause, RewardInfo, RolloutRequest, RolloutResponse, SuccessStatus
from graftline.harbor.deployment_ref import HarborDeploymentRef, deployment_path

logger = logging.getLogger(__name__)

ROLLOUTS = "/api/harbor/rollouts"
_ENDED = frozenset({"completed", "failed", "cancelled"})
_QUEUED = "queued"
_FIRST_POLL_S, _LONGEST_POLL_S, _GROWTH = 0.02, 2.0, 1.4
_CANCEL_S = 5.0
_UNREACHABLE_S, _MOST_FAILURES = 120.0, 20
"""A service that is started again loses nothing, so it is waited for; while it has a rollout, also one that fails."""


class HarborExecutionBackend:
    """Runs the rollouts of one deployment: `await backend(request)`."""

    def __init__(
        self,
        deployment_ref: HarborDeploymentRef,
        timeout: float = 600.0,
        max_retries: int = 2,
        grace_s: float = 600.0,
        queue_s: float = 3600.0,
        allow_http: bool = False,
    ) -> None:
        """Take the deployment; nothing is asked yet.

        Args:
            deployment_ref: Which deployment.
            timeout: Seconds that one rollout may take; the service ends it then, the client waits for longer.
            max_retries: How often a call is tried again while the service fails; one that is busy is not counted.
            grace_s: Beyond `timeout`: for verification, and for a worker that was lost.
            queue_s: Seconds that a rollout may wait until it is begun.
            allow_http: Whether the key may go to another machine unencrypted.
        """
        self.deployment_ref = deployment_ref
        self._timeout_s, self._grace_s, self._queue_s = timeout, grace_s, queue_s
        self.client = HarborClient.of_deployment(deployment_ref, allow_http=allow_http)
        self._of_creation = Patience(timeout_s=queue_s, unreachable_s=_UNREACHABLE_S, max_retries=max_retries)
        self._of_looks = self._of_creation._replace(max_retries=_MOST_FAILURES)

    async def __call__(self, request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
        """As `execute_async`; the request of the web framework is for handlers of another kind."""
        return await self.execute_async(request)

    def execute(self, request: RolloutRequest) -> RolloutResponse:
        """As `execute_async`, for callers that do not await; it works inside a running event loop too."""
        return event_loop.run(self.execute_async(request))

    async def execute_async(self, request: RolloutRequest) -> RolloutResponse:
        """Return how the rollout ended; cancelled, it is cancelled at the service as well.

        Raises:
            HarborAPIError: the service refuses the request: no such deployment, no such seed, another body before.
        """
        rollout = ""
        try:
            async with self.client.session():
                found = await self._created(request)
                rollout = found.rollout_id
                found = await self._ended(found)
        except asyncio.CancelledError:
            await self._give_up(rollout)
            raise
        except HarborTimeoutError as error:
            await self._give_up(rollout)
            return _without_reward(request, SuccessStatus.TIMEOUT, FailureCause.HARBOR_FAILED, str(error), rollout)
        except HarborAPIError as error:
            if is_refusal(error):
                raise
            return _without_reward(
                request, SuccessStatus.NETWORK_ERROR, FailureCause.HARBOR_FAILED, str(error), rollout
            )
        except HarborError as error:
            return _without_reward(
                request, SuccessStatus.NETWORK_ERROR, FailureCause.HARBOR_FAILED, str(error), rollout
            )
        return _response(request, found)

    def check_deployment_ready(self) -> HarborDeploymentStatus:
        """Return the status of the deployment if it is ready.

        Raises:
            HarborError: it is not, or the service does not say.
        """
        return event_loop.run(self.check_deployment_ready_async())

    async def check_deployment_ready_async(self) -> HarborDeploymentStatus:
        """As `check_deployment_ready`."""
        name = self.deployment_ref.deployment_id
        content = await self.client.request_async("GET", f"{deployment_path(name)}/status")
        status = read(HarborDeploymentStatus, content, f"status of deployment {name!r}")
        if status.status != "ready":
            said = f" ({status.error})" if status.error else ""
            raise HarborError(f"deployment {name!r}: is {status.status!r}{said}; wait until it is 'ready'")
        return status

    async def _created(self, request: RolloutRequest) -> RolloutAnswer:
        body = request.model_dump(mode="json")
        # the service ends it before the client stops waiting
        body["safety"]["max_time_s"] = min(request.safety.max_time_s, self._timeout_s)
        body["deployment_id"] = self.deployment_ref.deployment_id
        what = f"rollout {request.trace_correlation_id!r}"
        try:
            content = await self.client.request_async(
                "POST",
                ROLLOUTS,
                body,
                idempotency_key=request.trace_correlation_id,
                patience=self._of_creation,
            )
        except HarborAPIError as error:
            known = error.details.get("rollout_id")
            if error.status_code != HTTPStatus.CONFLICT or not isinstance(known, str):
                raise
            # the same request is at work already
            content = await self.client.request_async("GET", f"{ROLLOUTS}/{known}")
        return read(RolloutAnswer, content, what)

    async def _ended(self, found: RolloutAnswer) -> RolloutAnswer:
        """Return the rollout when it has ended; every attempt of the service has its own time."""
        path, pause_s = f"{ROLLOUTS}/{found.rollout_id}", _FIRST_POLL_S
        stage, deadline = _stage(found), time.monotonic() + self._longest_s(found)
        while found.status not in _ENDED:
            # not all at the same moment
            await asyncio.sleep(pause_s * random.uniform(0.8, 1.0))
            pause_s = min(pause_s * _GROWTH, _LONGEST_POLL_S)
            content = await self.client.request_async("GET", path, patience=self._of_looks)
            found = read(RolloutAnswer, content, f"rollout {found.rollout_id!r}")
            if _stage(found) != stage:
                stage, deadline = _stage(found), time.monotonic() + self._longest_s(found)
            if time.monotonic() > deadline and found.status not in _ENDED:
                raise HarborTimeoutError(
                    f"rollout {found.rollout_id!r}: is {found.status!r} still after {self._longest_s(found):g} s; "
                    "it was cancelled"
                )
        return found

    def _longest_s(self, found: RolloutAnswer) -> float:
        return self._queue_s if found.status == _QUEUED else self._timeout_s + self._grace_s

    async def _give_up(self, rollout_id: str) -> None:
        """Cancel a rollout that nobody waits for; of one that is not known by its id, the service ends it in time."""
        if not rollout_id:
            return
        with suppress(HarborError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self.client.request_async("POST", f"{ROLLOUTS}/{rollout_id}/cancel", idempotency_key=rollout_id)


def _stage(found: RolloutAnswer) -> tuple[bool, int]:
    return found.status == _QUEUED, len(found.attempts)


def is_refusal(error: HarborAPIError) -> bool:
    """Return whether the caller has to mend something, rather than the service."""
    is_of_the_caller = HTTPStatus.BAD_REQUEST <= error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    return is_of_the_caller and error.status_code not in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)


def _response(request: RolloutRequest, found: RolloutAnswer) -> RolloutResponse:
    try:
        answered = RolloutResponse.model_validate(found.response) if found.response is not None else None
    except ValidationError as error:
        where = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
        logger.warning("rollout %s: the answer cannot be read at %s", found.rollout_id, where)
        answered = None
    if answered is None:
        cause = FailureCause.CANCELLED if found.status == "cancelled" else _cause(found)
        said = found.error or f"the rollout is {found.status!r}, and the service says no more of it"
        return _without_reward(request, SuccessStatus.RUNTIME_ERROR, cause, said, found.rollout_id)
    facts = {
        "rollout_id": found.rollout_id,
        "instance_id": found.instance_id,
        "cost_usd": found.cost_usd,
        "tokens": found.tokens,
        "attempts": len(found.attempts),
    }
    answered.metadata = {**facts, **answered.metadata}
    return answered


def _cause(found: RolloutAnswer) -> FailureCause:
    try:
        return FailureCause(found.failure_cause or FailureCause.HARBOR_FAILED)
    except ValueError:
        # of a newer service
        return FailureCause.UNCLASSIFIED


def _without_reward(
    request: RolloutRequest, status: SuccessStatus, cause: FailureCause, detail: str, rollout_id: str
) -> RolloutResponse:
    return RolloutResponse(
        trace_correlation_id=request.trace_correlation_id,
        reward_info=RewardInfo(outcome_reward=None),
        success_status=status,
        failure_cause=cause,
        status_detail=detail,
        metadata={"rollout_id": rollout_id} if rollout_id else {},
    )
