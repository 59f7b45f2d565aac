"""One call that is forwarded: what the server is asked, what the client gets, how it ended, and what is written down of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Send

from graftline.harbor.in_box.agents import BUDGET_EXHAUSTED
from graftline.harbor.model_proxy.calls import ModelCall
from graftline.harbor.model_proxy.interfaces import Interface
from graftline.harbor.model_proxy.sessions import CallEnd, ProxySession
from graftline.llm.base import TokenUsage
from graftline.llm.client import ActorClient, Fault, FaultKind, error_message
from graftline.llm.member import cost_usd, digest

if TYPE_CHECKING:
    from graftline.harbor.model_proxy.proxy import ModelProxy

_MAX_ANSWER_BYTES = 64 << 20
_BYTES_OF_A_TOKEN = 3
"""Of a text whose tokens nobody has counted; most texts have fewer."""
_PASSED_ON = (b"content-type", b"retry-after", b"x-request-id", b"anthropic-version", b"anthropic-beta")
_NO_PARAMETERS = frozenset({"messages", "input", "instructions", "system", "model", "stream", "stream_options"})
"""Keys of a body that are recorded otherwise, or say nothing of the answer."""
_HUNG_UP: CallEnd = "ended"
_CHECKED_EVERY = 32
"""Pieces of a stream between two looks at the budget."""


class Exchange:
    """One call, which `run` answers."""

    def __init__(
        self, proxy: "ModelProxy", session: ProxySession, call: Interface, requested_model: str, asked_bytes: int
    ) -> None:
        self._proxy, self._session, self._call = proxy, session, call
        self._requested_model, self._asked_bytes = requested_model, asked_bytes
        self._started_at, self._began = time.time(), time.monotonic()
        self._pieces = 0
        self._was_taken = False
        """Whether a server may have worked on it."""
        self._fault, self._end = "the client hung up", _HUNG_UP
        self._has_begun = self._is_recorded = False

    async def run(self, request: Request, send: Send) -> None:
        """Forward the call, and send the client what comes of it."""
        try:
            async with self._proxy.slot():
                await self._forward(request, send)
        except Fault as fault:
            self._fail(fault.message)
            self._was_taken = fault.kind.was_taken
            self._record()
            error = error_response(502, f"the model server {fault.message}", "server_error")
            if self._has_begun:
                # without its last message, so that the connection is closed in the middle of the answer
                await send({"type": "http.response.body", "body": _event(error), "more_body": True})
            else:
                await error(request.scope, request.receive, send)
        finally:
            self._record()

    async def _forward(self, request: Request, send: Send) -> None:
        headers = [
            (name, value) for name, value in request.headers.raw if name in _PASSED_ON and name != b"content-type"
        ]
        body, clients = orjson.dumps(self._call.sent), self._proxy.clients
        # the same server for all calls of an attempt, which has read the conversation so far; another one where that is away
        first = digest(self._session.rollout_id) % len(clients)
        for client in (*clients[first:], *clients[:first]):
            try:
                await self._ask(client, body, headers, send)
                return
            except Fault as error:
                if error.kind is not FaultKind.UNREACHABLE:
                    raise
                fault = error
        raise fault

    async def _ask(
        self, client: ActorClient, body: bytes, passed_on: Sequence[tuple[bytes, bytes]], send: Send
    ) -> None:
        call = self._call
        self._was_taken = True
        async with client.stream("POST", call.path, body, passed_on) as (status, headers, pieces):
            shown_headers = [(name.lower(), value) for name, value in headers.raw if name.lower() in _PASSED_ON]
            content = self._read_in_time(pieces)
            if status != 200 or not call.is_stream:
                whole = b"".join([piece async for piece in content])
                if status == 200:
                    whole = self._read_whole(whole)
                else:
                    # 4xx is about what was asked, but for these: key, path and model are not the agent's
                    is_refusal = 400 <= status < 500 and status not in (401, 403, 404, 405, 408, 429)
                    self._fail(
                        f"answers {status}: {client.redact(error_message(whole))}", "ended" if is_refusal else "failed"
                    )
                    if is_refusal:
                        self._session.refuse(self._fault)
                    self._was_taken = False
                    whole = client.redact(whole.decode("utf-8", "replace")).encode()
                self._record()
                length = (b"content-length", b"%d" % len(whole))
                await send({"type": "http.response.start", "status": status, "headers": [*shown_headers, length]})
                await send({"type": "http.response.body", "body": whole})
                return
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": shown_headers})
            async for piece in self._events(content):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            self._record()
            if self._end == "answered":
                await send({"type": "http.response.body", "body": b""})

    async def _read_in_time(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        silence_s, size = self._proxy.config.silence_s, 0
        while True:
            try:
                async with asyncio.timeout(silence_s):
                    piece = await anext(pieces, None)
            except TimeoutError:
                raise Fault(FaultKind.STALLED, f"says nothing for {silence_s:g} s") from None
            if piece is None:
                return
            size += len(piece)
            if size > _MAX_ANSWER_BYTES:
                raise Fault(FaultKind.MALFORMED, f"answers with more than {_MAX_ANSWER_BYTES} bytes")
            yield piece

    def _read_whole(self, body: bytes) -> bytes:
        content = parse_json(body)
        try:
            shown = self._call.read(content)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Fault(FaultKind.MALFORMED, "answers with something else than one answer") from None
        self._fail(self._call.answer.fault, "failed" if self._call.answer.fault else "answered")
        return body if shown is content else orjson.dumps(shown)

    async def _events(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the lines of a stream as they come, read and without what only the record needs."""
        tail, answer = b"", self._call.answer
        async for piece in pieces:
            *lines, tail = (tail + piece).split(b"\n")
            shown = b"".join([self._read_line(line) for line in lines])
            if shown:
                yield shown
            if answer.fault:
                # the server has said so to the client already
                self._fail(answer.fault)
                return
            if self._pieces % _CHECKED_EVERY == 0 and (
                reason := self._session.find_exhausted(self._tokens().completion)
            ):
                self._fail(reason, "ended")
                yield _event(error_response(402, f"{BUDGET_EXHAUSTED}: {reason}", BUDGET_EXHAUSTED))
                return
        if tail:
            yield self._read_line(tail)
        if not answer.is_complete:
            raise Fault(FaultKind.TORN, "ended its stream before the answer was whole")
        self._fail("", "answered")

    def _read_line(self, line: bytes) -> bytes:
        """Return what the client gets of a line; nothing of one that only the record needs."""
        if not line.startswith(b"data:") or not isinstance(data := parse_json(line[5:]), dict):
            return line + b"\n"
        self._pieces += 1
        try:
            shown = self._call.read_event(data)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise Fault(FaultKind.MALFORMED, "sends something else than pieces of an answer") from None
        if shown is None:
            return b""
        return line + b"\n" if shown is data else b"data: " + orjson.dumps(shown) + b"\n"

    def _fail(self, fault: str, end: CallEnd = "failed") -> None:
        self._fault, self._end = fault, end

    def _tokens(self) -> TokenUsage:
        """Return how many tokens there were, as far as they came where the server has not said."""
        answer = self._call.answer
        if answer.usage is not None:
            return answer.usage
        if not self._was_taken:
            return TokenUsage(0, 0)
        prompt = len(answer.prompt_token_ids) or self._asked_bytes // _BYTES_OF_A_TOKEN
        return TokenUsage(prompt, max(len(answer.token_ids), self._pieces))

    def _record(self) -> None:
        """Write down how the call ended, once: before the client hears of its end, so that the next call finds it counted."""
        if self._is_recorded:
            return
        self._is_recorded = True
        proxy, call, answer = self._proxy, self._call, self._call.answer
        call.end()
        usage = self._tokens()
        record = ModelCall.model_construct(
            rollout_id=self._session.rollout_id,
            attempt=self._session.attempt,
            number=0,
            started_at=self._started_at,
            latency_s=round(time.monotonic() - self._began, 6),
            interface=call.path,
            requested_model=self._requested_model,
            model=str(call.sent["model"]),
            parameters={key: value for key, value in call.sent.items() if key not in _NO_PARAMETERS},
            messages=tuple(call.messages()),
            answer=answer.message,
            finish_reason=answer.finish_reason,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            cached_tokens=usage.cached,
            is_estimated=answer.usage is None and self._was_taken,
            cost_usd=cost_usd(usage, proxy.fleet.price),
            prompt_token_ids=tuple(answer.prompt_token_ids),
            token_ids=tuple(answer.token_ids),
            logprobs=tuple(answer.logprobs),
            outputs=proxy.fleet.outputs,
            fault=self._fault,
        )
        self._session.end(record, self._end)


def parse_json(body: bytes) -> Any:
    """Return the value of a body; None where it is no JSON."""
    try:
        return orjson.loads(body)
    except ValueError:
        return None


def error_response(status: int, message: str, code: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return an error in the form of OpenAI, which the clients of Anthropic read as well."""
    kind = "invalid_request_error" if 400 <= status < 500 else "server_error"
    return JSONResponse({"type": "error", "error": {"message": message, "type": kind, "code": code}}, status, headers)


def _event(error: JSONResponse) -> bytes:
    return b"event: error\ndata: " + bytes(error.body) + b"\n\n"
