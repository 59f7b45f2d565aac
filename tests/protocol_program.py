"""The program of `ProtocolServer`: the dialect of vLLM's server in bare asyncio, so that thousands of answers a second cost
it little.

It answers with what it was told last, a word a token, and counts who asked and who went away. It is told how to be on
`/behavior`, and says what it saw on `/seen`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(r"\s*\S+")
_KEPT = 1000


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer; what is not set goes right."""

    status: int = 0
    message: str = "a fault was asked for"
    retry_after: str = ""
    body: str | None = None
    """Sent with status 200 in place of an answer."""
    torn_at: int | None = None
    """The connection ends after so many bytes of the body, though it was to be longer."""
    is_dropped: bool = False
    """The connection ends without an answer."""
    is_endless: bool = False
    """The body never ends."""
    drip_s: float = 0.0
    """The body comes in pieces of 16 bytes, with so much time between them."""
    hangs: bool = False
    """No answer, ever."""


@dataclass(frozen=True)
class Behavior:
    """How the server is, from the next request on."""

    model: str = "model"
    latency_s: float = 0.0
    faults: Sequence[Fault] = ()
    """Of the next chats, in order; every one is used up by one chat."""
    always: Fault = field(default_factory=Fault)
    """Of every chat that has none of `faults`."""
    health: int = 200
    is_asleep: bool = False
    """As `/sleep` leaves vLLM: chats hang, `/health` is as before."""
    has_metrics: bool = True
    kv_usage: float = 0.0
    waiting: int = 0
    """Said to be waiting for room in the cache."""
    preemptions: int = 0
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Folders of those that it was started with, by name."""
    api_path: str = "/v1"
    """What stands before the names of calls."""
    api_key: str = ""
    """Without it, those calls answer 401."""
    finish_reason: str = ""
    """Instead of the right one."""


class _Counts:
    """What is counted. A chat counts where it began, also if the server was made as new since."""

    def __init__(self) -> None:
        self.ids: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.paths: Counter[str] = Counter()
        self.bodies: deque[Any] = deque(maxlen=_KEPT)
        self.aborted = self.running = self.connections = 0
        self.prompt_tokens = self.completion_tokens = 0


class _Server:
    """What the connections share."""

    def __init__(self, behavior: Behavior) -> None:
        self.become(behavior)
        self.renew()

    def become(self, behavior: Behavior) -> None:
        self.behavior = behavior
        self.faults = deque(behavior.faults)

    def renew(self) -> None:
        self.counts = _Counts()
        self.adapters: dict[str, str] = {}
        self.prefixes: dict[str, int] = {}

    def answer(self, method: str, path: str, headers: bytes, body: bytes, connection: "_Connection") -> None:
        if path not in ("/behavior", "/renewal", "/seen"):
            self.counts.paths[f"{method} {path}"] += 1
        if path.startswith(f"{self.behavior.api_path}/"):
            path = f"/v1{path.removeprefix(self.behavior.api_path)}"
        key = self.behavior.api_key
        if path.startswith("/v1/") and key and _header(headers, b"authorization") != f"Bearer {key}":
            return connection.fail(401, "the key is wrong", "AuthenticationError")
        match path:
            case "/v1/chat/completions":
                self._chat(json.loads(body), headers, connection)
            case "/v1/load_lora_adapter":
                self._load_adapter(json.loads(body), connection)
            case "/v1/models":
                base = self.behavior.model
                adapters = {**self.behavior.adapters, **self.adapters}
                models = [{"id": name, "root": folder, "parent": base} for name, folder in adapters.items()]
                connection.send(
                    200, json.dumps({"data": [{"id": base, "root": base, "parent": None}, *models]}).encode()
                )
            case "/health":
                connection.send(self.behavior.health, b"")
            case "/metrics" if self.behavior.has_metrics:
                connection.send(200, self._metrics().encode(), "text/plain; version=0.0.4")
            case "/behavior":
                given = json.loads(body)
                self.become(_behavior(given))
                connection.send(200, b"")
            case "/renewal":
                self.renew()
                connection.send(200, b"")
            case "/seen":
                connection.send(200, json.dumps(self._seen()).encode())
            case _:
                connection.fail(404, f"{path} is unknown", "NotFoundError")
        return None

    def _chat(self, asked: Any, headers: bytes, connection: "_Connection") -> None:
        name = _header(headers, b"x-request-id")
        self.counts.ids[name] += 1
        self.counts.bodies.append(asked)
        model = asked["model"]
        if model not in (self.behavior.model, *self.behavior.adapters, *self.adapters):
            return connection.fail(404, f"The model `{model}` does not exist.", "NotFoundError")
        if asked["max_tokens"] < 1:
            return connection.fail(400, "max_tokens must be at least 1", "BadRequestError")
        fault = self.faults.popleft() if self.faults else self.behavior.always
        if fault.status:
            more = f"Retry-After: {fault.retry_after}\r\n" if fault.retry_after else ""
            return connection.fail(fault.status, fault.message, "InternalServerError", more)
        connection.begin(self.counts)
        if not fault.hangs and not self.behavior.is_asleep:
            loop, delay_s = asyncio.get_running_loop(), self.behavior.latency_s
            connection.work = loop.call_later(delay_s, self._finish, asked, name, fault, connection)
        return None

    def _finish(self, asked: Any, name: str, fault: Fault, connection: "_Connection") -> None:
        counts = connection.end()
        if fault.is_dropped:
            return connection.close()
        body = self._body(asked, counts) if fault.body is None else fault.body.encode()
        if fault.torn_at is not None:
            connection.send(200, body, torn_at=fault.torn_at)
            return connection.close()
        if fault.is_endless or fault.drip_s:
            return connection.stream(body, fault, counts)
        counts.answered[name] += 1
        return connection.send(200, body)

    def _body(self, asked: Any, counts: _Counts) -> bytes:
        last = asked["messages"][-1]["content"]
        said = json.dumps({"text": last}) if "response_format" in asked else last
        cut = min((at for stop in asked.get("stop", ()) if (at := said.find(stop)) >= 0), default=len(said))
        found = _TOKEN.findall(said[:cut])
        text = "".join(found[: asked["max_tokens"]]) if len(found) > asked["max_tokens"] else said[:cut]
        reason = "length" if len(found) > asked["max_tokens"] else "stop"
        before = "\n".join(message["content"] for message in asked["messages"][:-1])
        cached = self.prefixes.get(before, 0)
        shared = cached or len(before.split())
        if len(self.prefixes) < _KEPT:
            self.prefixes[before] = shared
        prompt = shared + len(last.split())
        completion = min(len(found), asked["max_tokens"])
        counts.prompt_tokens += prompt
        counts.completion_tokens += completion
        return json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion",
                "model": asked["model"],
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": text},
                        "finish_reason": self.behavior.finish_reason or reason,
                    }
                ],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": completion,
                    "total_tokens": prompt + completion,
                    "prompt_tokens_details": {"cached_tokens": cached},
                },
            }
        ).encode()

    def _load_adapter(self, asked: Any, connection: "_Connection") -> None:
        name = asked["lora_name"]
        if name in self.adapters and not asked.get("load_inplace"):
            return connection.fail(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput")
        if asked["lora_path"].endswith("missing"):
            return connection.fail(404, f"Loading lora {name} failed: No adapter found", "NotFoundError")
        self.adapters[name] = asked["lora_path"]
        return connection.send(200, b"Success", "text/plain")

    def _metrics(self) -> str:
        labels = '{engine="0",model_name="model"}'
        values = {
            "num_requests_running gauge": self.counts.running,
            "num_requests_waiting gauge": self.behavior.waiting,
            "kv_cache_usage_perc gauge": self.behavior.kv_usage,
            "num_preemptions_total counter": self.behavior.preemptions,
            "prompt_tokens_total counter": self.counts.prompt_tokens,
            "generation_tokens_total counter": self.counts.completion_tokens,
        }
        lines = []
        for described, value in values.items():
            name, kind = described.split()
            lines += [f"# HELP vllm:{name} .", f"# TYPE vllm:{name} {kind}", f"vllm:{name}{labels} {float(value)}"]
        lines.append("# TYPE vllm:num_requests_waiting_by_reason gauge")
        for reason, value in (("capacity", self.behavior.waiting), ("deferred", 0)):
            lines.append(f'vllm:num_requests_waiting_by_reason{{engine="0",reason="{reason}"}} {float(value)}')
        lines.append("# TYPE vllm:engine_sleep_state gauge")
        for state, value in (("awake", not self.behavior.is_asleep), ("weights_offloaded", self.behavior.is_asleep)):
            lines.append(f'vllm:engine_sleep_state{{engine="0",sleep_state="{state}"}} {float(value)}')
        return "\n".join(lines) + "\n"

    def _seen(self) -> dict[str, Any]:
        return {
            "ids": self.counts.ids,
            "answered": self.counts.answered,
            "aborted": self.counts.aborted,
            "bodies": list(self.counts.bodies),
            "paths": self.counts.paths,
            "adapters": self.adapters,
            "connections": self.counts.connections,
            "cpu_s": _cpu_s(),
        }


class _Connection(asyncio.Protocol):
    """One client; one request after another."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._received = b""
        self._counts: _Counts | None = None
        """Where what is being answered counts."""
        self._last_counts: _Counts | None = None
        self.work: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if self._counts is not None:
            self.end().aborted += 1
        if self.work is not None:
            self.work.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._received[:end]
        size = int(_header(head, b"content-length") or 0)
        if len(self._received) < end + 4 + size:
            return
        body = self._received[end + 4 : end + 4 + size]
        self._received = self._received[end + 4 + size :]
        method, path, _ = head[: head.index(b"\r\n")].decode().split(" ")
        self._server.answer(method, path, head, body, self)

    def begin(self, counts: _Counts) -> None:
        """Say that an answer is being made."""
        if self._last_counts is not counts:
            self._last_counts = counts
            counts.connections += 1
        self._counts = counts
        counts.running += 1

    def end(self) -> _Counts:
        """Say that none is being made any more, and return where it counted."""
        assert self._counts is not None
        counts, self._counts = self._counts, None
        counts.running -= 1
        return counts

    def send(
        self, status: int, body: bytes, kind: str = "application/json", more: str = "", torn_at: int | None = None
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n"
        self._transport.write(head.encode() + body[:torn_at])

    def fail(self, status: int, message: str, kind: str, more: str = "") -> None:
        error = {"error": {"message": message, "type": kind, "param": None, "code": status}}
        self.send(status, json.dumps(error).encode(), more=more)

    def stream(self, body: bytes, fault: Fault, counts: _Counts) -> None:
        self._transport.write(b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        pieces = deque([b" " * 65536] if fault.is_endless else [body[at : at + 16] for at in range(0, len(body), 16)])
        # an answer that comes piece by piece is work till its end
        self.begin(counts)
        self._drip(pieces, fault)

    def _drip(self, pieces: deque[bytes], fault: Fault) -> None:
        if not pieces:
            self.end()
            self._transport.write(b"0\r\n\r\n")
            return
        piece = pieces[0] if fault.is_endless else pieces.popleft()
        self._transport.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.work = asyncio.get_running_loop().call_later(fault.drip_s or 0.001, self._drip, pieces, fault)

    def close(self) -> None:
        self._transport.close()


def _header(head: bytes, name: bytes) -> str:
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return ""
    start = at + len(name) + 3
    end = head.find(b"\r\n", start)
    return head[start : end if end >= 0 else len(head)].strip().decode()


def _behavior(given: dict[str, Any]) -> Behavior:
    faults = [Fault(**fault) for fault in given.pop("faults")]
    return Behavior(faults=faults, always=Fault(**given.pop("always")), **given)


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system


async def _serve(port: int) -> None:
    # ends with whoever started it, however that ends
    loop = asyncio.get_running_loop()
    server = _Server(_behavior(json.loads(sys.stdin.buffer.readline())))
    listening = await loop.create_server(lambda: _Connection(server), "127.0.0.1", port, backlog=4096)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.buffer.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(parser.parse_args().port))
