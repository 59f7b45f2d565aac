"""The three interfaces that agents ask models by, read while calls pass: chat completions, responses, and messages of Anthropic.

https://platform.openai.com/docs/api-reference and https://docs.anthropic.com/en/api/messages. What is recorded of all of them
has the form of chat completions. Where the server gives token ids and logprobs, it is asked for them, and what the client did
not ask for itself does not reach it: vLLM gives both (`return_token_ids`), llama.cpp the ids of the answer with its logprobs.
Instances are of one call.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from graftline.llm.base import TokenUsage

TokenDetail = Literal["vllm", "llama.cpp", "none"]
"""What the server says of tokens, and how it is asked for it."""
Json = dict[str, Any]
_SAID_CHARACTERS = 300
_MAX_DEPTH = 100
"""Of what is asked: schemas of tools are the deepest of it."""


@dataclass(slots=True)
class ModelAnswer:
    """What one answer says, as far as it has come."""

    message: Json = field(default_factory=lambda: {"role": "assistant", "content": ""})
    finish_reason: str = ""
    usage: TokenUsage | None = None
    """None where the server did not say."""
    prompt_token_ids: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of each of `token_ids`, at temperature 1; empty where the server does not give them."""
    is_complete: bool = False
    fault: str = ""
    """What the server says in the middle of a stream that it fails of."""


class Interface:
    """One call by one interface."""

    path = ""

    def __init__(self, body: Json, detail: TokenDetail) -> None:
        self.answer = ModelAnswer()
        self.sent = dict(body)
        """What the server is sent."""
        self.is_stream = body.get("stream") is True
        self._tool_arguments: dict[int, list[str]] = {}
        self._texts: list[str] = []
        self._thoughts: list[str] = []

    def refusal(self) -> str:
        """Return why a call is not forwarded; empty where it is."""
        if self.sent.get("stream") not in (None, True, False):
            return "stream: true or false was expected"
        if _is_deeper(self.sent, _MAX_DEPTH):
            return f"the body is nested more than {_MAX_DEPTH} deep; send a flatter one"
        return ""

    def messages(self) -> list[Json]:
        """Return what was asked, as chat completions have it."""
        raise NotImplementedError

    def read(self, content: Json) -> Json:
        """Read a whole answer, and return what the client gets of it."""
        raise NotImplementedError

    def read_event(self, data: Json) -> Json | None:
        """Read a piece of a stream, and return what the client gets of it; None where it gets nothing."""
        raise NotImplementedError

    def end(self) -> None:
        """Put together what came in pieces."""
        message = self.answer.message
        if self._texts:
            message["content"] = "".join(self._texts)
        if self._thoughts:
            message["reasoning"] = "".join(self._thoughts)
        for call, parts in zip(message.get("tool_calls", ()), self._tool_arguments.values(), strict=False):
            call["function"]["arguments"] = "".join(parts)

    def _add_tool_call(self, index: int, id: Any, name: Any) -> list[str]:
        """Return where the arguments of the tool call number `index` are put, which is added where it is new."""
        if index not in self._tool_arguments:
            self._tool_arguments[index] = []
            calls = self.answer.message.setdefault("tool_calls", [])
            calls.append(_tool_call(id, name, ""))
        return self._tool_arguments[index]


