"""The proxy between agents and models: what reaches a client, what is recorded, who is refused, and what a failure says."""

import json
import threading
from typing import Any

import httpx
import pytest

from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution
from tests.harbor_parts import wait_for
from tests.streaming_model import PROMPT_IDS, StreamingModel
from tests.unit.harbor.proxied import ASKED, KEY, RIGHT, WRONG, Open, calls_in


def events_of(response: httpx.Response) -> list[Any]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_is_recorded_with_token_ids_and_logprobs_that_the_client_does_not_see(
    opened: Open, is_stream: bool
) -> None:
    proxied = opened()
    response = proxied.post(stream=is_stream, temperature=0.5)
    assert response.status_code == 200
    assert "token_ids" not in response.text
    assert "logprob" not in response.text
    if is_stream:
        assert [event["choices"][0]["delta"] for event in events_of(response)] == [
            {"content": "Hel"},
            {"content": "lo"},
            {},
        ]
        assert response.text.endswith("data: [DONE]\n\n")
    else:
        assert response.json()["choices"][0]["message"]["content"] == "Hello"
        assert response.json()["usage"]["completion_tokens"] == 2
    [call] = proxied.calls()
    assert (call.rollout_id, call.attempt, call.number) == ("rol_1", 1, 1)
    assert call.messages == tuple(ASKED)
    assert call.answer["content"] == "Hello"
    assert call.finish_reason == "stop"
    assert call.parameters["temperature"] == 0.5
    assert (call.prompt_token_ids, call.token_ids, call.logprobs) == (tuple(PROMPT_IDS), (21, 22), (-0.5, -0.5))
    assert (call.prompt_tokens, call.completion_tokens, call.is_estimated, call.fault) == (3, 2, False, "")
    # 3 tokens asked, 2 answered
    assert call.cost_usd == 23.0
    judged = proxied.judge(RIGHT)
    assert (judged.reward, judged.failure_cause, judged.tokens, judged.cost_usd) == (1.0, None, 5, 23.0)


