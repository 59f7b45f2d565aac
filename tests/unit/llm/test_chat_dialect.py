"""Chats to bytes, and bytes to answers."""

import json
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.llm.base import ChatRequest, Message, TokenUsage
from graftline.llm.client import Fault, FaultKind, Reply, decode_chat, encode_chat, error_message
from graftline.llm.fleet import Dialect

PLAIN = ChatRequest((Message(role="user", content="hé"),), max_tokens=7, temperature=0.5)


def answer(**changed: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}
    body = {"model": "m", "choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 1}}
    return json.dumps({**body, **changed}).encode()


def choice(content: Any, reason: Any = "stop") -> list[dict[str, Any]]:
    return [{"message": {"content": content}, "finish_reason": reason}]


def test_only_what_is_asked_for_is_sent() -> None:
    assert json.loads(encode_chat(PLAIN, "m", None)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hé"}],
        "max_tokens": 7,
        "temperature": 0.5,
    }


def test_stops_schema_and_seed_are_sent_in_the_common_dialect() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    request = ChatRequest(PLAIN.messages, stop=("</a>", "\n"), json_schema=schema)
    body = json.loads(encode_chat(request, "m", 3))
    assert {key: body[key] for key in ("stop", "seed", "response_format")} == {
        "stop": ["</a>", "\n"],
        "seed": 3,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    }


def test_the_likeliest_first_tokens_are_asked_for_and_read() -> None:
    body = json.loads(encode_chat(ChatRequest(PLAIN.messages, top_tokens=2), "m", None))
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)
    rows = {"content": [{"top_logprobs": [{"token": "yes", "logprob": -0.5}, {"token": "no", "logprob": -1}]}]}
    values = ((rows, {"yes": -0.5, "no": -1.0}), (None, {}), ({"content": []}, {}), ({"content": 3}, {}))
    for logprobs, first_tokens in values:
        content = answer(choices=[{**choice("yes")[0], "logprobs": logprobs}])
        assert decode_chat(content).first_tokens == first_tokens


def test_a_dialect_moves_the_temperature_makes_room_for_thoughts_and_adds_keys() -> None:
    dialect = Dialect(
        least_temperature=0.01, most_temperature=0.4, thinking_tokens=100, more={"thinking": {"type": "on"}}
    )
    body = json.loads(encode_chat(PLAIN, "m", None, dialect))
    assert {key: body[key] for key in ("max_tokens", "temperature", "thinking")} == {
        "max_tokens": 107,
        "temperature": 0.4,
        "thinking": {"type": "on"},
    }
    assert dialect.temperature(0.0) == 0.01


@pytest.mark.parametrize(("mode", "sent"), [("object", {"type": "json_object"}), ("none", None)])
def test_json_is_asked_for_as_the_dialect_has_it(mode: Any, sent: object) -> None:
    request = ChatRequest(PLAIN.messages, json_schema={"type": "object"})
    assert json.loads(encode_chat(request, "m", None, Dialect(json_mode=mode))).get("response_format") == sent


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"least_temperature": 1.5, "most_temperature": 1.0}, "least_temperature is higher than most_temperature"),
        ({"more": {"seed": 3}}, "more: seed is set by each request; take it out"),
    ],
)
def test_a_dialect_that_contradicts_itself_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Dialect(**values)


NOT_SENT = {
    "text that is no Unicode": (ChatRequest((Message(role="user", content="\ud800"),)), "surrogates not allowed"),
    "a schema that is no JSON": (
        ChatRequest(PLAIN.messages, json_schema={"enum": {1}}),
        "Type is not JSON serializable: set",
    ),
}


@pytest.mark.parametrize(("request_", "reason"), NOT_SENT.values(), ids=NOT_SENT)
def test_what_cannot_be_sent_is_a_fault_of_the_data(request_: ChatRequest, reason: str) -> None:
    with pytest.raises(DataError, match=f"^a chat cannot be sent: .*{reason}; mend its text or its schema$"):
        encode_chat(request_, "m", None)


