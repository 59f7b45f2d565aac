"""Server-sent events of a service (https://html.spec.whatwg.org/multipage/server-sent-events.html), past broken connections.

A stream that breaks off is asked for again from the event after the last one (`Last-Event-ID`), so that none is missed and
none comes twice.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

from graftline.core.errors import HarborError
from graftline.harbor.client import HarborAPIError, HttpClient

_MOST_BYTES = 1 << 20
"""Of one event."""
_TRIES = 5
"""Without an event in between."""
_PAUSE_S = 0.2


class ServerEvent(NamedTuple):
    """Something that happened."""

    kind: str
    data: Any
    """Of its JSON; its text where it is none."""
    id: str


async def server_events(
    client: HttpClient, path: str, is_last: Callable[[ServerEvent], bool]
) -> AsyncGenerator[ServerEvent, None]:
    """Yield the events at `path`, up to the first one that `is_last` holds of.

    Raises:
        HarborAPIError: the service refuses.
        HarborError: the stream breaks off again and again.
    """
    last_id = ""
    fault, tries = HarborError(f"{client.url}{path}: the events end before the last one"), 0
    while tries < _TRIES:
        headers = {"accept": "text/event-stream", **({"last-event-id": last_id} if last_id else {})}
        try:
            async with aclosing(client.stream(path, headers)) as pieces:
                async for event in _events(pieces):
                    last_id, tries = event.id or last_id, 0
                    yield event
                    if is_last(event):
                        return
        except HarborAPIError:
            raise
        except HarborError as error:
            fault = error
        tries += 1
        await asyncio.sleep(_PAUSE_S * tries)
    raise fault


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[ServerEvent]:
    fields: dict[str, str] = {}
    async for line in _lines(pieces):
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields['data']}\n{value}" if name == "data" and "data" in fields else value
            if sum(map(len, fields.values())) > _MOST_BYTES:
                raise HarborError(f"an event has more than {_MOST_BYTES} bytes")
        else:
            if "data" in fields:
                yield ServerEvent(fields.get("event", "message"), _data(fields["data"]), fields.get("id", ""))
            fields = {}


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[str]:
    remainder = b""
    async for piece in pieces:
        *lines, remainder = (remainder + piece).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", "replace").rstrip("\r")
        if len(remainder) > _MOST_BYTES:
            raise HarborError(f"an event has more than {_MOST_BYTES} bytes")


def _data(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
