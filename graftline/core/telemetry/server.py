"""The figures of a process on `/metrics`, and on `/healthz` whether it works. For the loopback or a closed network."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Any

from graftline.core.errors import ConfigError
from graftline.core.telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

_TEXT = "text/plain; charset=utf-8"


@contextmanager
def serve_metrics(metrics: Metrics, host: str, port: int, fault: Callable[[], str]) -> Iterator[str]:
    """Serve until the block ends; yields the address, with the port that was found where 0 asked for a free one.

    Args:
        fault: says what is wrong with the process, nothing while it works; with it `/healthz` answers 503. It is called
            in threads of the server. A process that finishes its work before it ends is well.

    Raises:
        ConfigError: the port is in use, or the host is none of this machine.
    """
    try:
        server = _Server((host, port), metrics, fault)
    except OSError as error:
        raise ConfigError(
            f"metrics: {host}:{port} cannot be listened on ({error.strerror}); choose another port, or 0 for a free one"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: Metrics, fault: Callable[[], str]) -> None:
        self.metrics, self.fault = metrics, fault
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("metrics: no answer to %s", client_address, exc_info=True)  # who asked went away, as a rule


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # of a client that says nothing

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, *self.server.metrics.text(self.headers.get("Accept", "")))
            case "/healthz":
                fault = self.server.fault()
                self._answer(503 if fault else 200, f"{fault or 'ok'}\n".encode(), _TEXT)
            case _:
                self._answer(404, b"only /metrics and /healthz are here\n", _TEXT)

    def _answer(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of every scrape."""
