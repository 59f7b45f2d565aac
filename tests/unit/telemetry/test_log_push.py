"""Logs that are pushed: what arrives, what is lost, and that nobody waits for it."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic, sleep

import pytest

from graftline.core.otlp import LogPush
from graftline.core.secrets import Secrets
from graftline.core.telemetry import PushSettings
from tests.unit.telemetry.otlp_server import OtlpServer

ABOUT = {"service.name": "graftline", "service.instance.id": "actor-1"}

FORKING = """
import logging, os, sys
from graftline.core.secrets import Secrets
from graftline.core.otlp import LogPush
from graftline.core.telemetry import PushSettings
logger = logging.getLogger("graftline.forking")
logger.setLevel("INFO")
push = LogPush(sys.argv[1], {}, {}, PushSettings(timeout_s=5.0), Secrets([]), print)
logger.addHandler(push)
logger.info("parent")
child = os.fork()
if child == 0:
    logger.info("child")
    logging.shutdown()
    os._exit(0)
os.waitpid(child, 0)
push.close()
"""


@pytest.fixture
def pushed(
    otlp: OtlpServer, logger: logging.Logger, secrets: Secrets, lost: list[int]
) -> Iterator[Callable[..., LogPush]]:
    """Have the logger push to the server."""
    opened: list[LogPush] = []

    def open_push(**settings: float) -> LogPush:
        configured = PushSettings.model_validate(settings)
        headers = {"X-Scope-OrgID": "tests"}
        opened.append(LogPush(f"{otlp.url}/otlp/v1/logs", headers, ABOUT, configured, secrets, lost.append))
        logger.addHandler(opened[-1])
        return opened[-1]

    yield open_push
    otlp.let_go.set()
    for push in opened:
        push.close()


def until(is_so: Callable[[], object]) -> None:
    deadline = monotonic() + 240
    while not is_so():
        assert monotonic() < deadline, "it never came to be so"
        sleep(0.005)


def test_a_record_arrives_with_all_that_it_says(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, secret: str, lost: list[int]
) -> None:
    push = pushed()
    try:
        raise ValueError(f"with {secret}")
    except ValueError:
        logger.exception("by %s", secret, extra={"actor": "a-1", "tokens": {"prompt": 3}, "seeds": [1, 2]})
    push.close()
    (request,) = otlp.logs
    assert request["resourceLogs"][0]["resource"]["attributes"] == [
        {"key": "service.name", "value": {"stringValue": "graftline"}},
        {"key": "service.instance.id", "value": {"stringValue": "actor-1"}},
    ]
    assert request["resourceLogs"][0]["scopeLogs"][0]["scope"]["name"] == "graftline.test"
    (record,) = otlp.records()
    assert (record["severityText"], record["severityNumber"]) == ("ERROR", "SEVERITY_NUMBER_ERROR")
    assert record["body"] == {"stringValue": "by [secret]"}
    attributes = {attribute["key"]: attribute["value"] for attribute in record["attributes"]}
    assert attributes.pop("exception.stacktrace")["stringValue"].endswith("ValueError: with [secret]")
    assert attributes == {
        "actor": {"stringValue": "a-1"},
        "tokens": {"kvlistValue": {"values": [{"key": "prompt", "value": {"intValue": "3"}}]}},
        "seeds": {"arrayValue": {"values": [{"intValue": "1"}, {"intValue": "2"}]}},
    }
    assert otlp.headers[0]["x-scope-orgid"] == "tests"
    assert sum(lost) == 0


def test_records_go_in_batches_in_their_order(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, lost: list[int]
) -> None:
    push = pushed(most_at_once=100, interval_s=60.0)
    for number in range(250):
        logger.info("%d", number)
    until(lambda: len(otlp.records()) >= 200)  # a full batch goes at once
    push.close()
    assert [record["body"]["stringValue"] for record in otlp.records()] == [str(number) for number in range(250)]
    assert sum(lost) == 0


def test_a_server_that_is_busy_is_tried_again(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, lost: list[int]
) -> None:
    push = pushed(interval_s=0.05)
    otlp.answers.append(503)
    logger.info("in the end")
    until(otlp.records)
    push.close()
    assert sum(lost) == 0


def test_what_a_server_refuses_is_lost_and_counted(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, lost: list[int]
) -> None:
    push = pushed(interval_s=0.05)
    otlp.answers.append(400)
    logger.info("refused")
    until(lambda: sum(lost))
    logger.info("taken")
    push.close()
    assert [record["body"]["stringValue"] for record in otlp.records()] == ["taken"]
    assert sum(lost) == 1


def test_nobody_waits_for_a_server_that_does_not_answer(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, lost: list[int]
) -> None:
    otlp.let_go.clear()
    push = pushed(timeout_s=30.0, most_at_once=10, most_waiting=50, interval_s=0.01, close_s=0.1)
    logger.info("first")
    until(lambda: otlp.asked)
    for number in range(200):
        logger.info("%d", number)
    assert sum(lost) == 150  # of which 50 wait; the first one is on its way
    push.close()
    assert sum(lost) == 200
    logger.info("after the end")
    assert sum(lost) == 201


def test_a_port_where_nobody_listens_loses_and_ends(logger: logging.Logger, lost: list[int]) -> None:
    settings = PushSettings(timeout_s=0.2, interval_s=0.01)
    push = LogPush("http://127.0.0.1:9/v1/logs", {}, ABOUT, settings, Secrets([]), lost.append)
    logger.addHandler(push)
    logger.info("nowhere to go")
    until(lambda: sum(lost) == 1)
    push.close()
    assert not any(thread.name == "push" for thread in threading.enumerate())


def test_a_record_that_cannot_be_said_is_lost_alone(
    pushed: Callable[..., LogPush], otlp: OtlpServer, logger: logging.Logger, lost: list[int]
) -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    push = pushed()
    logger.info("bad", extra={"x": Unspeakable()})
    logger.info("good \udc80 %s", 1 << 70, extra={"huge": 1 << 70, "nan": float("nan"), "none": None})
    push.close()
    (record,) = otlp.records()
    assert record["body"] == {"stringValue": f"good \\udc80 {1 << 70}"}
    assert sum(lost) == 1


def test_a_forked_child_sends_nothing_and_ends(otlp: OtlpServer) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING, f"{otlp.url}/v1/logs"], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert [record["body"]["stringValue"] for record in otlp.records()] == ["parent"]
