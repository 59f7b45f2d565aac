"""Chats in what OpenAI, vLLM and llama.cpp have in common: requests to bytes, and bytes to answers.

Of what only one of them takes (`guided_json`, `structured_outputs`, `grammar`) nothing is sent: the others ignore it
without a word.
"""

from dataclasses import dataclass
from typing import Any, Literal

import orjson

from graftline.core.errors import DataError
from graftline.llm.base import ChatRequest, TokenUsage
from graftline.llm.fault import Fault, FaultKind

_SAID_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Reply:
    """What one server answered."""

    text: str
    finish_reason: Literal["stop", "length"]
    usage: TokenUsage
    model: str


def encoded(request: ChatRequest, model: str, seed: int | None) -> bytes:
    """Return the body that asks `request` of `model`.

    Raises:
        DataError: the chat is no Unicode text, or the schema no JSON.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    if request.stop:
        body["stop"] = request.stop
    if request.json_schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": request.json_schema},
        }
    if seed is not None:
        body["seed"] = seed
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as error:
        raise DataError(f"a chat cannot be sent: {error}; mend its text or its schema") from None


def decoded(content: bytes) -> Reply:
    """Return the answer in the body of status 200.

    Raises:
        Fault: there is none in it, or the server ended it before the model or `max_tokens` did.
    """
    try:
        body = orjson.loads(content)
        [choice] = body["choices"]
        text, reason = choice["message"]["content"], choice["finish_reason"]
        usage, model = body["usage"], body["model"]
        prompt, completion = usage["prompt_tokens"], usage["completion_tokens"]
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
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
    return Reply(text, reason, TokenUsage(prompt, completion, min(cached, prompt)), model)


def message_of(content: bytes) -> str:
    """Return what a server says in the body of an error, in one line."""
    try:
        body = orjson.loads(content)
        error = body.get("error", body)
        said = error.get("message", error) if isinstance(error, dict) else error
    except (AttributeError, orjson.JSONDecodeError):
        said = content.decode("utf-8", "replace")
    return " ".join(str(said).split())[:_SAID_CHARACTERS] or "nothing more"


def _start(content: bytes) -> str:
    return repr(" ".join(content[:_SAID_CHARACTERS].decode("utf-8", "replace").split())[:80])
