"""A server on loopback that plays the Hugging Face hub and a plain file host, with faults on demand.

    with HubServer() as server:
        server.put("owner/name", {"data/rows.jsonl": b"..."})           # hf://datasets/owner/name at server.url
        server.files["/plain/rows.jsonl"] = b"..."                     # server.url + "/plain/rows.jsonl"
        server.faults["/plain/rows.jsonl"] = [Fault(status=429, retry_after="1"), Fault(torn_at=10)]

Every fault is used up by one request of its path. Large files of repositories are, as on the real hub, on another
host: `server.cdn`.
"""

import hashlib
import json
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer; what is not set goes right."""

    status: int = 0
    retry_after: str = ""
    torn_at: int | None = None
    """The connection ends after so many bytes of the body, though it was to be longer."""
    silent_s: float = 0.0
    """No answer for so long."""
    pause_at: int | None = None
    """The body stops after so many bytes until the server is closed."""
    drip_s: float = 0.0
    """One byte after another, with so much time between them."""
    headers: Mapping[str, str] = field(default_factory=dict)
    redirect: str = ""
    body: bytes | None = None


@dataclass(frozen=True)
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    port: int


@dataclass
class Repository:
    """One commit after another."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    newest: str = ""
    token: str = ""
    """Without it: 401; with another: 401."""
    is_closed: bool = False
    """Whether also those with a token are refused."""


