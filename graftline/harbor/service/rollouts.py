"""Rollouts as clients see them: the routes, what is queued once, and how long whoever asks waits (`Prefer`, RFC 7240)."""

import asyncio
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from graftline.core.hashing import digest
from graftline.harbor.contract import MAX_TIMEOUT_S, RolloutRequest, RolloutResponse, counts
from graftline.harbor.messages import (
    OPEN_ROLLOUTS,
    AttemptAnswer,
    DeploymentRollout,
    LegacyRollout,
    ModelCalls,
    RolloutAnswer,
    RolloutCreate,
    RolloutPage,
    RolloutStatus,
)
from graftline.harbor.model_proxy.calls import call_lines
from graftline.harbor.refusal import RequestError, not_found
from graftline.harbor.service import queue
from graftline.harbor.service.attempts import response_without_attempt
from graftline.harbor.service.builds import check_runs
from graftline.harbor.service.database import is_duplicate
from graftline.harbor.service.deployments import find_deployment, instance_id, task_ids
from graftline.harbor.service.http import (
    LOOKS_EVERY_S,
    RETRY_AFTER_S,
    STREAMED,
    Cursor,
    Events,
    IdempotencyKey,
    LastEvent,
    Limit,
    Prefer,
    at,
    check_same_request,
    cursor_after,
    newest_first,
    problems,
    stream_events,
)
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import attempts, new_id, rollouts

_WAIT = re.compile(r"wait=([0-9]{1,5})", re.ASCII)
_TAIL_CHARACTERS = 4000
_AT = "/api/harbor/rollouts"


