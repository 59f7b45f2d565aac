"""One rollout in this process: the handler is called, and however that ends there is an answer that says so.

A handler that raises, that takes too long or that returns no rollout has no reward; it never has the reward 0.
"""

import asyncio
import contextvars
import inspect
import json
import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from graftline.core.errors import ActorError, ConfigError, GraftlineError, HarborError, SandboxError
from graftline.harbor.contract import FailureCause, RolloutRequest, RolloutResponse, SuccessStatus
from graftline.harbor.refusal import RequestError
from graftline.harbor.results import read_result

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 64
"""Threads of handlers; those of handlers that took too long count until they end."""
_MAX_DETAIL = 2000
_OF_THE_CALLER = (404, 409, 422)
"""What a service answers to a request that would be refused again."""
_CAUSES = {
    SandboxError: FailureCause.SANDBOX_FAILED,
    ActorError: FailureCause.MODEL_PROVIDER_FAILED,
    HarborError: FailureCause.HARBOR_FAILED,
}


class Rollouts:
    """Calls one handler for many requests.

    `is_timed` says whether one that goes on for longer than the request allows is given up here; the thread of a plain
    one is left to itself, for threads cannot be ended.
    """

    def __init__(self, handler: Callable[..., Any], *, is_timed: bool = True, most_at_once: int = MOST_AT_ONCE) -> None:
        self._handler, self._is_timed = handler, is_timed
        self._takes_both = _parameters(handler) > 1
        self._free = asyncio.Semaphore(most_at_once)

    async def response(self, request: RolloutRequest, fastapi_request: Any) -> RolloutResponse:
        """Return how the rollout ended. Raises RequestError where the handler refuses the request."""
        arguments = (request, fastapi_request) if self._takes_both else (request,)
        work = partial(self._handler, *arguments)
        limit_s = request.safety.max_time_s if self._is_timed else None
        bound = asyncio.timeout(None)
        try:
            if is_async(self._handler):
                async with asyncio.timeout(limit_s) as bound:
                    returned = await work()
            else:
                # who waits for a thread is not yet at work: the time starts afterwards
                await self._free.acquire()
                thread = asyncio.ensure_future(_in_thread(work))
                thread.add_done_callback(self._release)
                async with asyncio.timeout(limit_s) as bound:
                    returned = await asyncio.shield(thread)
                    if inspect.isawaitable(returned):
                        returned = await returned
        except RequestError:
            raise
        except (Exception, SystemExit) as error:
            if bound.expired():
                limit = f"safety.max_time_s of {request.safety.max_time_s:g} s"
                return RolloutResponse.without_reward(
                    request.trace_correlation_id,
                    SuccessStatus.TIMEOUT,
                    f"the rollout was not done within {limit}; give it longer",
                    FailureCause.AGENT_EXHAUSTED_BUDGET,
                )
            if isinstance(error, HarborError) and error.status in _OF_THE_CALLER:
                raise RequestError("refused", str(error), status=error.status) from None
            return failure_response(request.trace_correlation_id, error)
        return response_of(returned, request.trace_correlation_id)

    def _release(self, thread: "asyncio.Future[Any]") -> None:
        self._free.release()
        if not thread.cancelled():
            # of one that was given up nobody else asks
            thread.exception()


def failure_response(trace_correlation_id: str, error: BaseException) -> RolloutResponse:
    """Return the answer to a rollout that ended with `error`; only what we raise on purpose is quoted."""
    if isinstance(error, GraftlineError):
        logger.warning("rollout %r: %s", trace_correlation_id, error)
        detail = str(error)[:_MAX_DETAIL]
    else:
        logger.error("rollout %r failed", trace_correlation_id, exc_info=error)
        detail = f"the rollout handler failed ({type(error).__name__}); the log of the task app says where"
    cause = next((cause for kind, cause in _CAUSES.items() if isinstance(error, kind)), FailureCause.UNCLASSIFIED)
    return RolloutResponse.without_reward(trace_correlation_id, SuccessStatus.RUNTIME_ERROR, detail, cause)


def response_of(returned: Any, trace_correlation_id: str) -> RolloutResponse:
    """Return what a handler returned as an answer: read as an executor reads the result of an entrypoint."""

    def unfit(detail: str) -> RolloutResponse:
        return RolloutResponse.without_reward(
            trace_correlation_id, SuccessStatus.RUNTIME_ERROR, detail, FailureCause.UNCLASSIFIED
        )

    if not isinstance(returned, RolloutResponse | Mapping):
        kind = type(returned).__name__
        return unfit(f"the rollout handler returned {kind}, not a RolloutResponse or a dictionary of one")
    try:
        content = returned.model_dump(mode="json") if isinstance(returned, RolloutResponse) else dict(returned)
        raw = json.dumps(content, ensure_ascii=False).encode()
        # refuses what is deeper than 200 levels, which could not be answered
        from_json(raw)
    except (TypeError, ValueError, RecursionError) as error:
        return unfit(f"what the rollout handler returned cannot be written as JSON ({type(error).__name__})")
    outcome = read_result(raw)
    reward_info = outcome.result.get("reward_info")
    information = dict(reward_info) if isinstance(reward_info, Mapping) else {}
    if outcome.reward is None:
        # numbers beside a reward that does not count would be taken for it
        information.pop("outcome_objectives", None)
    try:
        return RolloutResponse.model_validate(
            {
                **outcome.result,
                "trace_correlation_id": trace_correlation_id,
                "reward_info": {**information, "outcome_reward": outcome.reward, "details": outcome.details},
                "success_status": outcome.success_status,
                "failure_cause": outcome.failure_cause,
                "status_detail": outcome.error or None,
            }
        )
    except ValidationError as error:
        fields = sorted({".".join(map(str, fault["loc"])) for fault in error.errors(include_input=False)})
        return unfit(f"what the rollout handler returned is no RolloutResponse; mend {', '.join(fields[:8])}")


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` gives a coroutine."""
    if isinstance(function, partial):
        return is_async(function.func)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what `function` returns: awaited, or from a thread."""
    if is_async(function):
        return await function(*arguments)
    returned = await _in_thread(partial(function, *arguments))
    return await returned if inspect.isawaitable(returned) else returned


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a thread of its own, which keeps no process from ending."""
    ended: Future[tuple[Any, BaseException | None]] = Future()
    ended.set_running_or_notify_cancel()

    def run() -> None:
        # as a value: futures take some exceptions for their own
        try:
            ended.set_result((work(), None))
        except BaseException as error:
            ended.set_result((None, error))

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="rollout", daemon=True).start()
    returned, error = await asyncio.wrap_future(ended)
    if error is None:
        return returned
    if isinstance(error, Exception):
        raise error
    # an exit that a handler asks for is not that of the server
    raise RuntimeError(f"raised {type(error).__name__}") from error


def _parameters(handler: Callable[..., Any]) -> int:
    """Return how many arguments a handler is called with: 1 or 2."""
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return 2
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    placed = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in placed if parameter.default is parameter.empty]
    if not placed or len(required) > 2:
        raise ConfigError(
            f"rollout: takes {len(required)} arguments; it is called with a RolloutRequest and, if it has a second"
            " parameter, FastAPI's request"
        )
    return min(len(placed), 2)
