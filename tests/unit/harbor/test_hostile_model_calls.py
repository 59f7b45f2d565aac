"""What clients and servers send that is no call and no answer, by the proxy between them."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from graftline.harbor.contract import FailureCause
from tests.harbor_parts import wait_for
from tests.unit.harbor.proxied import WRONG, Open


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    "body",
    [
        {"messages": 5, "input": 5, "system": 5},
        {"messages": [5, None, {}, {"content": {"a": 1}}], "input": [5, {}, {"type": 5}], "system": [5]},
        {"messages": [{"role": 5, "content": [{"type": "tool_use", "input": 5}, {"type": "tool_result", "content": 5}]}]},
        {"stream_options": [], "logprobs": "x", "tools": 5, "instructions": {"a": 1}},
        {"stream": True, "stream_options": {"include_usage": 5}, "tools": {}},
        {"input": [{"type": "function_call"}, {"type": "message", "content": [{"text": 5}]}]},
    ],
)  # fmt: skip
def test_whatever_a_client_sends_is_passed_on_and_can_be_read_back(
    opened: Open, path: str, body: dict[str, Any]
) -> None:
    proxied = opened()
    response = proxied.client.post(path, json={"model": "m", **body})
    assert response.status_code == 200
    [call] = proxied.calls()
    assert call.fault == ""


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b"<html>",
        b'{"choices": []}',
        b'{"choices": [5]}',
        b'{"choices": [{"message": 5}]}',
        b'data: {"choices": [5]}\n\n',
        b'data: {"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}\n\n',
        b'data: {"choices": [{"delta": {}, "finish_reason": null}]}\n\n',
        b"data: [DONE]\n\n",
        b'data: {"error": "x"}\n\n',
        b'data: {"error": 5}\n\n',
    ],
)
def test_a_server_that_talks_nonsense_has_failed(opened: Open, raw: bytes, is_stream: bool) -> None:
    proxied = opened()
    proxied.model.raw = raw
    if is_stream:
        with pytest.raises(httpx.RemoteProtocolError):
            proxied.post(stream=True)
    else:
        assert proxied.post().status_code == 502
    [call] = proxied.calls()
    assert call.fault
    assert proxied.judge(WRONG).failure_cause is FailureCause.MODEL_PROVIDER_FAILED


def test_a_box_that_floods_the_proxy_is_refused_and_others_are_not(opened: Open) -> None:
    proxied = opened()
    proxied.model.is_silent = True
    with ThreadPoolExecutor(64) as threads:
        flood = [threads.submit(proxied.post) for _ in range(64)]
        wait_for(lambda: proxied.model.in_flight == 64)
        assert proxied.post().status_code == 429
        proxied.model.is_silent = False
        other = proxied.proxy.sessions.open("rol_2", 1)
        headers = {"Authorization": f"Bearer {other.key}"}
        body = {"model": "m", "messages": []}
        assert proxied.client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        proxied.proxy.sessions.close(proxied.session)
        assert {request.result().status_code for request in flood} == {401}