def rollout_routes(service: Service) -> APIRouter:
    """Return the routes of rollouts."""
    router = APIRouter()
    tags: list[str | Enum] = ["rollouts"]
    answers: dict[str, Any] = {
        "tags": tags,
        "response_model": RolloutResponse,
        "responses": {**problems(404, 429), 202: {"model": RolloutAnswer}},
    }

    async def answer(deployment: str, body: RolloutRequest, key: str | None, wait_s: float | None) -> Response:
        view = await run_in_threadpool(queue_rollout, service, deployment, body, key)
        if wait_s != 0.0 and await _wait_for_end(service, view.rollout_id, wait_s):
            return JSONResponse(await run_in_threadpool(rollout_response, service, view.rollout_id))
        return JSONResponse(view.model_dump(mode="json"), 202, {"Location": f"{_AT}/{view.rollout_id}"})

    @router.post("/api/harbor/deployments/{deployment}/rollout", **answers)
    async def rollout(
        deployment: str, body: DeploymentRollout, key: IdempotencyKey = None, prefer: Prefer = None
    ) -> Response:
        """Run a rollout and answer when it has ended; `Prefer: respond-async` or `wait=<s>` answers 202 before that."""
        return await answer(deployment, body, key, _seconds_of(prefer))

    @router.post("/api/harbor/rollout", **answers)
    async def legacy(body: LegacyRollout, key: IdempotencyKey = None, prefer: Prefer = None) -> Response:
        """Run a rollout as the first clients ask for it."""
        return await answer(body.deployment_id, _unify(body), key, _seconds_of(prefer))

    @router.post(_AT, tags=tags, status_code=202, response_model=RolloutAnswer, responses=problems(404, 429))
    async def create(body: RolloutCreate, key: IdempotencyKey = None) -> Response:
        """Queue a rollout; the same key with the same body is the same rollout."""
        return await answer(body.deployment_id, body, key, 0.0)

    @router.get(_AT, tags=tags, responses=problems(404))
    def rollout_list(
        deployment: Annotated[str | None, Query(max_length=128)] = None,
        status: RolloutStatus | None = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> RolloutPage:
        """List rollouts, newest first."""
        query = newest_first(select(rollouts), rollouts, cursor).limit(limit)
        if status is not None:
            query = query.where(rollouts.c.status == status)
        with service.database.reading() as connection:
            if deployment is not None:
                query = query.where(rollouts.c.deployment_id == find_deployment(connection, deployment).id)
            rows = connection.execute(query).all()
        views = [_view(row, lock={}, response=None) for row in rows]
        return RolloutPage(rollouts=views, next_cursor=cursor_after(rows, limit))

    @router.get(f"{_AT}/{{rollout_id}}", tags=tags, responses=problems(404))
    def one(rollout_id: str) -> RolloutAnswer:
        """Return a rollout with all its attempts."""
        return rollout_view(service, rollout_id)

    @router.get(f"{_AT}/{{rollout_id}}/calls", tags=tags, response_model=ModelCalls, responses=problems(404))
    def model_calls(rollout_id: str) -> Response:
        """Return what the last attempt asked of its model, as `model_proxy.calls` keeps it; nothing without a proxy."""
        view = rollout_view(service, rollout_id)
        number = view.attempts[-1].number if view.attempts else 0
        proxy = service.proxy
        lines = call_lines(proxy.sessions.path(view.rollout_id, number)) if proxy is not None and number else []
        return Response(b'{"calls":[%s]}' % b",".join(lines), media_type="application/json")

    @router.get(f"{_AT}/{{rollout_id}}/events", tags=tags, **STREAMED)
    async def events(rollout_id: str, last: LastEvent = 0) -> Response:
        """Send what becomes of a rollout as it happens, from the event after `Last-Event-ID` on."""
        await run_in_threadpool(rollout_view, service, rollout_id)
        listener = service.listeners.listen(rollout_id)
        return stream_events(lambda: _events_of(rollout_view(service, rollout_id)), last, listener)

    @router.post(f"{_AT}/{{rollout_id}}/cancel", tags=tags, responses=problems(404))
    def cancel(rollout_id: str) -> RolloutAnswer:
        """End a rollout: at once if it waits, soon if it runs, not at all if it has ended."""
        view = cancel_rollout(service, rollout_id)
        if view.finished_at is not None:
            service.listeners.notify(rollout_id)
        return view

    return router


def queue_rollout(service: Service, deployment: str, body: RolloutRequest, key: str | None) -> RolloutAnswer:
    """Queue a rollout, or return the one that was asked for with the same key."""
    if any(override.preflight_script is not None for override in body.context_overrides):
        reason = "nothing runs before the entrypoint but what is in the deployment; lay files, or make a new version"
        raise RequestError("preflight_script", f"context_overrides: hold a preflight_script, and {reason}")
    if body.override_bundle_id is not None:
        message = "override_bundle_id: no bundles are kept; send context_overrides"
        raise RequestError("override_bundle_id", message)
    request = body.model_dump(mode="json", exclude={"deployment_id"})
    try:
        view = _find_or_add(service, deployment, body, request, key)
    except IntegrityError as error:
        if not is_duplicate(error):
            raise
        # somebody asked for it at the same time, over another connection: now it is there
        view = _find_or_add(service, deployment, body, request, key)
    service.work.set()
    return view


def _find_or_add(
    service: Service, id_or_name: str, body: RolloutRequest, request: Mapping[str, Any], key: str | None
) -> RolloutAnswer:
    key, sha256, settings = body.trace_correlation_id if key is None else key, digest(request), service.settings
    with service.database.writing() as connection:
        deployment = find_deployment(connection, id_or_name)
        [task_id] = task_ids(deployment, [body.seed])
        query = select(rollouts).where(rollouts.c.deployment_id == deployment.id, rollouts.c.key == key)
        row = connection.execute(query).first()
        if row is not None:
            check_same_request(row, key, sha256)
            return _view(row)
        check_runs(connection, deployment)
        total, own = queue.count_waiting(connection, deployment.id)
        if total >= settings.queued or own >= settings.queued_of_one:
            message = f"the queue is full: {total} rollouts wait, {own} of this deployment; ask again later"
            raise RequestError("queue_full", message, retry_after_s=RETRY_AFTER_S)
        [turn] = queue.next_turns(connection, deployment.id, 1)
        values = {"deployment_id": deployment.id, "flow": deployment.id, "turn": turn, "key": key}
        values |= {"trace_correlation_id": body.trace_correlation_id, "seed": body.seed, "task_id": task_id}
        statement = insert(rollouts).values(**values, **new_rollout(request, sha256)).returning(rollouts)
        return _view(connection.execute(statement).one())


def new_rollout(request: Mapping[str, Any], request_digest: str) -> dict[str, Any]:
    """Return what a rollout that waits begins with."""
    values = {"id": new_id("rol"), "status": RolloutStatus.QUEUED, "created_at": time.time()}
    return {**values, "request": request, "request_digest": request_digest}


def find_rollout(connection: Connection, rollout_id: str) -> Row[Any]:
    """Return a rollout by its id."""
    row = connection.execute(select(rollouts).where(rollouts.c.id == rollout_id.replace("\0", ""))).first()
    if row is None:
        raise not_found("rollout", rollout_id)
    return row


def rollout_view(service: Service, rollout_id: str) -> RolloutAnswer:
    """Return a rollout with all its attempts."""
    with service.database.reading() as connection:
        row = find_rollout(connection, rollout_id)
        query = select(attempts).where(attempts.c.rollout_id == row.id).order_by(attempts.c.number)
        tries = [
            AttemptAnswer.from_row(attempt, log_tail=attempt.log[-_TAIL_CHARACTERS:])
            for attempt in connection.execute(query)
        ]
    return _view(row, attempts=tries, lock=row.lock or {})


def _view(row: Row[Any], **fields: Any) -> RolloutAnswer:
    return RolloutAnswer.from_row(
        row,
        rollout_id=row.id,
        instance_id=instance_id(row.deployment_id, row.seed),
        reward_valid=counts(row.reward, row.failure_cause),
        **{"attempts": [], "lock": row.lock or {}, **fields},
    )


def is_over(service: Service, rollout_id: str) -> bool:
    """Return whether a rollout that is there has ended."""
    with service.database.reading() as connection:
        query = select(rollouts.c.status).where(rollouts.c.id == rollout_id)
        status: str = connection.execute(query).scalar_one()
    return status not in OPEN_ROLLOUTS


def rollout_response(service: Service, rollout_id: str) -> dict[str, Any]:
    """Return the synchronous shape of a rollout that has ended; of one that never ran it says why, without a reward."""
    with service.database.reading() as connection:
        row = find_rollout(connection, rollout_id)
    return dict(row.response) if row.response is not None else response_without_attempt(row)


def cancel_rollout(service: Service, rollout_id: str) -> RolloutAnswer:
    """End a rollout: at once if it waits, soon if it runs, not at all if it has ended."""
    with service.database.writing() as connection:
        find_rollout(connection, rollout_id)
        queue.cancel(connection, rollouts.c.id == rollout_id, "it was cancelled")
    service.end_soon([rollout_id])
    return rollout_view(service, rollout_id)


def _unify(body: LegacyRollout) -> RolloutRequest:
    """Return what the first clients ask for as the unified contract has it."""
    request = body.model_dump(mode="json", exclude={"deployment_id", "seed", "limits"})
    timeout_s = body.limits.get("timeout_s")
    is_number = (
        isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and 0 < timeout_s <= MAX_TIMEOUT_S
    )
    safety = {"max_time_s": float(timeout_s)} if is_number and timeout_s is not None else {}
    config = {"inference_url": body.inference_url, **body.params}
    return RolloutRequest.model_validate(
        {**request, "env": {"seed": body.seed}, "policy": {"config": config}, "safety": safety}
    )


def _seconds_of(prefer: str | None) -> float | None:
    """Return how long a header `Prefer` says to wait; None is as long as it takes."""
    if prefer is None:
        return None
    if match := _WAIT.search(prefer):
        return float(match[1])
    return 0.0 if "respond-async" in prefer else None


async def _wait_for_end(service: Service, rollout_id: str, wait_s: float | None) -> bool:
    """Wait for the end of a rollout, and return whether it came in time."""
    deadline = None if wait_s is None else time.monotonic() + wait_s
    async with service.listeners.listen(rollout_id) as event:
        # it may have ended between its row and here
        while not await run_in_threadpool(is_over, service, rollout_id):
            pause_s = LOOKS_EVERY_S if deadline is None else min(LOOKS_EVERY_S, deadline - time.monotonic())
            if pause_s <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), pause_s)
                return True
    return True


def _events_of(view: RolloutAnswer) -> Events:
    events: list[tuple[str, dict[str, Any]]] = [("queued", at(view.created_at))]
    for attempt in view.attempts:
        events.append(("attempt.started", {"number": attempt.number, **at(attempt.started_at)}))
        if attempt.finished_at is not None:
            fields = {"number", "reward", "success_status", "failure_cause", "error"}
            end = attempt.model_dump(mode="json", include=fields)
            events.append(("attempt.ended", {**end, **at(attempt.finished_at)}))
    if view.status not in OPEN_ROLLOUTS and view.finished_at is not None:
        fields = {"status", "reward", "reward_valid", "success_status", "failure_cause", "error"}
        end = {**view.model_dump(mode="json", include=fields), **at(view.finished_at)}
        events.append((f"rollout.{view.status}", end))
    return Events(events, view.status not in OPEN_ROLLOUTS)
