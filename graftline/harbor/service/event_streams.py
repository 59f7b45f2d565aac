"""What becomes of rollouts and jobs, as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

Events are worked out from what the database holds, so that their numbers are the same whoever is asked, and whoever was
away misses none.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fastapi.concurrency import run_in_threadpool

from graftline.harbor.service.job_schemas import EvalJobView, JobStatus, PromptJobView
from graftline.harbor.service.rollout_queue import OPEN
from graftline.harbor.service.schemas import RolloutView
from graftline.harbor.service.waiting import LOOKS_EVERY_S

_SILENCE = 30
"""Looks without news after which a comment is sent, so that nobody on the way takes the connection for dead."""
_OPEN_JOBS = (JobStatus.PENDING, JobStatus.RUNNING)


class Event(NamedTuple):
    """One event; numbers rise."""

    number: int
    kind: str
    data: dict[str, Any]


class Told(NamedTuple):
    """All events so far."""

    events: list[Event]
    is_over: bool


def of_rollout(view: RolloutView) -> Told:
    """Return what became of a rollout."""
    found: list[tuple[str, dict[str, Any]]] = [("queued", {"at": view.created_at.isoformat()})]
    for attempt in view.attempts:
        found.append(("attempt.started", {"number": attempt.number, "at": attempt.started_at.isoformat()}))
        if attempt.finished_at is not None:
            fields = {"number", "reward", "success_status", "failure_cause", "error"}
            ended = attempt.model_dump(mode="json", include=fields)
            found.append(("attempt.ended", {**ended, "at": attempt.finished_at.isoformat()}))
    if view.status not in OPEN and view.finished_at is not None:
        fields = {"status", "reward", "reward_valid", "success_status", "failure_cause", "error"}
        data = {**view.model_dump(mode="json", include=fields), "at": view.finished_at.isoformat()}
        found.append((f"rollout.{view.status}", data))
    return Told([Event(number, *one) for number, one in enumerate(found, 1)], view.status not in OPEN)


def of_evaluation(view: EvalJobView) -> Told:
    """Return how far an evaluation is; the number of an event is one more than that of the seeds that have ended."""
    counts = {"num_completed": view.num_completed, "num_total": view.num_total}
    events = [Event(view.num_completed + 1, "eval.progress", counts)]
    if view.status not in _OPEN_JOBS:
        data = {**counts, "status": view.status, "error": view.error, "mean_reward": view.summary.mean_reward}
        events.append(Event(view.num_total + 2, f"eval.{view.status}", data))
    return Told(events, view.status not in _OPEN_JOBS)


def of_prompt_job(view: PromptJobView, kept: Sequence[Mapping[str, Any]]) -> Told:
    """Return what became of a prompt optimization; `kept` is what happened after its creation."""
    events = [Event(1, "prompt_learning.created", {"at": view.created_at.isoformat()})]
    for number, event in enumerate(kept, 2):
        events.append(Event(number, f"prompt_learning.{event['kind']}", dict(event["data"])))
    return Told(events, view.status not in _OPEN_JOBS)


async def event_stream(look: Callable[[], Told], after: int, news: asyncio.Event) -> AsyncIterator[str]:
    """Yield the events after number `after`, as text, until there will be no more.

    Args:
        look: Returns all events so far.
        after: The last one that was seen.
        news: Is set when there may be more.
    """
    silence = 0
    while True:
        told = await run_in_threadpool(look)
        for event in told.events:
            if event.number > after:
                yield f"id: {event.number}\nevent: {event.kind}\ndata: {json.dumps(event.data)}\n\n"
                after, silence = event.number, 0
        if told.is_over:
            return
        silence += 1
        if silence % _SILENCE == 0:
            yield ": still there\n\n"
        with suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), LOOKS_EVERY_S)
            news.clear()
