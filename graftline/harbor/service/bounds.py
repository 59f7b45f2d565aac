"""What stands before the routes: the size of a body, and the key of whoever asks."""

import secrets
from collections.abc import Iterable
from contextlib import suppress

from pydantic import SecretStr
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from graftline.harbor.refusal import RequestError, problem_response

_BEARER = "bearer "
_OPEN = frozenset({"/health", "/openapi.json", "/docs"})


class Bounds:
    """Refuses bodies that are too large, while they arrive, and requests without a key."""

    def __init__(self, app: ASGIApp, keys: Iterable[SecretStr], most_bytes: int) -> None:
        self._app, self._most = app, most_bytes
        self._keys = [key.get_secret_value().encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope)
        if scope["path"] not in _OPEN and not self._is_known(request):
            # neither what was sent nor what is expected is said
            refused = RequestError("unauthorized", "a key is needed: send it as Authorization: Bearer, or as X-API-Key")
            await problem_response(refused)(scope, receive, send)
            return
        length = request.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._most:
            await problem_response(self._too_large())(scope, receive, send)
            return
        received, is_too_large = 0, False

        async def bounded() -> Message:
            nonlocal received, is_too_large
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._most:
                is_too_large = True
                return {"type": "http.disconnect"}
            return message

        async def answered(message: Message) -> None:
            if not is_too_large:  # what is said to half a body is not what is wrong
                await send(message)

        with suppress(ClientDisconnect):
            await self._app(scope, bounded, answered)
        if is_too_large:
            await problem_response(self._too_large())(scope, receive, send)

    def _is_known(self, request: HTTPConnection) -> bool:
        header = request.headers.get("authorization", "")
        sent = header[len(_BEARER) :] if header.lower().startswith(_BEARER) else request.headers.get("x-api-key", "")
        given = sent.strip().encode("utf-8", "replace")
        # all of them are compared, so that time does not tell which one is nearly right
        return any([secrets.compare_digest(given, key) for key in self._keys])

    def _too_large(self) -> RequestError:
        return RequestError("too_large", f"the body is too large; {self._most} bytes are accepted")
