import asyncio
import hashlib
import logging
import pickle
import re
import socket
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor import client as client_module
from graftline.harbor.address import HarborDeploymentRef, check_url
from graftline.harbor.client import HarborAPIError, HarborClient, HarborTimeoutError, RetryPolicy
from graftline.harbor.event_loop import Background
from tests.harbor_server import Fault, HarborServer
from tests.http_server import HttpAnswer, serve_answers

PATH = "/api/harbor/deployments"
LIST, CREATE = f"GET {PATH}", f"POST {PATH}"
BRISK = RetryPolicy(timeout_s=20.0, first_pause_s=0.001, longest_pause_s=0.002)
BODY = {"name": "tests"}


@pytest.fixture
def server(running_server: HarborServer) -> HarborServer:
    running_server.renew()
    return running_server


def client_of(server: HarborServer, patience: RetryPolicy = BRISK) -> HarborClient:
    return HarborClient(server.url, server.key, patience)


def listed(client: HarborClient) -> object:
    return client.request("GET", PATH, query={"limit": 10, "status": None})


EMPTY = {"deployments": [], "total": 0, "next_cursor": None}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429),
        Fault(status=429, retry_after="0"),
        Fault(status=500),
        Fault(status=502, content=b"<html>bad gateway</html>"),
        Fault(status=503),
        Fault(torn=True),
    ],
)
def test_a_read_is_tried_again(server: HarborServer, fault: Fault) -> None:
    server.fail(LIST, fault, fault)

    assert listed(client_of(server)) == EMPTY
    assert len(server.of(LIST)) == 3


@pytest.mark.parametrize("fault", [Fault(status=500), Fault(status=503), Fault(torn=True), Fault(status=429)])
def test_a_write_without_a_key_is_not_tried_again_where_it_may_have_been_carried_out(
    server: HarborServer, fault: Fault
) -> None:
    server.fail(CREATE, fault)

    with pytest.raises(HarborError):
        client_of(server).request("POST", PATH, BODY)

    assert len(server.of(CREATE)) == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_write_without_a_key_is_tried_again_where_the_service_says_when(server: HarborServer, status: int) -> None:
    server.fail(CREATE, Fault(status=status, retry_after="0"))

    assert client_of(server).request("POST", PATH, BODY)["id"] == "dep-1"
    assert len(server.of(CREATE)) == 2


def test_a_write_with_a_key_is_carried_out_once_though_its_answer_was_lost(server: HarborServer) -> None:
    server.fail(CREATE, Fault(torn=True, is_carried_out=True), Fault(status=500))

    found = client_of(server).request("POST", PATH, BODY, idempotency_key="k-1")

    assert (found["id"], found["version"], len(server.deployments)) == ("dep-1", 1, 1)
    assert [asked.headers["idempotency-key"] for asked in server.of(CREATE)] == ["k-1", "k-1", "k-1"]


def test_what_is_refused_is_not_tried_again_and_says_why(server: HarborServer) -> None:
    with pytest.raises(HarborAPIError) as caught:
        client_of(server).request("GET", f"{PATH}/none", query={"limit": 1})

    error = caught.value
    assert (error.status_code, error.status, error.code, error.details) == (404, 404, "not_found", {"of": "not_found"})
    assert str(error) == f"GET {server.url}{PATH}/none: answers 404 Not Found: 'none': there is none"
    assert len(server.asked) == 1
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_server_that_echoes_the_key_in_its_status_line_is_not_quoted() -> None:
    with (
        serve_answers(lambda request: HttpAnswer(status=403, phrase=f"no {request.headers['Authorization']}")) as url,
        pytest.raises(HarborAPIError, match="answers 403 Forbidden") as caught,
    ):
        listed(HarborClient(url, "a-wrong-key", BRISK))
    assert "a-wrong-key" not in repr(caught.value)


