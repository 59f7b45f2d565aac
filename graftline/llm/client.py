"""One actor over HTTP: a chat, a look, a call. The only place of this package that knows httpx.

Nothing is tried again here, and nothing is waited for shorter than the caller waits: the pool does both.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Literal

import httpx
import orjson
from pydantic import SecretStr

from graftline.core.errors import DataError
from graftline.core.web import retry_after_s, system_reason
from graftline.llm.base import ChatRequest, TokenUsage
from graftline.llm.fleet import Dialect

_MAX_ANSWER_BYTES = 8 << 20
_KEEP_ALIVE_S = 2.0
"""Servers close idle connections after 5 s; a request must not meet that."""


class FaultKind(StrEnum):
    """Of one try."""

    UNREACHABLE = "unreachable"
    """No connection; nothing was sent."""
    LIMITED = "limited"
    """429: it wants to be asked less often."""
    BUSY = "busy"
    """503: its queue is full, or it is starting or ending."""
    FAILED = "failed"
    """Another 5xx, or it ended the answer by itself."""
    TORN = "torn"
    """The connection ended before the answer did."""
    MALFORMED = "malformed"
    """Status 200, and no answer in it."""
    STALLED = "stalled"
    """It was taken out of service while it worked."""
    LATE = "late"
    """A look, or the loading of an adapter, took too long."""
    FORGOTTEN = "forgotten"
    """The adapter that was loaded is not there any more."""
    REFUSED = "refused"
    """Another 4xx: asked again, it would say the same."""

    @property
    def was_taken(self) -> bool:
        """Whether the actor may have worked on it, so that the request itself may be what it fails of."""
        return self not in (FaultKind.UNREACHABLE, FaultKind.LIMITED, FaultKind.BUSY)

    @property
    def is_of_the_actor(self) -> bool:
        """Whether it speaks against the actor: one that asks for a pause, or is asked nonsense, is well, and one that was
        taken out of service is judged already.
        """
        return self not in (FaultKind.LIMITED, FaultKind.FORGOTTEN, FaultKind.STALLED, FaultKind.REFUSED)


class Fault(Exception):
    """One try failed. It never leaves this package: the pool tries again, or raises an `ActorError`."""

    def __init__(self, kind: FaultKind, message: str, retry_after_s: float = 0.0, status: int = 0) -> None:
        super().__init__(kind, message, retry_after_s, status)
        self.kind = kind
        self.message = message
        """What happened, to be read behind the name of the actor."""
        self.retry_after_s = retry_after_s
        self.status = status
        """Of the answer; 0 where there was none."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Reply:
    """What one server answered."""

    text: str
    finish_reason: Literal["stop", "length"]
    usage: TokenUsage
    model: str
    reasoning: str = ""
    """What was thought before, where the server tells it apart."""
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    """As `ChatAnswer.first_tokens`."""


@dataclass(frozen=True, slots=True)
class _Lane:
    """One connection, which is opened when it is needed."""

    transport: httpx.AsyncHTTPTransport
    used_at: float


