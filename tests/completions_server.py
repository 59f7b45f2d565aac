"""A server on loopback that speaks vLLM's completions API, as far as `prompt_logprobs` of tokens go.

    with CompletionsServer(logprobs, decode) as server:
        server.faults = [Fault(status=500)]                             # used up by the first request

What it thinks of a prompt is what `logprobs` returns: those of all tokens but the first. Forms of answers are those of vLLM
0.20: https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

from tests.http_server import HttpAnswer, HttpRequest, json_answer, serve_answers


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
        self._stack = ExitStack()
        self.url = self._stack.enter_context(serve_answers(self._serve))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _serve(self, request: HttpRequest) -> HttpAnswer:
        asked = json.loads(request.body)
        if request.path != "/v1/completions":
            return json_answer(_refusal("Not Found", 404), 404)
        if self.key and request.headers["Authorization"] != f"Bearer {self.key}":
            return json_answer({"error": "Unauthorized"}, 401)
        self.asked.append(asked)
        fault = self.faults.pop(0) if self.faults else Fault()
        time.sleep(fault.silent_s)
        if fault.status:
            return json_answer(_refusal("the engine is dead", fault.status), fault.status)
        status, content = self.answer(asked)
        return json_answer(fault.changed(content), status)

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


def _refusal(message: str, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": status}}
