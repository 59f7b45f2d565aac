"""A server on loopback that takes OTLP over HTTP, as Loki and Prometheus do, with faults on demand."""

import gzip
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest


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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            state.asked += 1
            state.let_go.wait(240)
            status = state.answers.popleft() if state.answers else 200
            if status == 200:
                body = gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body
                request = ExportLogsServiceRequest() if "logs" in self.path else ExportMetricsServiceRequest()
                request.ParseFromString(body)
                (state.logs if "logs" in self.path else state.figures).append(MessageToDict(request))
                state.headers.append(dict(self.headers))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield state
    finally:
        state.let_go.set()
        server.shutdown()
        thread.join()
        server.server_close()