class ChatCompletions(Interface):
    """`POST /chat/completions`."""

    path = "/chat/completions"

    def __init__(self, body: Json, detail: TokenDetail) -> None:
        super().__init__(body, detail)
        self._shows_logprobs = body.get("logprobs") is True
        self._shows_ids = body.get("return_token_ids") is True
        self._shows_usage = _object(body.get("stream_options")).get("include_usage") is True
        # llama.cpp refuses logprobs of streams with tools
        self._is_detailed = detail == "vllm" or (detail == "llama.cpp" and not (self.is_stream and body.get("tools")))
        if self._is_detailed:
            self.sent["logprobs"] = True
            if detail == "vllm":
                self.sent["return_token_ids"] = True
            elif not self._shows_logprobs:
                self.sent["top_logprobs"] = 1
        if self.is_stream:
            self.sent["stream_options"] = {**_object(body.get("stream_options")), "include_usage": True}

    def refusal(self) -> str:
        if self.sent.get("n") not in (None, 1):
            return "n: one answer to a call is given here; leave it out"
        return super().refusal()

    def messages(self) -> list[Json]:
        return _objects(self.sent.get("messages"))

    def read(self, content: Json) -> Json:
        answer = self.answer
        [choice] = content["choices"]
        answer.message = dict(choice["message"])
        answer.finish_reason = str(choice.get("finish_reason") or "")
        answer.usage = _usage_of_openai(content.get("usage"))
        self._read_tokens(content, choice)
        answer.is_complete = True
        return self._strip(content)

    def read_event(self, data: Json) -> Json | None:
        answer = self.answer
        if "error" in data:
            answer.fault = _fault(data)
            return data
        if usage := data.get("usage"):
            answer.usage = _usage_of_openai(usage)
        choices = data.get("choices") or ()
        for choice in choices:
            delta = _object(choice.get("delta"))
            if text := delta.get("content"):
                self._texts.append(str(text))
            if thought := delta.get("reasoning") or delta.get("reasoning_content"):
                self._thoughts.append(str(thought))
            for call in _objects(delta.get("tool_calls")):
                function = _object(call.get("function"))
                parts = self._add_tool_call(int(call.get("index") or 0), call.get("id"), function.get("name"))
                parts.append(str(function.get("arguments") or ""))
            if choice.get("finish_reason"):
                answer.finish_reason, answer.is_complete = str(choice["finish_reason"]), True
            self._read_tokens(data, choice)
        if not choices and not self._shows_usage and "usage" in data:
            return None
        return self._strip(data)

    def _read_tokens(self, content: Json, choice: Json) -> None:
        answer = self.answer
        if ids := content.get("prompt_token_ids") or choice.get("prompt_token_ids"):
            answer.prompt_token_ids = ids
        rows = _objects(_object(choice.get("logprobs")).get("content"))
        answer.token_ids += choice.get("token_ids") or [row["id"] for row in rows if type(row.get("id")) is int]
        answer.logprobs += [float(row["logprob"]) for row in rows if isinstance(row.get("logprob"), int | float)]

    def _strip(self, content: Json) -> Json:
        """Return `content` without what only the record needs."""
        if not self._is_detailed and (self._shows_usage or "usage" not in content):
            return content
        shown = dict(content)
        if self.is_stream and not self._shows_usage:
            shown.pop("usage", None)
        hidden = [*(() if self._shows_logprobs else ("logprobs",))]
        if not self._shows_ids:
            shown.pop("prompt_token_ids", None)
            hidden += ["token_ids", "prompt_token_ids"]
        if self._is_detailed and hidden:
            choices = content.get("choices") or ()
            shown["choices"] = [
                {key: value for key, value in choice.items() if key not in hidden} for choice in choices
            ]
        return shown


class Responses(Interface):
    """`POST /responses`."""

    path = "/responses"

    def refusal(self) -> str:
        if self.sent.get("background") or self.sent.get("previous_response_id"):
            return "background and previous_response_id: what is asked has to be whole here; send all of it as input"
        return super().refusal()

    def messages(self) -> list[Json]:
        instructions, items = self.sent.get("instructions"), self.sent.get("input")
        messages: list[Json] = [{"role": "system", "content": instructions}] if instructions else []
        if isinstance(items, str):
            return [*messages, {"role": "user", "content": items}]
        for item in _objects(items):
            match item.get("type", "message"):
                case "message":
                    messages.append({"role": str(item.get("role")), "content": text_of(item.get("content"))})
                case "function_call":
                    call = _tool_call(item.get("call_id"), item.get("name"), item.get("arguments"))
                    messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
                case "function_call_output":
                    output = text_of(item.get("output"))
                    messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
        return messages

    def read(self, content: Json) -> Json:
        answer = self.answer
        for item in _objects(content.get("output")):
            match item.get("type"):
                case "message":
                    self._texts.append(text_of(item.get("content")))
                case "reasoning":
                    self._thoughts.append(text_of(item.get("content") or item.get("summary")))
                case "function_call":
                    parts = self._add_tool_call(len(self._tool_arguments), item.get("call_id"), item.get("name"))
                    parts.append(str(item.get("arguments") or ""))
        usage = _object(content.get("usage"))
        cached = _object(usage.get("input_tokens_details")).get("cached_tokens")
        answer.usage = _usage(usage.get("input_tokens"), usage.get("output_tokens"), cached)
        answer.finish_reason = {"completed": "stop", "incomplete": "length"}.get(str(content.get("status")), "")
        answer.is_complete = True
        if content.get("status") == "failed":
            answer.fault = _fault(content)
        return content

    def read_event(self, data: Json) -> Json | None:
        kind = data.get("type")
        if kind in ("response.completed", "response.incomplete", "response.failed"):
            self.read(_object(data.get("response")))
        elif kind == "error":
            self.answer.fault = _fault(data)
        return data


