"""Files of this process at addresses of this machine, for as long as they are good: what an adapter is downloaded from."""

import secrets
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from graftline.core.clock import Clock

_HOST = "127.0.0.1"


class FileServer:
    """A web server on loopback, started with the first address and ended with `close`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, tuple[bytes, datetime]] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: Thread | None = None

    def addresses(self, files: Mapping[str, bytes], expires: datetime) -> dict[str, str]:
        """Return an address for each of `files`, which nobody can guess and nothing is behind after `expires`."""
        base = self._started()
        now = self._clock()
        self._held = {path: held for path, held in self._held.items() if held[1] > now}
        found = {}
        for name, content in files.items():
            path = f"/{secrets.token_urlsafe(24)}/{name}"
            self._held[path] = (content, expires)
            found[name] = base + path
        return found

    def close(self) -> None:
        """End the server, if there is one."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def _started(self) -> str:
        if self._server is None:
            self._server = ThreadingHTTPServer((_HOST, 0), self._handler())
            # it looks that often whether it is to end
            self._thread = Thread(target=self._server.serve_forever, args=(0.05,), name="memory-files", daemon=True)
            self._thread.start()
        return f"http://{_HOST}:{self._server.server_address[1]}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        files = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content, expires = files._held.get(self.path, (b"", None))
                if expires is None or expires <= files._clock():
                    self.send_error(HTTPStatus.FORBIDDEN)
                    return
                self.send_response(HTTPStatus.OK)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: addresses are secrets."""

        return Handler
