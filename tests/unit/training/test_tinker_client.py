"""The client against a real server of a tiny model, and against one that fails in every way that services do."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Self

import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError, DataError, TrainingError
from graftline.training.sdk import DEFAULT_BASE_URL
from graftline.training.tinker import TinkerSDKClient
from tests.http_server import HttpAnswer, HttpRequest, serve_answers

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

KEY = "tml-secret-of-the-tests"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TINKER_")]:
        monkeypatch.delenv(name)
    # what a client sets for the process is taken back
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@dataclass(frozen=True)
class Fault:
    """What is answered instead."""

    status: int = 200
    body: bytes = b"{}"
    hangs: bool = False


ANSWERS: dict[str, dict[str, Any]] = {
    "healthz": {"status": "ok"},
    "client/config": {"use_pyqwest_transport": False},
    "client/dynamic_config": {},
    "create_session": {"type": "create_session", "session_id": "s"},
    "create_model": {"request_id": "r", "model_id": "m"},
    "session_heartbeat": {},
    "sessions/s/finish": {},
}


class FaultyService:
    """Opens sessions, and ends them; all else is 404, but for `faults`, by path."""

    def __init__(self, **faults: Fault) -> None:
        self.faults = {f"/api/v1/{path}": fault for path, fault in faults.items()}
        self.seen: list[tuple[str, str, dict[str, Any]]] = []
        self.keys: dict[str, str | None] = {}
        self.closing = threading.Event()
        self.url = ""
        self._stack = ExitStack()

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _ in self.seen]

    def __enter__(self) -> Self:
        self.url = self._stack.enter_context(serve_answers(self._answer))
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._stack.close()

    def _answer(self, request: HttpRequest) -> HttpAnswer | None:
        path = request.path.partition("?")[0]
        self.seen.append((request.method, path, json.loads(request.body or b"{}")))
        self.keys[path] = request.headers.get("X-API-Key")
        fault = self.faults.get(path)
        if fault is None:
            body = ANSWERS.get(path.removeprefix("/api/v1/"))
            fault = (
                Fault(404, b'{"detail": "no such thing here"}')
                if body is None
                else Fault(body=json.dumps(body).encode())
            )
        if fault.hangs:
            self.closing.wait()
            return None
        # the SDK's own retries take minutes
        return HttpAnswer(fault.body, fault.status, {"X-Should-Retry": "false"})


def client_of(service: FaultyService, deadline_s: float = 20.0) -> TinkerSDKClient:
    return TinkerSDKClient(KEY, service.url, deadline_s=deadline_s)


# the key and the address


def test_the_key_and_the_address_of_the_environment_are_taken_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert TinkerSDKClient().base_url == DEFAULT_BASE_URL
    monkeypatch.setenv("TINKER_API_KEY", f" {KEY}\n")
    monkeypatch.setenv("TINKER_BASE_URL", "http://127.0.0.1:1/")
    client = TinkerSDKClient()
    assert (client.is_available, client.base_url) == (True, "http://127.0.0.1:1")
    assert TinkerSDKClient(SecretStr("tml-other"), "https://example.org/x/").is_available
    # none, although the environment has one
    assert not TinkerSDKClient("").is_available


def test_the_default_address_is_that_of_the_sdk() -> None:
    from tinker.lib import base_url

    assert base_url.DEFAULT_BASE_URL == DEFAULT_BASE_URL


@pytest.mark.parametrize("key", ["test", "sk-secretsecret", "tml-se cret", "tml-secrét", "tml-sec\nret"])
def test_what_is_no_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^api_key: is no key of Tinker, which begins with 'tml-'") as caught:
        TinkerSDKClient(key)
    assert key[-6:] not in str(caught.value)
    monkeypatch.setenv("TINKER_API_KEY", key)
    with pytest.raises(ConfigError, match=r"^TINKER_API_KEY: is no key of Tinker"):
        TinkerSDKClient()


@pytest.mark.parametrize("key", [KEY, "eyJhbGciOi.x.y"])
def test_the_key_is_not_shown(key: str) -> None:
    client = TinkerSDKClient(key, "http://127.0.0.1:1")
    assert repr(client) == "TinkerSDKClient(base_url='http://127.0.0.1:1', is_available=True)"
    assert key not in str(vars(client))


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:8000", "ftp://127.0.0.1", "http://", "https:///x", "http://h:99999", "http://a b", "http://h/?x=1"],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^base_url: .* is no address; expected http:// or https://, a host"):
        TinkerSDKClient(KEY, url)


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"^base_url: holds a user or a password") as caught:
        TinkerSDKClient(KEY, "https://me:hidden@example.org")
    assert "hidden" not in str(caught.value)


def test_nothing_is_asked_without_a_key() -> None:
    with FaultyService() as service:
        client = TinkerSDKClient("", service.url)
        with pytest.raises(
            ConfigError,
            match=r"^creating an adapter on 'tiny': there is no API key; set TINKER_API_KEY; for `graftline tinker serve` of this",
        ):
            client.create_training_client("tiny")
        assert service.seen == []


@pytest.mark.parametrize("path", ["", "run/weights/a", "tinker://run/weights", "tinker://run/optimizer/a"])
def test_what_is_no_path_of_a_checkpoint_is_refused_before_anything_is_asked(path: str) -> None:
    with FaultyService() as service:
        client = client_of(service)
        for ask in (client.from_state, client.sampling_client, client.weights_info, client.delete_checkpoint):
            with pytest.raises(ConfigError, match=r"is no path of a checkpoint; expected tinker://RUN/KIND/NAME"):
                ask(path)
        assert service.seen == []


# telemetry


def test_telemetry_is_off_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_TELEMETRY")
    TinkerSDKClient(KEY)
    assert os.environ["TINKER_TELEMETRY"] == "0"
    monkeypatch.setenv("TINKER_TELEMETRY", "1")
    TinkerSDKClient(KEY)
    assert os.environ["TINKER_TELEMETRY"] == "1"


# a real server


# sessions


@pytest.mark.parametrize(
    ("error", "ending"), [(None, "success"), (ValueError, "errored"), (KeyboardInterrupt, "interrupted")]
)
def test_the_session_ends_as_the_block_does(error: type[BaseException] | None, ending: str) -> None:
    with FaultyService(create_model=Fault(400)) as service:
        with suppress(ValueError, KeyboardInterrupt), client_of(service) as client:
            with pytest.raises(DataError):
                client.create_training_client("tiny")
            if error is not None:
                raise error
        [(_, _, body)] = [seen for seen in service.seen if seen[1] == "/api/v1/sessions/s/finish"]
        assert body["reason"] == {"type": ending}
        assert "/api/v1/telemetry" not in service.paths


# faults


def test_an_address_where_nothing_listens_is_told_at_once() -> None:
    with socket.socket() as bound:
        # bound, but it does not listen
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        client, start = TinkerSDKClient(KEY, url), time.monotonic()
        with pytest.raises(
            TrainingError, match=rf"^{url}: cannot be reached .*mend base_url or TINKER_BASE_URL"
        ) as caught:
            client.create_training_client("tiny")
    assert time.monotonic() - start < 60
    assert caught.value.status is None


def test_a_service_that_answers_byte_by_byte_is_given_up_after_two_seconds() -> None:
    closing = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                for byte in b"HTTP/1.1 200 OK\r\n" * 10:
                    connection.sendall(bytes([byte]))
                    if closing.wait(0.2):
                        return

        threading.Thread(target=drip, daemon=True).start()
        start = time.monotonic()
        with pytest.raises(TrainingError, match="does not answer within 2 s"):
            TinkerSDKClient(KEY, f"http://127.0.0.1:{server.getsockname()[1]}").preflight()
        # the answer would take 34 s
        assert time.monotonic() - start < 30
        closing.set()


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(503), "answers 503 to /api/v1/healthz, so it is ill; try again later"),
        (Fault(429), "answers 429 to /api/v1/healthz, so it is ill"),
        (Fault(404), "answers 404 to /api/v1/healthz, so it is no Tinker service; mend base_url"),
    ],
)
def test_a_service_that_is_ill_or_none_is_not_asked(fault: Fault, said: str) -> None:
    with FaultyService(healthz=fault) as service:
        with pytest.raises(TrainingError, match=said):
            client_of(service).training_run("r")
        assert service.seen == [("GET", "/api/v1/healthz", {})]
        assert service.keys == {"/api/v1/healthz": None}


REFUSALS: Sequence[tuple[int, type[Exception], str]] = [
    (400, DataError, r"is refused \(.* answers 400: because\); mend what was sent"),
    (401, TrainingError, r"the API key is refused \(.* answers 401: because\); check that TINKER_API_KEY"),
    (402, TrainingError, r"billing is not in order \(.*; see the billing page"),
    (403, TrainingError, r"the API key may not do this \("),
    (404, TrainingError, r"there is no such thing \("),
    (409, TrainingError, r"something of this name is there \("),
    (422, DataError, r"is refused \("),
    (429, TrainingError, r"too many requests \(.*; wait, or do less at the same time"),
    (451, TrainingError, r"is refused \(.*; see the documentation"),
    (500, TrainingError, r"the service failed \(.* answers 500: because\); try again later"),
    (503, TrainingError, r"the service failed \("),
]


@pytest.mark.parametrize(("status", "kind", "said"), REFUSALS)
def test_every_refusal_says_what_to_do(status: int, kind: type[Exception], said: str) -> None:
    with FaultyService(create_session=Fault(status, b'{"detail": "because"}')) as service:
        with pytest.raises(kind, match=f"^creating an adapter on 'tiny': {said}") as caught:
            client_of(service).create_training_client("tiny")
        assert getattr(caught.value, "status", status) == status


@pytest.mark.parametrize("body", [b"<html>Welcome</html>", b"[]", b'{"pjwt_auth_enabled": "perhaps"}', b"\xff"])
def test_what_another_service_answers_is_told(body: bytes) -> None:
    page = Fault(body=body)
    with (
        FaultyService(healthz=page, **{"client/config": page}) as service,
        pytest.raises(
            TrainingError, match=r"answers what tinker 0\.38\.0 cannot read; check that it is a Tinker service"
        ),
    ):
        client_of(service).capabilities()


@pytest.mark.parametrize("path", ["client/config", "create_session", "create_model"])
def test_a_service_that_hangs_is_given_up_at_the_deadline(path: str) -> None:
    with FaultyService(**{path: Fault(hangs=True)}) as service:
        client, start = client_of(service, deadline_s=6.0), time.monotonic()
        with pytest.raises(
            TrainingError, match=r"^creating an adapter on 'tiny': is not done after 6 s, though http.* is up"
        ):
            client.create_training_client("tiny")
        assert time.monotonic() - start < 60
        assert f"/api/v1/{path}" in service.paths


def test_what_failed_at_the_server_is_not_the_fault_of_the_data() -> None:
    told = {"error": "Traceback (most recent call last):\n  File x\nRuntimeError: out of memory", "category": "server"}
    with (
        FaultyService(retrieve_future=Fault(body=json.dumps(told).encode())) as service,
        pytest.raises(
            TrainingError, match=r"failed at http[^ ]* \(RuntimeError: out of memory\); try again from"
        ) as caught,
    ):
        client_of(service).create_training_client("tiny")
    assert "Traceback" not in str(caught.value)


def test_a_request_that_the_service_has_forgotten_is_told() -> None:
    with (
        FaultyService(retrieve_future=Fault(410, b'{"detail": "expired"}')) as service,
        pytest.raises(TrainingError, match=r"the service has forgotten it .*make a new client from the last") as caught,
    ):
        client_of(service).create_training_client("tiny")
    assert caught.value.status == 410


def test_a_key_that_the_service_repeats_is_not_shown() -> None:
    said = json.dumps({"detail": f"key {KEY} is unknown"}).encode()
    with (
        FaultyService(**{"client/config": Fault(401, said)}) as service,
        pytest.raises(TrainingError, match=r"answers 401: key \[secret\] is unknown") as caught,
    ):
        client_of(service).capabilities()
    assert KEY not in str(caught.value)


# futures


@pytest.fixture
def never() -> Iterator[Future[int]]:
    future: Future[int] = Future()
    yield future
    future.cancel()


def test_a_future_is_waited_for_until_the_deadline(never: "Future[int]") -> None:
    with FaultyService() as service:
        client, start = client_of(service), time.monotonic()
        with pytest.raises(TrainingError, match=r"^step 3: is not done after 0\.2 s, though .* is up"):
            client.result(never, "step 3", deadline_s=0.2)
    assert 0.2 <= time.monotonic() - start < 60
    with pytest.raises(TrainingError, match=r"^step 3: is not done after 0\.2 s, and http.*cannot be reached"):
        client.result(never, "step 3", deadline_s=0.2)
    assert not never.cancelled()


def test_a_future_comes_to_what_it_comes_to() -> None:
    client = TinkerSDKClient(KEY, "http://127.0.0.1:9")
    done: Future[int] = Future()
    done.set_result(4)
    assert client.result(done, "x") == 4
    ours: Future[int] = Future()
    ours.set_exception(DataError("as it was"))
    with pytest.raises(DataError, match=r"^as it was$"):
        client.result(ours, "x")
    theirs: Future[int] = Future()
    theirs.set_exception(RuntimeError(f"with {KEY}"))
    with pytest.raises(TrainingError, match=r"^x: the SDK failed with RuntimeError \(with \[secret\]\)") as caught:
        client.result(theirs, "x")
    assert caught.value.__suppress_context__


def test_importing_the_client_and_its_data_imports_no_sdk_and_no_torch() -> None:
    code = (
        "import sys, graftline.training.tinker, graftline.training.datums\n"
        "print([name for name in ('tinker', 'tinker_cookbook', 'httpx', 'torch', 'transformers') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert ran.stdout == "[]\n"