def test_the_key_is_in_no_error_no_log_and_no_repr(server: HarborServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.fail(LIST, Fault(torn=True))
    client = HarborClient(server.url, "a-wrong-key", BRISK)

    with pytest.raises(HarborAPIError) as caught:
        listed(client)

    assert "[secret]' is not a key; check the key" in str(caught.value)
    told = f"{caught.value!r} {caught.value.details} {client!r} {vars(client)['_key']!r} {caplog.text}"
    assert "a-wrong-key" not in told
    ref = HarborDeploymentRef("dep-1", server.url, "a-wrong-key")
    assert "a-wrong-key" not in repr(ref)


def test_a_service_that_fails_on_is_given_up(server: HarborServer) -> None:
    server.fail(LIST, *[Fault(status=500)] * 9)

    with pytest.raises(HarborAPIError, match="answers 500 Internal Server Error: as the test has it"):
        listed(client_of(server, BRISK._replace(max_retries=3)))

    assert len(server.asked) == 4


def test_a_service_that_is_busy_is_waited_for_up_to_the_deadline_alone(server: HarborServer) -> None:
    server.fail(LIST, *[Fault(status=429, retry_after="0")] * 9)

    assert listed(client_of(server, BRISK._replace(max_retries=0))) == EMPTY


def test_a_pause_beyond_the_deadline_is_not_begun(server: HarborServer) -> None:
    server.fail(LIST, Fault(status=429, retry_after="600"))

    with pytest.raises(
        HarborAPIError, match="answers 429 Too Many Requests: as the test has it; asks to be left alone for 600 s"
    ):
        listed(client_of(server))

    assert len(server.asked) == 1


def test_the_deadline_ends_a_request_that_is_not_answered(server: HarborServer) -> None:
    server.fail(LIST, Fault(silent_s=0.5))

    with pytest.raises(HarborTimeoutError, match=r"no answer within 0\.1 s; it may have been carried out") as caught:
        listed(client_of(server, BRISK._replace(timeout_s=0.1)))

    assert isinstance(caught.value, TimeoutError)


def test_a_silence_within_the_deadline_is_tried_again(server: HarborServer) -> None:
    server.fail(LIST, Fault(silent_s=0.3))

    assert listed(client_of(server, BRISK._replace(read_s=0.1))) == EMPTY


def test_a_service_that_is_not_there_is_tried_for_its_time_and_named() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        client = HarborClient(url, "key", BRISK._replace(unreachable_s=0.01))

        with pytest.raises(HarborError) as caught:
            client.request("POST", PATH, BODY)

    assert (
        str(caught.value) == f"POST {url}{PATH}: cannot be reached (Connection refused); is the service running there?"
        " `graftline env serve` starts one here"
    )


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(status=200, content=b"<html>"), "the answer is not JSON; check backend_url"),
        (Fault(status=302, headers={"location": "http://127.0.0.1:1/"}), "answers 302 Found: as the test has it"),
        (Fault(status=599), "answers 599: as the test has it"),
        (Fault(status=418, content=b'{"detail": "no coffee"}'), "answers 418 I'm a teapot: no coffee"),
        (Fault(status=400, content=b'["a"]'), 'answers 400 Bad Request: ["a"]'),
        (Fault(status=400, content=b"\xff"), "answers 400 Bad Request: \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_whatever_answers_the_error_says_what(server: HarborServer, fault: Fault, said: str) -> None:
    server.fail(LIST, fault)

    with pytest.raises(HarborError) as caught:
        listed(client_of(server))

    assert str(caught.value) == f"GET {server.url}{PATH}: {said}"


def test_an_answer_is_read_up_to_a_bound(server: HarborServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 100)
    server.fail(LIST, Fault(status=200, content=b"[" + b" " * 200 + b"]"))

    with pytest.raises(HarborError, match="answers with more than 100 bytes"):
        listed(client_of(server))


def test_the_sync_face_works_inside_a_running_loop(server: HarborServer) -> None:
    async def notebook() -> object:
        return listed(client_of(server))

    assert asyncio.run(notebook()) == EMPTY


def test_what_json_cannot_say_is_refused_before_anything_is_sent(server: HarborServer) -> None:
    with pytest.raises(ConfigError, match="holds what JSON cannot say"):
        client_of(server).request("POST", PATH, {"name": float("nan")})

    assert server.asked == []


@pytest.mark.parametrize("key", ["a b", "a\r\nx-evil: 1", "schlüssel"])
def test_an_idempotency_key_that_no_header_takes_is_sent_as_its_digest(server: HarborServer, key: str) -> None:
    client_of(server).request("POST", PATH, BODY, idempotency_key=key)

    assert server.asked[0].headers["idempotency-key"] == hashlib.sha256(key.encode()).hexdigest()
    assert "x-evil" not in server.asked[0].headers


def test_work_in_a_thread_of_its_own_can_be_cancelled() -> None:
    ended = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    work = Background(forever())
    assert (work.is_done, work.fault) == (False, None)
    work.cancel()

    with pytest.raises(asyncio.CancelledError):
        work.result(20)
    assert ended == [True]
    work.cancel()


def test_calls_of_one_loop_share_their_connections(server: HarborServer) -> None:
    client = client_of(server)

    async def calls() -> set[int]:
        async with client.session() as first:
            await client.request_async("GET", PATH, query={"limit": 1})
            async with client.session() as second:
                return {id(first), id(second)}

    assert len(asyncio.run(calls())) == 1
    # and none is held afterwards
    assert client._sessions == {}


@pytest.mark.parametrize(
    ("urls", "fault"),
    [
        (
            ("ftp://example.org", "example.org", "https://:1", "https://host:port", "https://[::1"),
            "is no URL of a service; expected https://host[:port][/path]",
        ),
        (("https://me:word@example.org", "https://example.org/?a=1"), "holds a user, a query or a fragment"),
        (("http://example.org",), "would send the key unencrypted to another machine; use https"),
    ],
)
def test_an_address_that_a_key_must_not_go_to_is_refused(urls: tuple[str, ...], fault: str) -> None:
    for url in urls:
        with pytest.raises(ConfigError, match=re.escape(fault)) as caught:
            HarborClient(url, "key")
        assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["https://example.org/prefix", "http://127.0.0.1:80", "http://[::1]", "http://localhost:1", "http://a.localhost"],
)
def test_an_address_may_have_a_path_and_be_plain_on_this_machine_or_where_that_is_allowed(url: str) -> None:
    assert check_url(f"{url}/") == url
    assert check_url("http://example.org", allow_http=True) == "http://example.org"


