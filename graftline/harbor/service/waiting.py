"""How long whoever asks for a rollout waits for its end (`Prefer`, RFC 7240), and what is answered then."""

import asyncio
import re
import time
from contextlib import suppress
from dataclasses import dataclass

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from graftline.harbor.service.notices import Notices
from graftline.harbor.service.rollout_requests import Rollouts
from graftline.harbor.service.schemas import RolloutView

LOOKS_EVERY_S = 0.5
"""For the end of rollouts that another process runs."""
_WAIT = re.compile(r"wait=([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the client asked for."""

    wait_s: float | None
    """None is as long as it takes."""


def wanted(prefer: str | None) -> Wanted:
    """Return what a header `Prefer` says."""
    if prefer is None:
        return Wanted(None)
    if found := _WAIT.search(prefer):
        return Wanted(float(found[1]))
    return Wanted(0.0 if "respond-async" in prefer else None)


async def answered(view: RolloutView, how: Wanted, rollouts: Rollouts, notices: Notices) -> JSONResponse:
    """Return the answer to a rollout that was asked for: how it ended, or 202 where that is not known in time."""
    if how.wait_s != 0.0 and await _is_over(view, how, rollouts, notices):
        return JSONResponse(await run_in_threadpool(rollouts.response, view.rollout_id))
    return JSONResponse(view.model_dump(mode="json"), 202, {"Location": f"/api/harbor/rollouts/{view.rollout_id}"})


async def _is_over(view: RolloutView, how: Wanted, rollouts: Rollouts, notices: Notices) -> bool:
    """Wait for the end of a rollout, and return whether it came in time."""
    deadline = None if how.wait_s is None else time.monotonic() + how.wait_s
    async with notices.of(view.rollout_id) as event:
        # it may have ended between its row and here
        while not await run_in_threadpool(rollouts.is_over, view.rollout_id):
            left = LOOKS_EVERY_S if deadline is None else min(LOOKS_EVERY_S, deadline - time.monotonic())
            if left <= 0:
                return False
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), left)
                return True
    return True