class HubServer:
    """The server; `url` is where it is."""

    def __init__(self, large_from: int = 10) -> None:
        self.files: dict[str, bytes] = {}
        self.repositories: dict[str, Repository] = {}
        self.faults: dict[str, Iterable[Fault]] = {}
        self.seen: list[Seen] = []
        self.large_from = large_from
        """From so many bytes on a file of a repository is a large one, which has a checksum and lies on the CDN."""
        self.page_size = 1000
        self.answers_head = self.has_ranges = self.has_etags = self.has_lengths = True
        self.closing = threading.Event()
        self._servers: list[ThreadingHTTPServer] = []

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"hub": self})
        for _ in range(2):
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            self._servers.append(server)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._servers[0].server_port}"

    @property
    def cdn(self) -> str:
        return f"http://127.0.0.1:{self._servers[1].server_port}"

    def put(self, repository: str, files: Mapping[str, bytes]) -> str:
        """Make a new commit of `repository`, which holds exactly `files`, and return its name."""
        text = json.dumps({name: content.hex() for name, content in sorted(files.items())})
        held = self.repositories.setdefault(repository, Repository())
        held.newest = hashlib.sha1(f"{len(held.commits)}{text}".encode()).hexdigest()
        held.commits[held.newest] = dict(files)
        return held.newest

    def asked(self, *names: str) -> list[tuple[str, ...]]:
        """Return method and path of every request, and its headers called `names`."""
        return [(seen.method, seen.path, *(seen.headers.get(name.lower(), "") for name in names)) for seen in self.seen]

    def fault(self, path: str) -> Fault:
        waiting = self.faults[path] = deque(self.faults.get(path, ()))
        return waiting.popleft() if waiting else Fault()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: standard error belongs to the tests."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.hub.seen.append(Seen(self.command, self.path, headers, self.server.server_address[1]))
        fault = self.hub.fault(path)
        self.hub.closing.wait(fault.silent_s)
        if self.command == "HEAD" and not self.hub.answers_head:
            return self._send(405)
        if fault.status:
            more = {"Retry-After": fault.retry_after} if fault.retry_after else {}
            return self._send(fault.status, {**more, **fault.headers})
        if fault.redirect:
            return self._send(302, {"Location": fault.redirect})
        if path.startswith("/api/datasets/"):
            return self._api(path.removeprefix("/api/datasets/"), parse_qs(parts.query), fault)
        if path.startswith("/datasets/"):
            return self._resolve(path.removeprefix("/datasets/"), fault)
        if path not in self.hub.files:
            return self._send(404)
        return self._file(self.hub.files[path], fault)

    def _api(self, path: str, query: Mapping[str, list[str]], fault: Fault) -> None:
        owner, name, what, revision, *_ = [*path.split("/"), "", "", "", ""]
        held = self._let_in(f"{owner}/{name}", is_about_files=False)
        if held is None:
            return None
        commit = held.newest if revision == "main" else revision
        commit = held.newest if commit == "main" else commit
        if commit not in held.commits:
            return self._send(404)
        if what == "revision":
            return self._file(json.dumps({"sha": commit}).encode(), fault, etag=f'W/"{commit}"')
        items: list[dict[str, Any]] = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "data"}]
        for file, content in sorted(held.commits[commit].items()):
            item = {"type": "file", "oid": "0" * 40, "size": len(content), "path": file}
            if len(content) >= self.hub.large_from:
                oid = hashlib.sha256(content).hexdigest()
                item["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 134}
            items.append(item)
        start = int(query.get("cursor", ["0"])[0])
        end = start + self.hub.page_size
        following = f"{self.hub.url}/api/datasets/{path}?recursive=true&cursor={end}"
        more = {"Link": f'<{following}>; rel="next"'} if end < len(items) else {}
        return self._file(json.dumps(items[start:end]).encode(), fault, headers=more)

    def _resolve(self, path: str, fault: Fault) -> None:
        owner, name, _, commit, file = path.split("/", 4)
        held = self._let_in(f"{owner}/{name}", is_about_files=True)
        if held is None:
            return None
        commit = held.newest if commit == "main" else commit
        if file not in held.commits.get(commit, {}):
            return self._send(404)
        content = held.commits[commit][file]
        if len(content) < self.hub.large_from:
            return self._file(content, fault)
        where = f"/cdn/{commit}/{file}"
        self.hub.files[where] = content
        return self._send(302, {"Location": f"{self.hub.cdn}{quote(where)}?X-Signature=secret"})

    def _let_in(self, repository: str, is_about_files: bool) -> Repository | None:
        held = self.hub.repositories.get(repository)
        if held is None or (
            is_about_files and held.token and self.headers.get("Authorization") != f"Bearer {held.token}"
        ):
            self._send(401)
            return None
        if is_about_files and held.is_closed:
            self._send(403)
            return None
        return held

    def _file(self, content: bytes, fault: Fault, etag: str = "", headers: Mapping[str, str] | None = None) -> None:
        content = content if fault.body is None else fault.body
        etag = etag or f'"{hashlib.md5(content).hexdigest()}"'
        known = dict(headers or {})
        if self.hub.has_etags:
            known["ETag"] = etag
            if self.headers.get("If-None-Match") == etag:
                return self._send(304, known)
        status, start = 200, 0
        asked = self.headers.get("Range", "")
        if asked and self.hub.has_ranges and self.headers.get("If-Range", etag) == etag:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                return self._send(416, {**known, "Content-Range": f"bytes */{len(content)}"})
            status, known["Content-Range"] = 206, f"bytes {start}-{len(content) - 1}/{len(content)}"
        return self._send(status, {**known, **fault.headers}, content[start:], fault)

    def _send(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b"", fault: Fault | None = None
    ) -> None:
        fault = fault or Fault()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if self.hub.has_lengths and status != 304:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self._write(body, fault)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _write(self, body: bytes, fault: Fault) -> None:
        if fault.torn_at is not None:
            self.close_connection = True
            body = body[: fault.torn_at]
        if fault.drip_s:
            for position in range(len(body)):
                self.wfile.write(body[position : position + 1])
                if self.hub.closing.wait(fault.drip_s):
                    return
            return
        if fault.pause_at is not None:
            self.wfile.write(body[: fault.pause_at])
            self.close_connection = True
            self.hub.closing.wait(240)
            return
        self.wfile.write(body)