def test_url_and_key_are_read_from_the_environment() -> None:
    other = {"SYNTH_BACKEND_URL": "https://a.example/", "SYNTH_API_KEY": "a"}
    own = {**other, "GRAFTLINE_HARBOR_URL": "https://b.example", "GRAFTLINE_HARBOR_KEY": "b"}

    assert HarborClient(environment=other).url == "https://a.example"
    assert HarborClient(environment=own).url == "https://b.example"
    assert HarborClient("https://c.example", environment=own).url == "https://c.example"


def test_no_url_and_no_key_are_told_apart() -> None:
    with pytest.raises(
        ConfigError, match="backend_url: no Harbor service is named; give backend_url, or set GRAFTLINE_"
    ):
        HarborClient(api_key="key", environment={})
    with pytest.raises(
        ValueError, match="api_key: no key is given; give api_key, or set GRAFTLINE_HARBOR_KEY or SYNTH_"
    ):
        HarborClient("https://example.org", environment={})


@pytest.mark.parametrize("key", ["a b", "a\r\nx-evil: 1", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match=r"^api_key: holds a character that no key has") as caught:
        HarborClient("https://example.org", key)

    assert key not in str(caught.value)


def test_a_reference_has_the_urls_of_its_deployment() -> None:
    ref = HarborDeploymentRef("a name/1", "https://example.org/prefix/", "key")

    assert ref.task_app_url == "https://example.org/prefix/api/harbor/deployments/a%20name%2F1"
    assert HarborDeploymentRef.of_url(ref.task_app_url, "key") == HarborDeploymentRef(
        "a name/1", "https://example.org/prefix", "key"
    )
    assert HarborDeploymentRef.of_url("https://example.org/other/app") is None


@pytest.mark.parametrize("deployment_id", ["", "  ", "..", "/"])
def test_a_reference_names_something(deployment_id: str) -> None:
    with pytest.raises(ValueError, match="names no deployment"):
        HarborDeploymentRef(deployment_id)


def test_the_sdk_imports_nothing_of_the_service() -> None:
    folder = Path(client_module.__file__).parent
    names = ["client", "event_loop", "uploader", "instances", "address", "execution", "messages"]

    assert [name for name in names if "harbor.service" in (folder / f"{name}.py").read_text("utf-8")] == []