class ActorClient:
    """The connections to one server; for one event loop.

    Each connection has a pool of httpx of its own: a pool of many goes over all of them for every request, which costs
    a multiple of the request itself. How many are open is up to the caller.
    """

    def __init__(
        self,
        url: str,
        api_path: str = "/v1",
        key: SecretStr | None = None,
        connect_s: float = 5.0,
    ) -> None:
        self._base = httpx.URL(url)
        self._api_path = api_path
        self._chats = self._base.join(f"{api_path}/chat/completions")
        self._key = key
        self._timeouts = {"connect": connect_s}
        self._headers = [
            (b"host", self._base.netloc),
            (b"accept-encoding", b"identity"),
            (b"content-type", b"application/json"),
        ]
        if key is not None:
            self._headers.append((b"authorization", f"Bearer {key.get_secret_value()}".encode()))
        self._tls = (
            httpx.create_ssl_context()
            if self._base.scheme == "https"
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # reading certificates that nobody asks for takes 20 ms
        )
        self._idle: list[_Lane] = []

    async def chat(self, body: bytes, request_id: str) -> Reply:
        """Return the answer to an encoded chat. Cancelled, it closes the connection, upon which servers stop working."""
        status, headers, content = await self._exchange("POST", self._chats, body, request_id)
        if status != HTTPStatus.OK:
            raise self._fault(status, headers, content)
        return decode_chat(content)

    async def get(self, path: str, timeout_s: float) -> bytes:
        """Return what is at `path` of the server, `/health` or `/metrics`."""
        return await self._call("GET", self._base.join(path), b"", timeout_s)

    async def post(self, path: str, body: bytes, timeout_s: float) -> bytes:
        """Return what the server answers to `body` at `path` of its interface, `/load_lora_adapter`."""
        return await self._call("POST", self._base.join(f"{self._api_path}{path}"), body, timeout_s)

    async def prune(self) -> None:
        """Close the connections that were idle for so long that they will not be used again."""
        oldest = time.monotonic() - _KEEP_ALIVE_S
        expired = [lane for lane in self._idle if lane.used_at < oldest]
        self._idle = [lane for lane in self._idle if lane.used_at >= oldest]
        for lane in expired:
            await lane.transport.aclose()

    async def close(self) -> None:
        """Close the idle connections; those in use are closed by cancelling who uses them."""
        while self._idle:
            await self._idle.pop().transport.aclose()

    async def _call(self, method: str, url: httpx.URL, body: bytes, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                status, headers, content = await self._exchange(method, url, body)
        except TimeoutError:
            raise Fault(FaultKind.LATE, f"does not answer {url.path} within {timeout_s:g} s") from None
        if status != HTTPStatus.OK:
            raise self._fault(status, headers, content)
        return content

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> AsyncIterator[tuple[int, httpx.Headers, AsyncIterator[bytes]]]:
        """Yield status, headers and, piece by piece as it comes, the content of the answer at `path` of the interface.

        Whoever leaves before the last piece closes the connection, upon which servers stop working. Raises Fault, also from
        the pieces, where the connection fails.
        """
        url = self._base.join(f"{self._api_path}{path}")
        async with self._send(method, url, body, headers) as answer:
            yield answer

    def redact(self, text: str) -> str:
        """Return `text` without the key of the server."""
        return text if self._key is None else text.replace(self._key.get_secret_value(), "[secret]")

    async def _exchange(
        self, method: str, url: httpx.URL, body: bytes, request_id: str = ""
    ) -> tuple[int, httpx.Headers, bytes]:
        more = [(b"x-request-id", request_id.encode())] if request_id else []
        pieces, size = [], 0
        async with self._send(method, url, body, more) as (status, headers, content):
            async for piece in content:
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_ANSWER_BYTES:
                    raise Fault(FaultKind.MALFORMED, f"answers with more than {_MAX_ANSWER_BYTES} bytes")
        return status, headers, b"".join(pieces)

    @asynccontextmanager
    async def _send(
        self, method: str, url: httpx.URL, body: bytes, more_headers: Sequence[tuple[bytes, bytes]]
    ) -> AsyncIterator[tuple[int, httpx.Headers, AsyncIterator[bytes]]]:
        headers = [*self._headers, *more_headers, (b"content-length", b"%d" % len(body))]
        request = httpx.Request(
            method, url, headers=headers, stream=httpx.ByteStream(body), extensions={"timeout": self._timeouts}
        )
        # the one that was used last is the likeliest to be open still
        transport = self._idle.pop().transport if self._idle else self._new_transport()
        is_whole = False
        try:
            response = await transport.handle_async_request(request)
            stream = response.stream
            assert isinstance(stream, httpx.AsyncByteStream)  # an asynchronous transport has no other

            async def pieces() -> AsyncIterator[bytes]:
                nonlocal is_whole
                async for piece in stream:
                    yield piece
                is_whole = True

            try:
                yield response.status_code, response.headers, pieces()
            finally:
                await stream.aclose()
        except httpx.ConnectTimeout:
            raise Fault(
                FaultKind.UNREACHABLE, f"cannot be reached: no connection within {self._timeouts['connect']:g} s"
            ) from None
        except httpx.ConnectError as error:
            raise Fault(FaultKind.UNREACHABLE, f"cannot be reached: {system_reason(error)}") from None
        except httpx.TransportError as error:
            # without its text, which may quote what was sent
            raise Fault(FaultKind.TORN, f"broke the connection off ({type(error).__name__})") from None
        finally:
            if is_whole:
                self._idle.append(_Lane(transport, time.monotonic()))
            else:
                await transport.aclose()

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=_KEEP_ALIVE_S)
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=limits)

    def _fault(self, status: int, headers: httpx.Headers, content: bytes) -> Fault:
        message = self.redact(error_message(content))
        kind = FaultKind.REFUSED
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            kind = FaultKind.LIMITED
        elif status == HTTPStatus.SERVICE_UNAVAILABLE:
            kind = FaultKind.BUSY
        elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            kind = FaultKind.FAILED
        return Fault(kind, f"answers {status}: {message}", retry_after_s(headers.get("Retry-After", "")), status)


_SAID_CHARACTERS = 300


_VLLM = Dialect()


