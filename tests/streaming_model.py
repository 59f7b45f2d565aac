"""A model server on loopback without a model: it answers as vLLM does, whole or as a stream, and fails as a test has it fail.

    with StreamingModel(["one ", "two"]) as model:
        model.dies_after = 1                                             # pieces of a stream

Forms of answers are those of vLLM 0.20 (`return_token_ids`), and of the Responses and Messages interfaces that it has too.
"""

import asyncio
import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graftline.harbor.localapi.served import serve_task_app

PROMPT_IDS = [11, 12, 13]


class StreamingModel:
    """The server; `url` is where it is, `asked` what it was sent."""

    def __init__(self, pieces: Sequence[str] = ("Hel", "lo"), tool_call: dict[str, str] | None = None) -> None:
        self.pieces, self.tool_call = list(pieces), tool_call
        self.dies_after: int | None = None
        self.says_error = False
        self.status = 200
        self.piece_s = 0.0
        self.is_silent = False
        self.raw: bytes | None = None
        """Answered in place of what should be, with status 200."""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.in_flight = self.most_in_flight = self.hung_up = 0

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self.url = self._stack.enter_context(serve_task_app(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        request = Request(scope, receive)
        body = json.loads(await request.body())
        self.asked.append(body)
        self.keys.append(request.headers.get("authorization", ""))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.is_silent:
                while (await receive())["type"] != "http.disconnect":
                    pass
                self.hung_up += 1
                return
            if self.raw is not None:
                await Response(self.raw, media_type="text/event-stream")(scope, receive, send)
            elif self.status != 200:
                error = {"error": {"message": f"no, {self.keys[-1]}", "code": self.status}}
                await JSONResponse(error, self.status, {"retry-after": "7"})(scope, receive, send)
            elif body.get("stream"):
                await self._stream(request, body, receive, send)
            else:
                await JSONResponse(self._whole(request.url.path, body))(scope, receive, send)
        finally:
            self.in_flight -= 1

    async def _stream(self, request: Request, body: dict[str, Any], receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        watch = asyncio.ensure_future(receive())
        for number, event in enumerate(self._events(request.url.path, body)):
            if self.dies_after == number:
                if self.says_error:
                    error = {"error": {"message": "the engine is dead", "code": 500}}
                    await send({"type": "http.response.body", "body": b"data: %s\n\n" % json.dumps(error).encode()})
                return  # without a last message, so that the connection breaks
            await asyncio.wait({watch}, timeout=self.piece_s)
            if watch.done():
                self.hung_up += 1
                return
            name = b"event: %s\n" % event["type"].encode() if "type" in event else b""
            data = json.dumps(event).encode()
            await send({"type": "http.response.body", "body": name + b"data: %s\n\n" % data, "more_body": True})
        watch.cancel()
        last = b"" if "type" in event else b"data: [DONE]\n\n"
        await send({"type": "http.response.body", "body": last})

    def _usage(self) -> dict[str, int]:
        return {"prompt_tokens": 3, "completion_tokens": len(self.pieces), "total_tokens": 3 + len(self.pieces)}

    def _logprobs(self, body: dict[str, Any], pieces: Sequence[str]) -> Any:
        if not body.get("logprobs"):
            return None
        return {"content": [{"token": piece, "logprob": -0.5, "bytes": None, "top_logprobs": []} for piece in pieces]}

    def _whole(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        text = "".join(self.pieces)
        if path.endswith("/responses"):
            return self._response(text)
        if path.endswith("/messages"):
            content = [{"type": "text", "text": text}]
            usage = {"input_tokens": 2, "cache_read_input_tokens": 1, "output_tokens": len(self.pieces)}
            return {
                "type": "message",
                "role": "assistant",
                "content": content,
                "usage": usage,
                "stop_reason": "end_turn",
            }
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if self.tool_call:
            message["tool_calls"] = [{"id": "call-1", "type": "function", "function": self.tool_call}]
        choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"}
        choice["logprobs"] = self._logprobs(body, self.pieces)
        answer = {"id": "chat", "object": "chat.completion", "model": body["model"], "usage": self._usage()}
        if body.get("return_token_ids"):
            choice["token_ids"] = [21 + number for number in range(len(self.pieces))]
            answer["prompt_token_ids"] = PROMPT_IDS
        return {**answer, "choices": [choice]}

    def _response(self, text: str) -> dict[str, Any]:
        output: list[dict[str, Any]] = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
        if self.tool_call:
            output.append({"type": "function_call", "call_id": "call-1", **self.tool_call})
        details = {"cached_tokens": 1}
        usage = {"input_tokens": 3, "input_tokens_details": details, "output_tokens": len(self.pieces)}
        return {"object": "response", "status": "completed", "output": output, "usage": usage}

    def _events(self, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
        if path.endswith("/responses"):
            deltas = [{"type": "response.output_text.delta", "delta": piece} for piece in self.pieces]
            return [*deltas, {"type": "response.completed", "response": self._response("".join(self.pieces))}]
        if path.endswith("/messages"):
            return self._anthropic_events()
        events: list[dict[str, Any]] = []
        for number, piece in enumerate(self.pieces):
            choice: dict[str, Any] = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
            choice["logprobs"] = self._logprobs(body, [piece])
            event: dict[str, Any] = {"object": "chat.completion.chunk", "model": body["model"], "choices": [choice]}
            if body.get("return_token_ids"):
                choice["token_ids"] = [21 + number]
                event |= {"prompt_token_ids": PROMPT_IDS} if number == 0 else {}
            events.append(event)
        last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        if self.tool_call:
            name, arguments = self.tool_call["name"], self.tool_call["arguments"]
            for function in ({"name": name, "arguments": arguments[:3]}, {"arguments": arguments[3:]}):
                call = {"index": 0, "id": "call-1", "function": function}
                delta = {"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}
                events.append({"object": "chat.completion.chunk", "choices": [delta]})
            last["finish_reason"] = "tool_calls"
        events.append({"object": "chat.completion.chunk", "choices": [last]})
        if body.get("stream_options", {}).get("include_usage"):
            events.append({"object": "chat.completion.chunk", "choices": [], "usage": self._usage()})
        return events

    def _anthropic_events(self) -> list[dict[str, Any]]:
        usage = {"input_tokens": 2, "cache_read_input_tokens": 1, "output_tokens": 1}
        deltas = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
            for piece in self.pieces
        ]
        events = [
            {"type": "message_start", "message": {"usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *deltas,
        ]
        if self.tool_call:
            block = {"type": "tool_use", "id": "call-1", "name": self.tool_call["name"], "input": {}}
            part = {"type": "input_json_delta", "partial_json": self.tool_call["arguments"]}
            events.append({"type": "content_block_start", "index": 1, "content_block": block})
            events.append({"type": "content_block_delta", "index": 1, "delta": part})
        end = {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"output_tokens": len(self.pieces)},
        }
        return [*events, end, {"type": "message_stop"}]