def test_what_the_client_asks_for_itself_reaches_it(opened: Open) -> None:
    proxied = opened()
    options = {"include_usage": True}
    events = events_of(proxied.post(stream=True, logprobs=True, return_token_ids=True, stream_options=options))
    assert events[0]["choices"][0]["token_ids"] == [21]
    assert events[0]["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.5
    assert events[0]["prompt_token_ids"] == PROMPT_IDS
    assert events[-1]["usage"]["total_tokens"] == 5


def test_a_service_is_asked_for_nothing_that_it_may_not_know(opened: Open) -> None:
    proxied = opened(engine="service")
    assert proxied.post().status_code == 200
    assert proxied.model.asked == [{"model": "m", "messages": ASKED}]
    [call] = proxied.calls()
    assert (call.token_ids, call.completion_tokens) == ((), 2)


def test_the_server_gets_its_own_key_and_the_client_never_sees_it(opened: Open) -> None:
    proxied = opened()
    proxied.model.status = 500
    response = proxied.post()
    assert proxied.model.keys == [f"Bearer {KEY}"]
    assert KEY not in response.text
    assert "[secret]" in response.text
    assert KEY not in (proxied.folder / "rol_1" / "1.jsonl").read_text("utf-8")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/v1/messages"])
def test_the_other_interfaces_are_recorded_as_chats(opened: Open, path: str, is_stream: bool) -> None:
    proxied = opened(StreamingModel(tool_call={"name": "run", "arguments": '{"command":"ls"}'}))
    is_response = path.endswith("responses")
    asked: dict[str, Any] = {
        "model": "m",
        "stream": is_stream,
        "instructions": "Be brief",
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello"}]},
            {"type": "function_call", "call_id": "c", "name": "run", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
        ],
    }
    if not is_response:
        use = {"type": "tool_use", "id": "c", "name": "run", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "done"}]}
        messages = [*ASKED, {"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        asked = {"model": "m", "stream": is_stream, "system": "Be brief", "messages": messages, "max_tokens": 9}
    assert proxied.client.post(path, json=asked).status_code == 200
    [call] = proxied.calls()
    assert call.messages == (
        {"role": "system", "content": "Be brief"},
        *ASKED,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    )
    assert call.answer["content"] == "Hello"
    if is_response or is_stream:
        [tool_call] = call.answer["tool_calls"]
        assert tool_call["function"] == {"name": "run", "arguments": '{"command":"ls"}'}
        assert tool_call["id"] == "call-1"
    assert (call.prompt_tokens, call.completion_tokens, call.cached_tokens) == (3, 2, 1)


def test_tool_calls_of_a_stream_are_put_together(opened: Open) -> None:
    proxied = opened(StreamingModel(["x"], {"name": "run", "arguments": '{"command":"ls"}'}))
    proxied.post(stream=True)
    [call] = proxied.calls()
    function = {"name": "run", "arguments": '{"command":"ls"}'}
    assert call.answer["tool_calls"] == [{"id": "call-1", "type": "function", "function": function}]


@pytest.mark.parametrize("says_error", [False, True])
def test_a_stream_whose_model_dies_is_broken_off_and_never_a_reward(opened: Open, says_error: bool) -> None:
    proxied = opened()
    proxied.model.dies_after, proxied.model.says_error = 1, says_error
    with pytest.raises(httpx.RemoteProtocolError):
        proxied.post(stream=True)
    [call] = proxied.calls()
    assert call.answer["content"] == "Hel"
    assert call.fault
    # as far as it came, for its budget
    assert (call.prompt_tokens, call.is_estimated) == (3, True)
    assert call.completion_tokens >= 1
    judged = proxied.judge(WRONG)
    assert (judged.reward, judged.failure_cause) == (None, FailureCause.MODEL_PROVIDER_FAILED)
    assert judged.success_status is SuccessStatus.NETWORK_ERROR
    assert judged.details["reported_reward"] == 0.0
    assert judged.tokens == call.prompt_tokens + call.completion_tokens


def test_a_failure_that_the_agent_got_over_is_none(opened: Open) -> None:
    proxied = opened()
    proxied.model.status = 503
    response = proxied.post()
    assert (response.status_code, response.headers["retry-after"]) == (503, "7")
    proxied.model.status = 200
    assert proxied.post().status_code == 200
    assert proxied.judge(RIGHT).reward == 1.0


def test_what_the_server_refuses_of_an_agent_is_the_agents(opened: Open) -> None:
    proxied = opened()
    assert proxied.post().status_code == 200
    proxied.model.status = 400
    assert proxied.post().status_code == 400
    judged = proxied.judge(WRONG)
    assert (judged.reward, judged.failure_cause, judged.tokens) == (0.0, None, 5)


def test_a_server_that_refuses_every_call_says_nothing_of_the_agent(opened: Open) -> None:
    # as one that was started without tools
    proxied = opened()
    proxied.model.status = 400
    assert proxied.post().status_code == 400
    judged = proxied.judge(WRONG)
    assert (judged.reward, judged.failure_cause, judged.tokens) == (None, FailureCause.UNCLASSIFIED, 0)
    assert judged.error.startswith("no model has answered: answers 400: no, Bearer [secret]")


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500])
def test_what_is_not_about_what_was_asked_is_the_servers(opened: Open, status: int) -> None:
    proxied = opened()
    assert proxied.post().status_code == 200
    proxied.model.status = status
    assert proxied.post().status_code == status
    judged = proxied.judge(WRONG)
    assert (judged.reward, judged.failure_cause) == (None, FailureCause.MODEL_PROVIDER_FAILED)


def test_a_record_that_cannot_be_written_is_the_services(opened: Open) -> None:
    proxied = opened()
    (proxied.folder / "rol_1").write_text("in the way", "utf-8")
    assert proxied.post().status_code == 200
    judged = proxied.judge(RIGHT)
    assert (judged.reward, judged.failure_cause) == (None, FailureCause.HARBOR_FAILED)
    assert judged.error.startswith("what its model was asked cannot be written down")


def test_a_server_that_says_something_else_of_its_tokens_costs_the_trajectory_alone(opened: Open) -> None:
    proxied = opened()
    assert proxied.post().status_code == 200
    path = proxied.folder / "rol_1" / "1.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"token_ids":[21,22]', b'"token_ids":["a"]'))
    proxied.proxy.sessions.close(proxied.session)
    judged = proxied.proxy.judge(proxied.session, RIGHT, "codex")
    assert (judged.reward, judged.result) == (1.0, {})


def test_a_server_that_falls_silent_has_failed(opened: Open) -> None:
    proxied = opened(silence_s=0.05)
    proxied.model.piece_s = 600
    with pytest.raises(httpx.RemoteProtocolError):
        proxied.post(stream=True)
    assert proxied.judge(WRONG).failure_cause is FailureCause.MODEL_PROVIDER_FAILED


