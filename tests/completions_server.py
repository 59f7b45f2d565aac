"""A server on loopback that speaks vLLM's completions API, as far as `prompt_logprobs` of tokens go.

    with CompletionsServer(logprobs, decode) as server:
        server.faults = [Fault(status=500)]                             # used up by the first request

What it thinks of a prompt is what `logprobs` returns: those of all tokens but the first. Forms of answers are those of vLLM
0.20: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer; what is not set goes right."""

    status: int = 0
    silent_s: float = 0.0
    changed: Callable[[dict[str, Any]], Any] = lambda answer: answer
    """What is answered in place of what should be."""


class CompletionsServer:
    """The server; `url` is where it is."""

    def __init__(
        self,
        logprobs: Callable[[Sequence[int]], Sequence[float]],
        decode: Callable[[Sequence[int]], str],
        vocabulary: int = 1 << 31,
        key: str = "",
    ) -> None:
        self.logprobs, self.decode, self.vocabulary, self.key = logprobs, decode, vocabulary, key
        self.faults: list[Fault] = []
        self.asked: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"played": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of an answer."""
        prompt = asked["prompt"]
        if unknown := [token for token in prompt if not 0 <= token < self.vocabulary]:
            return 400, _refusal(f"Token id {unknown[0]} is out of vocabulary", 400)
        found = [
            {str(token): {"logprob": value, "rank": 1, "decoded_token": self.decode([token])}}
            for token, value in zip(prompt[1:], self.logprobs(prompt), strict=True)
        ]
        choice = {
            "index": 0,
            "text": "",
            "logprobs": None,
            "finish_reason": "length",
            "stop_reason": None,
            # of the first token there is nothing to be said
            "prompt_logprobs": [None, *found] if asked.get("prompt_logprobs") is not None else None,
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": 1, "total_tokens": len(prompt) + 1}
        return 200, {
            "id": "cmpl-0",
            "object": "text_completion",
            "created": 0,
            "model": asked["model"],
            "choices": [choice],
            "usage": usage,
        }


class _Handler(BaseHTTPRequestHandler):
    played: CompletionsServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one piece: a second one would wait for the first to be acknowledged

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/v1/completions":
            return self._send(404, _refusal("Not Found", 404))
        if self.played.key and self.headers["Authorization"] != f"Bearer {self.played.key}":
            return self._send(401, {"error": "Unauthorized"})
        self.played.asked.append(asked)
        fault = self.played.faults.pop(0) if self.played.faults else Fault()
        time.sleep(fault.silent_s)
        if fault.status:
            return self._send(fault.status, _refusal("the engine is dead", fault.status))
        status, content = self.played.answer(asked)
        return self._send(status, fault.changed(content))

    def _send(self, status: int, content: Any) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def _refusal(message: str, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}
