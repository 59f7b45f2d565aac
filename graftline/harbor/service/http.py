"""What the routes have in common: parameters, refusals in the OpenAPI document, places in lists, server-sent events.

Events (https://html.spec.whatwg.org/multipage/server-sent-events.html) are worked out from what the database holds, so that
their numbers are the same whoever is asked, and whoever was away misses none.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from fastapi import Header, Query
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from sqlalchemy import Row, Select, Table, and_, or_

from graftline.harbor.messages import MAX_PAGE
from graftline.harbor.refusal import ProblemAnswer, RequestError

LOOKS_EVERY_S = 0.5
"""For the end of rollouts that another process runs."""
RETRY_AFTER_S = 5.0
_SILENCE = 30
"""Looks without news after which a comment is sent, so that nobody on the way takes the connection for dead."""
_STREAM = "text/event-stream"

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Cursor = Annotated[str | None, Query(pattern=r"^0x1\.[0-9a-f]{13}p\+[0-9]{2}~[a-z]{3}_[0-9a-f]{24}$")]
SeedCursor = Annotated[str | None, Query(pattern=r"^[0-9]{1,10}$")]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=255)]
LastEvent = Annotated[int, Header(alias="Last-Event-ID", ge=0, le=10_000_000)]
Prefer = Annotated[str | None, Header(max_length=100)]


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the refusals of a route, for the OpenAPI document."""
    return {status: {"model": ProblemAnswer} for status in (400, 401, 409, 413, 422, 503, *statuses)}


STREAMED: dict[str, Any] = {
    "response_class": StreamingResponse,
    "responses": {**problems(404), 200: {"content": {_STREAM: {"schema": {"type": "string"}}}}},
}
"""Of a route that answers with events."""


def check_same_request(row: Row[Any], key: str, request_digest: str) -> None:
    """Refuse a key that was used for something else."""
    if row.request_digest != request_digest:
        message = f"key {key[:80]!r}: was used for another request; send the same body, or take a new key"
        raise RequestError("idempotency_mismatch", message)


def newest_first(query: Select[Any], table: Table, cursor: str | None) -> Select[Any]:
    """Return `query` in the order of lists, from `cursor` on; the route sees to its form."""
    if cursor is not None:
        text, _, last = cursor.partition("~")
        at = float.fromhex(text)
        query = query.where(or_(table.c.created_at < at, and_(table.c.created_at == at, table.c.id < last)))
    return query.order_by(table.c.created_at.desc(), table.c.id.desc())


def cursor_after(rows: Sequence[Row[Any]], limit: int) -> str | None:
    """Return what names the place after a page; None after the last one."""
    return f"{rows[-1].created_at.hex()}~{rows[-1].id}" if len(rows) == limit else None


def at(moment: datetime | None) -> dict[str, str]:
    """Return what an event says of its time."""
    return {} if moment is None else {"at": moment.isoformat()}


class Events(NamedTuple):
    """All events so far: their kinds and what they say, numbered from 1 where no number is given."""

    events: Sequence[tuple[str, Mapping[str, Any]]]
    is_over: bool
    numbers: Sequence[int] | None = None


def stream_events(
    look: Callable[[], Events], after: int, listener: AbstractAsyncContextManager[asyncio.Event]
) -> StreamingResponse:
    """Return the answer that sends the events after number `after`; `listener` yields what is set when there may be more."""

    async def stream(after: int = after) -> AsyncIterator[str]:
        silence = 0
        async with listener as news:
            while True:
                events, is_over, numbers = await run_in_threadpool(look)
                for number, (kind, data) in zip(numbers or range(1, len(events) + 1), events, strict=True):
                    if number > after:
                        yield f"id: {number}\nevent: {kind}\ndata: {json.dumps(dict(data))}\n\n"
                        after, silence = number, 0
                if is_over:
                    return
                silence += 1
                if silence % _SILENCE == 0:
                    yield ": still there\n\n"
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), LOOKS_EVERY_S)
                    news.clear()

    return StreamingResponse(stream(), media_type=_STREAM, headers={"Cache-Control": "no-store"})
