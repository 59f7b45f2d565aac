"""The HTTP front of the embedded server: a request is answered by the adapter, or the bare model, that its `model` names.

llama.cpp knows adapters by number, ignores the name of a model, and answers with the bare model where no number is sent. So
it listens on a Unix socket behind this front, which puts numbers into requests and names back into responses. A model that
is not served is refused with 404 in OpenAI's shape; everything else goes through as it is.
"""

import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import anyio
import httpx
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

_MODELS = ("/v1/models", "/models")
_LORA = "/lora-adapters"
_APPLIES_ADAPTERS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses"),
    *("/chat/completions", "/completions", "/responses", "/completion", "/infill"),
)
"""Where llama.cpp reads which adapters a request is for. Elsewhere, as at `/v1/messages`, it drops that without a word."""
_OF_A_CONNECTION = (b"accept-encoding", b"connection", b"content-length", b"host", b"keep-alive", b"transfer-encoding")


class EmbeddedFront:
    """The ASGI application before the llama.cpp server that listens on the Unix socket `socket`.

    `base` names the bare model, `adapters` the folders of adapters, in the order of llama.cpp's numbers.
    """

    def __init__(self, socket: Path, base: str, adapters: Mapping[str, Path]) -> None:
        self._base, self._adapters = base, adapters
        # llama.cpp closes idle connections, and a request must not meet that
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as long as its client waits: llama.cpp stops working when the connection to it is closed."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        async with anyio.create_task_group() as group:
            group.start_soon(_wait_for_hang_up, receive, group.cancel_scope)
            await self._answer(request, body, send)
            group.cancel_scope.cancel()

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        path, name = request.url.path, self._base
        refusal: JSONResponse | None = None
        if path in _MODELS and request.method == "GET":
            refusal = JSONResponse({"object": "list", "data": self._models()})
        elif path == _LORA and request.method == "POST":
            refusal = _error(HTTPStatus.NOT_FOUND, "adapters are not switched for everybody; name one as `model`", "")
        elif isinstance(fields := _json(body), dict):
            name = self._base if fields.get("model") is None else fields["model"]
            refusal = self._refusal(path, name, fields)
            if path in _APPLIES_ADAPTERS and self._adapters:
                body = json.dumps({"cache_prompt": True, **fields, "lora": self._scales(name)}).encode()
        if refusal is not None:
            await refusal(request.scope, request.receive, send)
        else:
            await self._relay(request, body, name, send)

    def _refusal(self, path: str, name: Any, fields: Mapping[str, Any]) -> JSONResponse | None:
        served = [self._base, *self._adapters]
        if name not in served:
            message = f"The model `{name}` does not exist; served: {', '.join(served)}"
            return _error(HTTPStatus.NOT_FOUND, message, "model_not_found")
        if name != self._base and path not in _APPLIES_ADAPTERS:
            message = f"The model `{name}` is an adapter, which {path} cannot apply; use /v1/chat/completions"
            return _error(HTTPStatus.NOT_FOUND, message, "model_not_found")
        if "lora" in fields:
            message = f"`lora` is not taken; name the adapter as `model`: {', '.join(served)}"
            return _error(HTTPStatus.BAD_REQUEST, message, "invalid_value", "lora")
        return None

    def _models(self) -> list[dict[str, Any]]:
        """Return the served models as vLLM lists them."""
        common = {"object": "model", "created": 0, "owned_by": "graftline"}
        adapters = [
            {"id": name, **common, "root": str(folder), "parent": self._base} for name, folder in self._adapters.items()
        ]
        return [{"id": self._base, **common, "root": self._base, "parent": None}, *adapters]

    def _scales(self, name: str) -> list[dict[str, float]]:
        # of all: llama.cpp compares what a slot has read for other adapters only where a request names some
        return [{"id": number, "scale": float(adapter == name)} for number, adapter in enumerate(self._adapters)]

    async def _relay(self, request: Request, body: bytes, name: str, send: Send) -> None:
        """Send the request to llama.cpp, and what it responds to the client."""
        scope = request.scope
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        response = await self._transport.handle_async_request(
            httpx.Request(
                request.method,
                httpx.URL("http://llama.cpp", raw_path=scope["raw_path"] + query),
                headers=[header for header in request.headers.raw if header[0] not in _OF_A_CONNECTION],
                content=body,
                extensions={"timeout": {}},  # a request waits for a slot as long as its client does
            )
        )
        try:
            headers = [(key.lower(), value) for key, value in response.headers.raw]
            headers = [header for header in headers if header[0] not in _OF_A_CONNECTION]
            await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for piece in self._rename(response.aiter_raw(), name):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await response.aclose()

    async def _rename(self, pieces: AsyncIterator[bytes], name: str) -> AsyncIterator[bytes]:
        """Yield a response in which the model is called `name`; llama.cpp calls it by the name of the base."""
        # within a text the quotes would be escaped, so this is a key with its value
        before, after = (f'"model":{json.dumps(text, ensure_ascii=False)}'.encode() for text in (self._base, name))
        tail = b""
        async for piece in pieces:
            *lines, tail = (tail + piece).split(b"\n")
            if lines:
                yield b"".join(line.replace(before, after) + b"\n" for line in lines)
        yield tail.replace(before, after)


async def _wait_for_hang_up(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def _json(body: bytes) -> Any:
    """Return the value of a body; None where it is no JSON, which llama.cpp refuses itself."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _error(status: HTTPStatus, message: str, code: str, parameter: str = "model") -> JSONResponse:
    error = {"message": message, "type": "invalid_request_error", "param": parameter, "code": code or None}
    return JSONResponse({"error": error}, status)
