"""A server on loopback that says what a test has it say."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class HttpRequest:
    """What a client sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By name, whether in capitals or not."""
    body: bytes


@dataclass(frozen=True)
class HttpAnswer:
    """What it is told."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    phrase: str | None = None
    """Of the status line; that of the status without it."""


def json_answer(content: Any, status: int = 200) -> HttpAnswer:
    return HttpAnswer(json.dumps(content).encode(), status)


@contextmanager
def serve_answers(answer: Callable[[HttpRequest], HttpAnswer | None]) -> Iterator[str]:
    """Yield the address of a server that answers with what `answer` returns; None ends the connection without a word."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            made = answer(HttpRequest(self.command, self.path, self.headers, body))
            if made is None:
                return
            self.send_response(made.status, made.phrase)
            common = {"Content-Type": "application/json", "Content-Length": str(len(made.body))}
            for name, value in {**common, **made.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(made.body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Standard error belongs to the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # polled often, so that stopping it is quick
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
