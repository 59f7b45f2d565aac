"""What stands before llama.cpp, over a Unix socket on which the test itself answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="pip install starlette")

from graftline.llm.servers.embedded_front import EmbeddedFront

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Client:
    """One request to the front, which hangs up when it is told to."""

    def __init__(self, body: Any, path: str = "/v1/completions") -> None:
        self._body = json.dumps(body).encode()
        self._is_sent = False
        self.hangs_up = asyncio.Event()
        self.messages: list[MutableMapping[str, Any]] = []
        self.begins = asyncio.Event()
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"front"), (b"authorization", b"Bearer key")],
        }

    async def receive(self) -> dict[str, Any]:
        if not self._is_sent:
            self._is_sent = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.hangs_up.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self.messages.append(message)
        if message.get("body"):
            self.begins.set()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    size = next(int(line.split(b":")[1]) for line in head.splitlines() if line.lower().startswith(b"content-length"))
    return head, json.loads(await reader.readexactly(size))


async def front_over(folder: Path, answer: Answer) -> tuple[EmbeddedFront, asyncio.Server]:
    server = await asyncio.start_unix_server(answer, folder / "llama.sock")
    return EmbeddedFront(folder / "llama.sock", "base", {"one": Path("/a/one"), "two": Path("/b/two")}), server


@pytest.mark.parametrize("has_begun", [False, True])
def test_llama_cpp_is_hung_up_on_when_the_client_hangs_up(tmp_path: Path, has_begun: bool) -> None:
    async def run() -> bytes:
        taken, rest = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            if has_begun:
                writer.write(HEAD + chunk(b"data: 1\n\n"))
            taken.set()
            rest.set_result(await reader.read())  # until the other end closes
            writer.close()

        front, server = await front_over(tmp_path, answer)
        async with server:
            client = Client({"prompt": "a", "stream": True})
            asking = asyncio.create_task(front(client.scope, client.receive, client.send))
            await (client.begins if has_begun else taken).wait()
            client.hangs_up.set()
            await asking
            return await rest

    assert asyncio.run(asyncio.wait_for(run(), 30)) == b""


def test_a_request_says_the_scale_of_every_adapter_and_a_response_the_name_that_was_asked(tmp_path: Path) -> None:
    requests = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        # a text that looks like the name of the model, and a line in two pieces
        line = b'data: {"text":"\\"model\\":\\"base\\"","model":"base"}\n\n'
        writer.write(HEAD + chunk(line[:48]) + chunk(line[48:]) + b"0\r\n\r\n")
        writer.close()

    async def run(body: Any) -> bytes:
        front, server = await front_over(tmp_path, answer)
        async with server:
            client = Client(body)
            await front(client.scope, client.receive, client.send)
            assert (client.messages[0]["status"], client.messages[-1]["more_body"]) == (200, False)
            return b"".join(message["body"] for message in client.messages[1:])

    said = asyncio.run(run({"model": "two", "prompt": "a"}))
    assert said == b'data: {"text":"\\"model\\":\\"base\\"","model":"two"}\n\n'
    asyncio.run(run({"prompt": "a", "cache_prompt": False}))
    [(head, two), (_, bare)] = requests
    assert b"authorization: Bearer key" in head
    assert (two["lora"], two["cache_prompt"]) == ([{"id": 0, "scale": 0.0}, {"id": 1, "scale": 1.0}], True)
    assert (bare["lora"], bare["cache_prompt"]) == ([{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}], False)
