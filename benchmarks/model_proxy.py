"""What the proxy between agents and models adds to a call, and how many streams it carries at once.

A stand-in for vLLM, which answers at once, the proxy, and the client are processes of their own on this machine:

* `overhead_ms`: of a call through the proxy over the same call without it, one after the other in turns: p50, p95; and
  `cpu`, the time of a core that the proxy takes for it, which others that use the machine do not change as much;
* `streams`: streams of twenty rollouts that begin together, with a piece every `piece_ms` of each: how many were whole, the seconds until the
  last one was, those that the pieces alone take, and how many were recorded;
* `load_average`: of the machine when it began, for others may use its cores.

    python -m benchmarks.model_proxy [--quick]
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from graftline.harbor.model_proxy.calls import call_lines
from graftline.llm.client import ActorClient

_MODEL = """
import sys
from tests.streaming_model import StreamingModel
model = StreamingModel(["word "] * int(sys.argv[1]))
model.piece_s = float(sys.argv[2])
with model:
    print(model.url, flush=True)
    sys.stdin.read()
"""
_PROXY = """
import sys
import time
from pathlib import Path
from graftline.harbor.model_proxy.proxy import ModelProxyConfig, serve_model_proxy
from graftline.llm.fleet import Actor, Fleet, Price
actors = (Actor(name="a", url=sys.argv[1]),)
fleet = Fleet(engine="vllm", model="m", price=Price(prompt_usd=1, completion_usd=1), actors=actors)
with serve_model_proxy(ModelProxyConfig(fleet="f"), fleet, None, Path(sys.argv[2])) as proxy:
    sessions = [proxy.sessions.open(f"rol{number}", 1) for number in range(20)]
    before_s = time.process_time()
    print(proxy.url, *[session.key for session in sessions], flush=True)
    sys.stdin.read()
    print(time.process_time() - before_s, flush=True)
    for session in sessions:
        proxy.sessions.close(session)
"""
_MESSAGES = [{"role": "user", "content": "word " * 500}]


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few of everything: shows that it runs, not how fast")
    is_quick = parser.parse_args().quick
    load_average = os.getloadavg()[0]
    figures = {
        "overhead_ms": asyncio.run(overhead(20 if is_quick else 500)),
        "streams": asyncio.run(streams(*((20, 5, 0.01) if is_quick else (500, 40, 0.25)))),
        "load_average": round(load_average, 1),
    }
    print(json.dumps({"name": "model_proxy", "figures": figures, "machine": machine()}))


async def overhead(count: int) -> dict[str, float]:
    """Return how much longer a call takes through the proxy."""
    body = json.dumps({"model": "m", "messages": _MESSAGES}).encode()
    with servers(20, 0.0) as (model_url, proxy, _):
        proxy_url, key, *_ = proxy.words
        direct, through = ActorClient(model_url), ActorClient(proxy_url, key=SecretStr(key))
        seconds: dict[ActorClient, list[float]] = {direct: [], through: []}
        for number in range(count + 10):
            for client, taken_s in seconds.items():
                started = time.perf_counter()
                await client.post("/chat/completions", body, 60.0)
                if number >= 10:
                    taken_s.append(time.perf_counter() - started)
        for client in seconds:
            await client.close()
        cpu_s = stop(proxy)
    pairs = zip(seconds[through], seconds[direct], strict=True)
    differences = [1000 * (with_proxy - without) for with_proxy, without in pairs]
    cuts = statistics.quantiles(differences, n=20)
    cpu_ms = 1000 * cpu_s / (count + 10)
    return {"p50": round(statistics.median(differences), 3), "p95": round(cuts[18], 3), "cpu": round(cpu_ms, 3)}


async def streams(count: int, pieces: int, piece_s: float) -> dict[str, Any]:
    """Return how `count` streams that begin together fared."""
    body = json.dumps({"model": "m", "messages": _MESSAGES, "stream": True}).encode()
    with servers(pieces, piece_s) as (_, proxy, folder):
        proxy_url, *keys = proxy.words
        clients = [ActorClient(proxy_url, key=SecretStr(key), connect_s=60.0) for key in keys]

        async def ask(client: ActorClient) -> bool:
            async with client.stream("POST", "/chat/completions", body) as (status, _, content):
                last = b""
                async for piece in content:
                    last = (last + piece)[-64:]
            return status == 200 and last.endswith(b"data: [DONE]\n\n")

        started = time.perf_counter()
        whole = await asyncio.gather(*(ask(clients[number % len(clients)]) for number in range(count)))
        seconds = time.perf_counter() - started
        for client in clients:
            await client.close()
        recorded = sum(len(call_lines(path)) for path in folder.glob("*/1.jsonl"))
    return {
        "at_once": count,
        "whole": sum(whole),
        "recorded": recorded,
        "seconds": round(seconds, 2),
        "pieces_alone_s": round((pieces + 2) * piece_s, 2),
    }


class Program(NamedTuple):
    """A program that runs until its standard input is closed, and the words of its first line."""

    process: "subprocess.Popen[str]"
    words: list[str]


@contextmanager
def servers(pieces: int, piece_s: float) -> Iterator[tuple[str, Program, Path]]:
    """Yield the address of the model, the proxy before it, and where that records."""
    with (
        tempfile.TemporaryDirectory() as folder,
        program(_MODEL, pieces, piece_s) as model,
        program(_PROXY, model.words[0], folder) as proxy,
    ):
        yield model.words[0], proxy, Path(folder)


@contextmanager
def program(code: str, *arguments: object) -> Iterator[Program]:
    """Run a program until the block ends."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=CHECKOUT, **pipes) as process:
        assert process.stdout is not None
        try:
            yield Program(process, process.stdout.readline().split())
        finally:
            stop(Program(process, []))


def stop(running: Program) -> float:
    """End a program, and return the number in its last line; 0 where it has been ended already."""
    process = running.process
    assert process.stdin is not None
    assert process.stdout is not None
    if process.stdin.closed:
        return 0.0
    process.stdin.close()
    line = process.stdout.readline()
    process.wait()
    return float(line or 0.0)


if __name__ == "__main__":
    main()
