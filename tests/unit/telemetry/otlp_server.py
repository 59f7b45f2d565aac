"""A server on loopback that takes OTLP over HTTP, as Loki and Prometheus do, with faults on demand."""

import gzip
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.http_server import HttpAnswer, HttpRequest, serve_answers


@dataclass
class OtlpServer:
    """What arrived, and how the next requests are answered."""

    url: str = ""
    logs: list[dict[str, Any]] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answers: deque[int] = field(default_factory=deque)
    """Status of the next answers; 200 after them."""
    asked: int = 0
    """Requests that came, answered or not."""
    let_go: threading.Event = field(default_factory=threading.Event)
    """Answers are held back until it is set."""

    def records(self) -> list[dict[str, Any]]:
        """The log records of all requests, in the order in which they came."""
        return [
            record
            for request in self.logs
            for resource in request["resourceLogs"]
            for scope in resource["scopeLogs"]
            for record in scope["logRecords"]
        ]

    def metrics(self) -> dict[str, dict[str, Any]]:
        """The figures of the last request, by name."""
        (resource,) = self.figures[-1]["resourceMetrics"]
        return {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}


@contextmanager
def otlp_server() -> Iterator[OtlpServer]:
    """Serve until the block ends."""
    state = OtlpServer()
    state.let_go.set()

    def answer(request: HttpRequest) -> HttpAnswer:
        state.asked += 1
        state.let_go.wait(240)
        status = state.answers.popleft() if state.answers else 200
        if status == 200:
            is_packed = request.headers["Content-Encoding"] == "gzip"
            is_of_logs = "logs" in request.path
            message = ExportLogsServiceRequest() if is_of_logs else ExportMetricsServiceRequest()
            message.ParseFromString(gzip.decompress(request.body) if is_packed else request.body)
            (state.logs if is_of_logs else state.figures).append(MessageToDict(message))
            state.headers.append(dict(request.headers))
        return HttpAnswer(status=status)

    with serve_answers(answer) as state.url:
        try:
            yield state
        finally:
            state.let_go.set()