def test_a_server_that_is_away_leaves_its_calls_to_the_others(opened: Open) -> None:
    proxied = opened(more_urls=("http://127.0.0.1:9", "http://127.0.0.1:10"))
    assert proxied.post().status_code == 200


def test_no_server_at_all_is_a_failure_of_the_machine_that_cost_nothing(opened: Open) -> None:
    proxied = opened()
    proxied.model.__exit__()
    proxied.model.__exit__ = lambda *_: None  # type: ignore[method-assign]
    assert proxied.post().status_code == 502
    judged = proxied.judge(WRONG)
    assert (judged.failure_cause, judged.tokens, judged.cost_usd) == (FailureCause.MODEL_PROVIDER_FAILED, 0, 0.0)


def test_who_has_no_key_of_a_rollout_that_runs_is_refused(opened: Open) -> None:
    proxied = opened()
    for headers in ({"Authorization": "Bearer x"}, {"Authorization": f"Bearer {KEY}"}, {"Authorization": ""}):
        assert proxied.client.post("/v1/chat/completions", json={}, headers=headers).status_code == 401
    proxied.proxy.sessions.close(proxied.session)
    assert proxied.post().status_code == 401
    assert not proxied.model.asked


def test_another_model_is_refused_by_name_or_mapped_as_configured(opened: Open) -> None:
    proxied = opened(aliases={"gpt-4o-mini": "m"})
    response = proxied.post(model="claude")
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "the model 'claude' is not served here; served: m, gpt-4o-mini"
    judged_so_far = proxied.session.judge(WRONG)
    assert (judged_so_far.reward, judged_so_far.failure_cause) == (None, FailureCause.UNCLASSIFIED)
    assert "'claude' is not served" in judged_so_far.error
    assert proxied.post(model="gpt-4o-mini").status_code == 200
    [call] = proxied.calls()
    assert (call.requested_model, call.model) == ("gpt-4o-mini", "m")
    assert proxied.model.asked[0]["model"] == "m"
    assert proxied.judge(WRONG).reward == 0.0
    assert proxied.client.get("/v1/models").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/embeddings", b"{}", 404),
        ("GET", "/v1/chat/completions", b"", 404),
        ("POST", "/v1/chat/completions", b"[]", 400),
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b'{"model": "m", "n": 2}', 400),
        ("POST", "/v1/chat/completions", b'{"model": "m", "stream": "yes"}', 400),
        ("POST", "/v1/messages", b'{"model": "m", "metadata": ' + b"[" * 500 + b"]" * 500 + b"}", 400),
        ("POST", "/v1/chat/completions", b'{"model": {"a": 1}}', 404),
        ("POST", "/v1/responses", b'{"model": "m", "previous_response_id": "r"}', 400),
    ],
)
def test_what_is_no_call_is_refused(opened: Open, method: str, path: str, content: bytes, status: int) -> None:
    proxied = opened()
    response = proxied.client.request(method, path, content=content)
    assert response.status_code == status
    assert response.json()["error"]["message"]
    assert not proxied.model.asked


def test_the_budget_of_an_attempt_is_the_agents(opened: Open) -> None:
    proxied = opened(limits={"max_tokens": 5})
    assert proxied.post().status_code == 200
    response = proxied.post()
    assert response.status_code == 402
    assert response.json()["error"]["code"] == "budget_exhausted"
    judged = proxied.judge(Execution(SuccessStatus.SUCCESS, 0.25))
    assert (judged.reward, judged.failure_cause) == (0.25, FailureCause.AGENT_EXHAUSTED_BUDGET)
    assert judged.error == "the rollout has used 5 tokens, of 5"


def test_a_stream_is_ended_where_the_budget_is(opened: Open) -> None:
    proxied = opened(StreamingModel(["x "] * 500), limits={"max_tokens": 64})
    with pytest.raises(httpx.RemoteProtocolError):
        proxied.post(stream=True)
    [call] = proxied.calls()
    assert 64 <= call.completion_tokens <= 96
    assert proxied.judge(WRONG).failure_cause is FailureCause.AGENT_EXHAUSTED_BUDGET


