"""What becomes of a rollout, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Events are worked out from what the database holds of a rollout, so that their numbers are the same whoever is asked, and
whoever was away misses none.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi.concurrency import run_in_threadpool

from graftline.harbor.service.notices import Notices
from graftline.harbor.service.rollout_queue import OPEN
from graftline.harbor.service.rollout_requests import Rollouts
from graftline.harbor.service.schemas import RolloutView
from graftline.harbor.service.waiting import LOOKS_EVERY_S

_SILENCE = 30
"""Looks without news after which a comment is sent, so that nobody on the way takes the connection for dead."""


def events_of(view: RolloutView) -> list[tuple[str, dict[str, Any]]]:
    """Return the kinds and data of all events of a rollout so far, in their order."""
    found: list[tuple[str, dict[str, Any]]] = [("queued", {"at": view.created_at.isoformat()})]
    for attempt in view.attempts:
        found.append(("attempt.started", {"number": attempt.number, "at": attempt.started_at.isoformat()}))
        if attempt.finished_at is not None:
            ended = attempt.model_dump(
                mode="json", include={"number", "reward", "success_status", "failure_cause", "error"}
            )
            found.append(("attempt.ended", {**ended, "at": attempt.finished_at.isoformat()}))
    if view.status not in OPEN and view.finished_at is not None:
        fields = {"status", "reward", "reward_valid", "success_status", "failure_cause", "error"}
        data = {**view.model_dump(mode="json", include=fields), "at": view.finished_at.isoformat()}
        found.append((f"rollout.{view.status}", data))
    return found


async def event_stream(rollout_id: str, after: int, rollouts: Rollouts, notices: Notices) -> AsyncIterator[str]:
    """Yield the events after number `after`, as text, until the rollout has ended."""
    silence = 0
    async with notices.of(rollout_id) as event:
        while True:
            view = await run_in_threadpool(rollouts.get, rollout_id)
            found = events_of(view)
            for number, (kind, data) in enumerate(found[after:], after + 1):
                yield f"id: {number}\nevent: {kind}\ndata: {json.dumps(data)}\n\n"
                silence = 0
            after = max(after, len(found))
            if view.status not in OPEN:
                return
            silence += 1
            if silence % _SILENCE == 0:
                yield ": still there\n\n"
            try:
                await asyncio.wait_for(event.wait(), LOOKS_EVERY_S)
            except TimeoutError:
                continue