def encode_chat(request: ChatRequest, model: str, seed: int | None, dialect: Dialect = _VLLM) -> bytes:
    """Return the body that asks `request` of `model`; DataError where the chat is no Unicode text, or the schema no JSON."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": request.max_tokens + dialect.thinking_tokens,
        "temperature": dialect.temperature(request.temperature),
        **dialect.more,
    }
    if request.stop:
        body["stop"] = request.stop
    if request.json_schema is not None and dialect.json_mode == "object":
        body["response_format"] = {"type": "json_object"}
    elif request.json_schema is not None and dialect.json_mode == "schema":
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": request.json_schema},
        }
    if seed is not None:
        body["seed"] = seed
    if request.top_tokens:
        body |= {"logprobs": True, "top_logprobs": request.top_tokens}
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise DataError(f"a chat cannot be sent: {error}; mend its text or its schema") from None


def decode_chat(content: bytes) -> Reply:
    """Return the answer in the body of status 200; Fault where there is none, or the server ended it by itself."""
    try:
        body = orjson.loads(content)
        _raise_of_minimax(body)
        [choice] = body["choices"]
        message, reason = choice["message"], choice["finish_reason"]
        text, reasoning = _text_of(message.get("content")), _reasoning(message)
        usage, model = body["usage"], body["model"]
        prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
        # Kimi counts them one level higher than the others
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or usage.get("cached_tokens") or 0
    except orjson.JSONDecodeError:
        raise Fault(FaultKind.MALFORMED, f"answers with something else than JSON: {_start(content)}") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise Fault(FaultKind.MALFORMED, f"answers with something else than one chat: {_start(content)}") from None
    # where all tokens went into what a server keeps as reasoning, there is no text
    text = "" if text is None else text
    numbers = (prompt, completion, cached)
    if not isinstance(text, str) or not isinstance(model, str) or not all(type(n) is int and n >= 0 for n in numbers):
        raise Fault(FaultKind.MALFORMED, f"answers with something else than one chat: {_start(content)}")
    if reason not in ("stop", "length"):
        raise Fault(FaultKind.FAILED, f"ended the answer by itself: {reason!r}")
    usage = TokenUsage(prompt, completion, min(cached, prompt))
    return Reply(text, reason, usage, model, reasoning, _read_first_tokens(choice.get("logprobs")))


def _read_first_tokens(value: Any) -> dict[str, float]:
    """Return what `logprobs` says of the first token; nothing where it says it in another form."""
    try:
        return {str(row["token"]): float(row["logprob"]) for row in value["content"][0]["top_logprobs"]}
    except (IndexError, KeyError, TypeError, ValueError):
        return {}


def _text_of(content: Any) -> Any:
    """Return the text of a message that came in parts, and any other content as it is."""
    if isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text") or "") for part in content if part.get("type") == "text")
    return content


def _reasoning(message: dict[str, Any]) -> str:
    """Return what was thought before the answer: each server has it under a key of its own.

    `reasoning_content` is that of Z.ai, Moonshot, Model Studio and older vLLM, `reasoning` that of vLLM and OpenRouter,
    `reasoning_details` a list, that of MiniMax.
    """
    for key in ("reasoning_content", "reasoning", "reasoning_details"):
        value = message.get(key)
        text = _text_of([{**part, "type": "text"} for part in value]) if isinstance(value, list) else value
        if isinstance(text, str) and text:
            return text.strip()
    return ""


_MINIMAX_LIMITED, _MINIMAX_FAILED = (1002, 1039, 1041), (1000, 1001, 1013, 1024, 1033)
"""Codes for too many requests or tokens, and for failures of the service
(https://platform.minimax.io/docs/api-reference/errorcode)."""


def _raise_of_minimax(body: Any) -> None:
    """Raise the fault that MiniMax reports with status 200, in `base_resp`."""
    report = body.get("base_resp") if isinstance(body, dict) else None
    code = report.get("status_code", 0) if isinstance(report, dict) else 0
    if not isinstance(report, dict) or code == 0:
        return
    kind = FaultKind.REFUSED
    if code in _MINIMAX_LIMITED:
        kind = FaultKind.LIMITED
    elif code in _MINIMAX_FAILED:
        kind = FaultKind.FAILED
    message = " ".join(str(report.get("status_msg", "")).split())[:_SAID_CHARACTERS]
    raise Fault(kind, f"answers with its code {code}: {message or 'nothing more'}")


def error_message(content: bytes) -> str:
    """Return what a server says in the body of an error, in one line."""
    try:
        body = orjson.loads(content)
        error = body.get("error", body)
        message = error.get("message", error) if isinstance(error, dict) else error
    except (AttributeError, orjson.JSONDecodeError):
        message = content.decode("utf-8", "replace")
    return " ".join(str(message).split())[:_SAID_CHARACTERS] or "nothing more"


def _start(content: bytes) -> str:
    return repr(" ".join(content[:_SAID_CHARACTERS].decode("utf-8", "replace").split())[:80])
