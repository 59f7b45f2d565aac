"""How much of what its actors can do the chat model pool gets out of them, and what it costs the client.

Three servers of our own (`tests.protocol_server`, a process each) answer after half a second and are given 64 requests at
a time. 384 askers, twice as many as there are places, ask one question after another.

* `steady`: answers a second, of the 384 that 3 x 64 places of 0.5 s can give;
* `processor_ms`: milliseconds of CPU of the client for one of these requests, encoding and decoding included;
* `faults`: the same while one server is killed and another one takes ten times as long, from a third of the answers on.
  What the rest can do is 64 / 0.5 s + 64 / 5 s = 140.8. The rate is taken from there, when all places of the slow server
  have been filled again, until no request waits any more: then the slow one still has up to 5 s of work, and no pool can
  know beforehand which request will be the last. `whole_s` and `ideal_whole_s` have that tail in them;
* `lost`: requests without an answer; `twice`: requests that two servers, or one of them twice, answered to the end. The
  servers count by request id.

Peer, in the same run at the same servers: the router of litellm, with as many requests in flight.

    python -m benchmarks.chat_pool [--quick]
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commands import CHECKOUT, said
from benchmarks.machine import machine
from graftline.llm.base import ChatRequest, Message
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.pool import ActorPool
from tests.protocol_server import ProtocolServer

LATENCY_S = 0.5
SLOTS = 64
SLOWER = 10
ASKERS = 2 * 3 * SLOTS
PEERS_PYTHON = CHECKOUT / ".venv-peers" / "bin" / "python"
PEER = CHECKOUT / "benchmarks" / "peers" / "litellm_router.py"


@dataclass(frozen=True)
class Sizes:
    """How much is asked."""

    requests: int
    peer_requests: int


FULL = Sizes(requests=10_000, peer_requests=2_000)
QUICK = Sizes(requests=1_200, peer_requests=200)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few requests: shows that it runs, not how fast")
    figures, peers = measure(QUICK if parser.parse_args().quick else FULL)
    print(json.dumps({"name": "chat_pool", "figures": figures, "peers": peers, "machine": machine()}))


def measure(sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claims, and those of the peer."""
    with ExitStack() as stack:
        servers = [stack.enter_context(ProtocolServer(latency_s=LATENCY_S)) for _ in range(3)]
        steady = asyncio.run(_steady(servers, sizes.requests))
        peers = _peer(servers, sizes.peer_requests, steady["processor_ms"]) if PEERS_PYTHON.exists() else {}
        for server in servers:
            server.renew(latency_s=LATENCY_S)
        faults = asyncio.run(_faults(servers, sizes.requests))
    return {"steady": steady, "faults": faults, "load": round(os.getloadavg()[0], 1)}, peers


async def _steady(servers: Sequence[ProtocolServer], requests: int) -> dict[str, Any]:
    pool = _pool(servers)
    await asyncio.gather(*(pool.generate(_chat(number)) for number in range(50)))  # a warm-up
    texts: dict[int, str] = {}

    async def ask(number: int) -> None:
        texts[number] = (await pool.generate(_chat(number))).text

    began, processor_s = time.perf_counter(), time.process_time()
    await asyncio.gather(*_askers(ask, requests))
    seconds, processor_s = time.perf_counter() - began, time.process_time() - processor_s
    await pool.close()
    ideal = len(servers) * SLOTS / LATENCY_S
    return {
        "answers_per_s": round(requests / seconds, 1),
        "of_ideal": round(requests / seconds / ideal, 3),
        "processor_ms": round(processor_s / requests * 1000, 3),
        "lost": sum(texts.get(number) != str(number) for number in range(requests)),
    }


async def _faults(servers: Sequence[ProtocolServer], requests: int) -> dict[str, Any]:
    healthy, slow, killed = servers
    pool = _pool(servers)
    ended_at: list[float] = []
    texts: dict[int, str] = {}

    async def ask(number: int) -> None:
        texts[number] = (await pool.generate(_chat(number))).text
        ended_at.append(time.perf_counter())

    asked = asyncio.gather(*_askers(ask, requests))
    while len(ended_at) < requests // 3:
        await asyncio.sleep(0.01)
    answered_before = Counter(killed.seen().answered)
    killed.kill()
    slow.become(latency_s=LATENCY_S * SLOWER)
    broken_at, broken_after = time.perf_counter(), len(ended_at)
    while pool.stats().waiting:
        await asyncio.sleep(0.01)
    empty_at = time.perf_counter()
    await asked
    rest = SLOTS / LATENCY_S + SLOTS / (LATENCY_S * SLOWER)
    filled_at = broken_at + LATENCY_S
    rate = sum(filled_at < moment <= empty_at for moment in ended_at) / (empty_at - filled_at)
    answered = Counter(healthy.seen().answered) + Counter(slow.seen().answered)
    faults = Counter({kind.value: number for actor in pool.stats().actors for kind, number in actor.faults.items()})
    await pool.close()
    return {
        "answers_per_s": round(rate, 1),
        "of_ideal": round(rate / rest, 3),
        "whole_s": round(max(ended_at) - broken_at, 1),
        "ideal_whole_s": round((requests - broken_after) / rest, 1),
        "lost": sum(texts.get(number) != str(number) for number in range(requests)),
        "twice": sum(number > 1 for number in (answered + answered_before).values()),
        "faults": dict(+faults),
    }


def _askers(ask: Callable[[int], Awaitable[None]], requests: int) -> list[Coroutine[Any, Any, None]]:
    numbers = iter(range(requests))

    async def asker() -> None:
        for number in numbers:
            await ask(number)

    return [asker() for _ in range(ASKERS)]


def _peer(servers: Sequence[ProtocolServer], requests: int, processor_ms: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "messages.json"
        path.write_text(json.dumps([message.model_dump() for message in _chat(0).messages]), "utf-8")
        urls = [server.url for server in servers]
        found = said([str(PEERS_PYTHON), str(PEER), str(requests), str(SLOTS), str(path), *urls])
    ms = found["processor_seconds"] / requests * 1000
    return {
        "litellm": {
            "answers_per_s": round(requests / found["seconds"], 1),
            "processor_ms": round(ms, 3),
            "times_the_processor": round(ms / processor_ms, 2),
            "lost": requests - found["answers"],
        }
    }


def _pool(servers: Sequence[ProtocolServer]) -> ActorPool:
    names = ("healthy", "slow", "killed")
    actors = tuple(Actor(name=name, url=server.url, slots=SLOTS) for name, server in zip(names, servers, strict=True))
    return ActorPool(Fleet(engine="vllm", model="model", actors=actors), chance=random.Random(1))


def _chat(number: int) -> ChatRequest:
    """Return a chat as long as one of a teacher: 2,500 characters before the question."""
    rules = "Rewrite the code by one ast-grep action, and say in a sentence why it is the right one. " * 28
    return ChatRequest((Message(role="system", content=rules), Message(role="user", content=str(number))))


if __name__ == "__main__":
    main()