READ = {
    "cached tokens": (
        answer(usage={"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 4}}),
        Reply("yes", "stop", TokenUsage(5, 1, 4), "m"),
    ),
    # of tokens that were read for others, a server may count more than the prompt has
    "more cached tokens than there are": (
        answer(usage={"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}),
        Reply("yes", "stop", TokenUsage(5, 1, 5), "m"),
    ),
    "all tokens spent on reasoning": (
        answer(choices=choice(None, "length")),
        Reply("", "length", TokenUsage(5, 1, 0), "m"),
    ),
    "tokens that Kimi found in its cache": (
        answer(usage={"prompt_tokens": 5, "completion_tokens": 1, "cached_tokens": 2}),
        Reply("yes", "stop", TokenUsage(5, 1, 2), "m"),
    ),
    "an answer in parts": (
        answer(choices=choice([{"type": "text", "text": "ye"}, {"type": "image"}, {"type": "text", "text": "s"}])),
        Reply("yes", "stop", TokenUsage(5, 1, 0), "m"),
    ),
    **{
        f"thoughts as {key}": (
            answer(choices=[{"message": {"content": "yes", key: value}, "finish_reason": "stop"}]),
            Reply("yes", "stop", TokenUsage(5, 1, 0), "m", "hm"),
        )
        for key, value in {
            "reasoning_content": "hm\n",
            "reasoning": "hm",
            "reasoning_details": [{"text": "hm"}],
        }.items()
    },
    "no error of MiniMax": (
        answer(base_resp={"status_code": 0, "status_msg": ""}),
        Reply("yes", "stop", TokenUsage(5, 1, 0), "m"),
    ),
}


@pytest.mark.parametrize(("content", "reply"), READ.values(), ids=READ)
def test_what_servers_vary_is_read(content: bytes, reply: Reply) -> None:
    assert decode_chat(content) == reply


NO_ANSWER = {
    "nothing": b"",
    "no JSON": b"<html>Bad gateway</html>",
    "half an answer": answer()[:60],
    "a list": b"[]",
    "no choices": answer(choices=[]),
    "two choices": answer(choices=choice("a") + choice("b")),
    "a choice without a message": answer(choices=[{"finish_reason": "stop"}]),
    "a message that is none": answer(choices=[{"message": "hello", "finish_reason": "stop"}]),
    "content that is no text": answer(choices=choice(["yes"])),
    "no usage": answer(usage=None),
    "tokens that are no number": answer(usage={"prompt_tokens": "5", "completion_tokens": 1}),
    "tokens that are true": answer(usage={"prompt_tokens": True, "completion_tokens": 1}),
    "fewer tokens than none": answer(usage={"prompt_tokens": 5, "completion_tokens": -1}),
    "details that are none": answer(usage={"prompt_tokens": 5, "completion_tokens": 1, "prompt_tokens_details": [1]}),
    "no model": answer(model=None),
    "an error with status 200": b'{"error": {"message": "overloaded"}}',
    "bytes that are no text": b'{"model": "\xff"}',
}


@pytest.mark.parametrize("content", NO_ANSWER.values(), ids=NO_ANSWER)
def test_what_is_no_answer_is_a_fault_of_the_actor(content: bytes) -> None:
    with pytest.raises(Fault) as caught:
        decode_chat(content)
    assert caught.value.kind is FaultKind.MALFORMED
    assert caught.value.message.startswith("answers with something else than ")


@pytest.mark.parametrize(
    ("code", "kind"), [(1002, FaultKind.LIMITED), (1013, FaultKind.FAILED), (1004, FaultKind.REFUSED)]
)
def test_an_error_that_minimax_reports_with_status_200_is_one(code: int, kind: FaultKind) -> None:
    with pytest.raises(Fault) as caught:
        decode_chat(answer(choices=None, base_resp={"status_code": code, "status_msg": "no  luck"}))
    assert (caught.value.kind, caught.value.message) == (kind, f"answers with its code {code}: no luck")


@pytest.mark.parametrize("reason", ["abort", "error", "content_filter", None, 5])
def test_an_answer_that_the_server_ended_is_none(reason: object) -> None:
    with pytest.raises(Fault) as caught:
        decode_chat(answer(choices=choice("ye", reason)))
    assert (caught.value.kind, caught.value.message) == (FaultKind.FAILED, f"ended the answer by itself: {reason!r}")


SAID = {
    "in the shape of OpenAI": (b'{"error": {"message": "too  long\\n", "code": 400}}', "too long"),
    "in an older shape of vLLM": (b'{"object": "error", "message": "too long"}', "too long"),
    "an error that is text": (b'{"error": "too long"}', "too long"),
    "a page": (b"<html>\n<b>502</b></html>", "<html> <b>502</b></html>"),
    "a list": (b"[1]", "[1]"),
    "nothing": (b"", "nothing more"),
    "very much": (b"x" * 1000, "x" * 300),
}


@pytest.mark.parametrize(("content", "message"), SAID.values(), ids=SAID)
def test_the_message_of_an_error_is_one_short_line(content: bytes, message: str) -> None:
    assert error_message(content) == message