class AnthropicMessages(Interface):
    """`POST /messages`."""

    path = "/messages"

    def messages(self) -> list[Json]:
        system = text_of(self.sent.get("system"))
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        for message in _objects(self.sent.get("messages")):
            role, content = str(message.get("role")), message.get("content")
            blocks = _objects(content)
            for block in blocks:
                if block.get("type") == "tool_result":
                    output = text_of(block.get("content"))
                    messages.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": output})
            calls = [
                _tool_call(block.get("id"), block.get("name"), orjson.dumps(block.get("input") or {}).decode())
                for block in blocks
                if block.get("type") == "tool_use"
            ]
            if (text := text_of(content)) or calls:
                messages.append({"role": role, "content": text, **({"tool_calls": calls} if calls else {})})
        return messages

    def read(self, content: Json) -> Json:
        for index, block in enumerate(_objects(content.get("content"))):
            self._read_block(index, block)
        self._read_usage(_object(content.get("usage")))
        self.answer.finish_reason, self.answer.is_complete = str(content.get("stop_reason") or ""), True
        return content

    def read_event(self, data: Json) -> Json | None:
        match data.get("type"):
            case "message_start":
                self._read_usage(_object(_object(data.get("message")).get("usage")))
            case "content_block_start":
                self._read_block(int(data.get("index") or 0), _object(data.get("content_block")), is_start=True)
            case "content_block_delta":
                delta = _object(data.get("delta"))
                self._texts.append(str(delta.get("text") or ""))
                self._thoughts.append(str(delta.get("thinking") or ""))
                if part := delta.get("partial_json"):
                    self._add_tool_call(int(data.get("index") or 0), "", "").append(str(part))
            case "message_delta":
                self._read_usage(_object(data.get("usage")))
                self.answer.finish_reason = str(_object(data.get("delta")).get("stop_reason") or "")
            case "message_stop":
                self.answer.is_complete = True
            case "error":
                self.answer.fault = _fault(data)
        return data

    def _read_block(self, index: int, block: Json, is_start: bool = False) -> None:
        self._texts.append(str(block.get("text") or ""))
        self._thoughts.append(str(block.get("thinking") or ""))
        if block.get("type") == "tool_use":
            parts = self._add_tool_call(index, block.get("id"), block.get("name"))
            if not is_start:
                parts.append(orjson.dumps(block.get("input") or {}).decode())

    def _read_usage(self, usage: Json) -> None:
        before = self.answer.usage or TokenUsage(0, 0)
        cached = int(usage.get("cache_read_input_tokens") or before.cached)
        if "input_tokens" in usage:
            # those that were read or written of a cache come on top
            fresh = int(usage["input_tokens"] or 0) + int(usage.get("cache_creation_input_tokens") or 0)
            self.answer.usage = _usage(fresh + cached, usage.get("output_tokens") or before.completion, cached)
        elif "output_tokens" in usage:
            self.answer.usage = _usage(before.prompt, usage["output_tokens"], before.cached)


INTERFACES: Mapping[str, type[Interface]] = {
    kind.path: kind for kind in (ChatCompletions, Responses, AnthropicMessages)
}


def _tool_call(id: Any, name: Any, arguments: Any) -> Json:
    function = {"name": str(name or ""), "arguments": str(arguments or "")}
    return {"id": str(id or ""), "type": "function", "function": function}


def _usage_of_openai(usage: Any) -> TokenUsage | None:
    usage = _object(usage)
    cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens") or usage.get("cached_tokens")
    return _usage(usage.get("prompt_tokens"), usage.get("completion_tokens"), cached)


def _usage(prompt: Any, completion: Any, cached: Any) -> TokenUsage | None:
    if not all(type(count) is int and count >= 0 for count in (prompt, completion)):
        return None
    return TokenUsage(prompt, completion, min(cached, prompt) if type(cached) is int and cached > 0 else 0)


def text_of(content: Any) -> str:
    """Return the text of a content that may be one, or parts with texts among others."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in _objects(content) if isinstance(part.get("text"), str))


def _fault(content: Json) -> str:
    error = content.get("error") or content.get("message") or "failed"
    message = _object(error).get("message", error)
    return " ".join(str(message).split())[:_SAID_CHARACTERS]


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(member, depth - 1) for member in members)


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[Json]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
