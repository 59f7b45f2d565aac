"""What the routes of rollouts call."""

import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from graftline.core.hashing import digest
from graftline.harbor.contract import RolloutRequest
from graftline.harbor.refusal import RequestError, not_found
from graftline.harbor.service import deployments as stored
from graftline.harbor.service import rollout_queue, views
from graftline.harbor.service.database import is_taken
from graftline.harbor.service.lookups import (
    RETRY_AFTER_S,
    Parts,
    check_runs,
    cursor_after,
    deployment_of,
    mismatch,
    place_of,
    task_ids,
)
from graftline.harbor.service.rollout_workers import never_ran
from graftline.harbor.service.schemas import (
    LegacyRollout,
    RolloutPage,
    RolloutStatus,
    RolloutView,
)
from graftline.harbor.service.tables import rollouts


class Rollouts:
    """Rollouts; safe to be called from many threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def add(self, id_or_name: str, asked: RolloutRequest, key: str | None) -> RolloutView:
        """Queue a rollout, or find the one that was asked for with the same key."""
        _check_overrides(asked)
        request = asked.model_dump(mode="json", exclude={"deployment_id"})
        try:
            view = self._add(id_or_name, asked, request, key)
        except IntegrityError as error:
            if not is_taken(error):
                raise
            # somebody asked for it at the same time, over another connection: now it is there
            view = self._add(id_or_name, asked, request, key)
        self._parts.workers.wake()
        return view

    def _add(self, id_or_name: str, asked: RolloutRequest, request: Mapping[str, Any], key: str | None) -> RolloutView:
        used, sha256 = key if key is not None else asked.trace_correlation_id, digest(request)
        with self._parts.database.writing() as connection:
            deployment = deployment_of(connection, id_or_name)
            [task_id] = task_ids(deployment, [asked.seed])
            known = rollout_queue.find_key(connection, deployment.id, used)
            if known is not None:
                if known.request_digest != sha256:
                    raise mismatch(used)
                return views.rollout_view(known)
            check_runs(connection, deployment)
            self._check_room(connection, deployment.id)
            [turn] = rollout_queue.next_turns(connection, deployment.id, 1)
            row = {
                "id": stored.new_id("rol"),
                "deployment_id": deployment.id,
                "key": used,
                "request_digest": sha256,
                "trace_correlation_id": asked.trace_correlation_id,
                "seed": asked.seed,
                "task_id": task_id,
                "request": request,
                "status": RolloutStatus.QUEUED,
                "flow": deployment.id,
                "turn": turn,
                "created_at": time.time(),
            }
            return views.rollout_view(rollout_queue.add_one(connection, row))

    def _check_room(self, connection: Connection, flow: str) -> None:
        everyone, own = rollout_queue.counts_of_waiting(connection, flow)
        if everyone >= self._parts.settings.queued or own >= self._parts.settings.queued_of_one:
            message = f"the queue is full: {everyone} rollouts wait, {own} of this deployment; ask again later"
            raise RequestError("queue_full", message, retry_after_s=RETRY_AFTER_S)

    def get(self, rollout_id: str) -> RolloutView:
        """Return a rollout with all its attempts."""
        with self._parts.database.reading() as connection:
            found = rollout_queue.find(connection, rollout_id)
            if found is None:
                raise not_found("rollout", rollout_id)
            return views.rollout_view(found, rollout_queue.attempts_at(connection, rollout_id))

    def is_over(self, rollout_id: str) -> bool:
        """Return whether a rollout has ended."""
        with self._parts.database.reading() as connection:
            return rollout_queue.status_of(connection, rollout_id) not in rollout_queue.OPEN

    def response(self, rollout_id: str) -> dict[str, Any]:
        """Return the synchronous shape of a rollout that has ended; of one that never ran it says why, without a reward."""
        with self._parts.database.reading() as connection:
            found = rollout_queue.find(connection, rollout_id)
        assert found is not None
        if found.response is not None:
            answer: dict[str, Any] = found.response
            return answer
        return never_ran(found)

    def page(self, deployment: str | None, status: RolloutStatus | None, limit: int, cursor: str | None) -> RolloutPage:
        """Return rollouts, newest first."""
        before = place_of(cursor)
        with self._parts.database.reading() as connection:
            of = None if deployment is None else deployment_of(connection, deployment).id
            found = rollout_queue.page(connection, limit, before, of, status)
        shown = [views.rollout_view(one, is_whole=False) for one in found]
        return RolloutPage(rollouts=shown, next_cursor=cursor_after(found[-1] if len(found) == limit else None))

    def cancel(self, rollout_id: str) -> RolloutView:
        """End a rollout: at once if it waits, soon if it runs, not at all if it has ended."""
        with self._parts.database.writing() as connection:
            if rollout_queue.find(connection, rollout_id) is None:
                raise not_found("rollout", rollout_id)
            rollout_queue.cancel(connection, rollouts.c.id == rollout_id, "it was cancelled")
        self._parts.workers.cancel([rollout_id])
        return self.get(rollout_id)


def legacy_request(asked: LegacyRollout) -> RolloutRequest:
    """Return what the first clients ask for as the unified contract has it."""
    sent = asked.model_dump(mode="json", exclude={"deployment_id", "seed", "limits"})
    timeout_s = asked.limits.get("timeout_s")
    is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool) and 0 < timeout_s <= 3600
    safety = {"max_time_s": float(timeout_s)} if is_number and timeout_s is not None else {}
    config = {"inference_url": asked.inference_url, **asked.params}
    return RolloutRequest.model_validate(
        {**sent, "env": {"seed": asked.seed}, "policy": {"config": config}, "safety": safety}
    )


def _check_overrides(asked: RolloutRequest) -> None:
    """Refuse what would be left out without a word."""
    if any(override.preflight_script is not None for override in asked.context_overrides):
        why = "nothing runs before the entrypoint but what is in the deployment; lay files, or make a new version"
        raise RequestError("preflight_script", f"context_overrides: hold a preflight_script, and {why}")
    if asked.override_bundle_id is not None:
        raise RequestError("override_bundle_id", "override_bundle_id: no bundles are kept; send context_overrides")