def test_the_budget_of_a_job_counts_all_its_attempts_and_ends_them(opened: Open) -> None:
    proxied = opened(budget={"max_usd": 100.0, "usd": 60.0})
    ended = threading.Event()
    other = proxied.proxy.sessions.open("rol_2", 1, "job_1", {"max_usd": 100.0, "usd": 60.0})
    other.end_rollout = ended.set
    assert proxied.post().status_code == 200
    proxied.proxy.sessions.close(proxied.session)
    headers = {"Authorization": f"Bearer {other.key}"}
    body = {"model": "m", "messages": ASKED}
    assert proxied.client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    # 60 before, and 23 of each of the two
    assert proxied.client.post("/v1/chat/completions", json=body, headers=headers).status_code == 402
    assert ended.is_set()
    judged = other.judge(WRONG)
    assert (judged.reward, judged.failure_cause) == (None, FailureCause.CANCELLED)
    assert judged.error == "its budget is used up: the job has used 106.0000 USD, of 100"


def test_more_calls_than_may_wait_are_refused_and_the_others_take_turns(opened: Open) -> None:
    proxied = opened(at_once=1, waiting=1)
    proxied.model.is_silent = True
    responses: list[int] = []
    threads = [threading.Thread(target=lambda: responses.append(proxied.post().status_code)) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_for(lambda: proxied.model.in_flight == 1 and proxied.proxy._waiting == 1)
    refused = proxied.post()
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert proxied.session.judge(WRONG).failure_cause is FailureCause.MODEL_PROVIDER_FAILED
    assert proxied.model.most_in_flight == 1
    proxied.proxy.sessions.close(proxied.session)
    for thread in threads:
        thread.join()
    assert proxied.model.hung_up == 1


def test_a_client_that_hangs_up_ends_the_call_at_the_server(opened: Open) -> None:
    proxied = opened()
    proxied.model.is_silent = True
    with pytest.raises(httpx.ReadTimeout):
        proxied.client.post("/v1/chat/completions", json={"model": "m", "messages": ASKED}, timeout=0.2)
    wait_for(lambda: proxied.model.hung_up == 1)
    wait_for(lambda: len(proxied.calls()) == 1)
    assert proxied.calls()[0].fault == "the client hung up"
    assert proxied.judge(WRONG).failure_cause is None


def test_the_end_of_an_attempt_ends_its_calls_and_counts_them(opened: Open) -> None:
    proxied = opened()
    proxied.model.is_silent = True
    thread = threading.Thread(target=proxied.post)
    thread.start()
    wait_for(lambda: proxied.model.in_flight == 1)
    judged = proxied.judge(WRONG)
    thread.join()
    wait_for(lambda: proxied.model.hung_up == 1)
    [call] = proxied.calls()
    assert judged.tokens == call.prompt_tokens + call.completion_tokens > 0


def test_a_client_that_reads_slowly_holds_back_the_server(opened: Open) -> None:
    proxied = opened(StreamingModel(["x" * 10_000] * 2000), engine="service")
    body = {"model": "m", "messages": ASKED, "stream": True}
    with proxied.client.stream("POST", "/v1/chat/completions", json=body) as response:
        pieces = response.iter_raw(1000)
        next(pieces)
        # 20 MB do not fit into the buffers between them: the server waits, and nothing is kept here
        assert proxied.model.in_flight == 1
        assert sum(len(piece) for piece in pieces) > 20_000_000
    [call] = proxied.calls()
    assert len(call.answer["content"]) == 20_000_000


def test_calls_are_written_by_what_is_new_in_them_and_read_whole(opened: Open) -> None:
    proxied = opened(StreamingModel(["Hi"]))
    long = [{"role": "system", "content": "s" * 10_000}, *ASKED]
    further = [*long, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Again"}]
    for messages in (long, [{"role": "user", "content": "aside"}], further):
        proxied.post(messages=messages)
    path = proxied.folder / "rol_1" / "1.jsonl"
    lines = path.read_bytes().splitlines()
    assert len(lines[2]) < 1000
    calls = calls_in(path)
    assert [call.number for call in calls] == [1, 2, 3]
    assert [*calls[2].messages] == further
    assert calls[2].prompt_token_ids == tuple(PROMPT_IDS)
    # a line that was not written whole, as by a process that is killed
    path.write_bytes(path.read_bytes() + b'{"rollout_id": "rol')
    assert calls_in(path) == calls


def test_an_attempt_that_asked_no_model_is_left_as_it_is(opened: Open) -> None:
    proxied = opened()
    judged = proxied.judge(Execution(SuccessStatus.SUCCESS, 0.5, cost_usd=2.0, tokens=7))
    assert (judged.reward, judged.cost_usd, judged.tokens) == (0.5, 2.0, 7)
    judged = proxied.session.judge(Execution(SuccessStatus.SUCCESS, 0.5))
    assert (judged.cost_usd, judged.tokens) == (0.0, 0)
