"""Pools over servers of the tests, so impatient that a test of patience is over at once."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from graftline.llm.base import ChatRequest, Message
from graftline.llm.client import ActorClient
from graftline.llm.concurrency import Concurrency
from graftline.llm.fleet import Actor, Fleet, PoolSettings
from graftline.llm.load import Health, Progress
from graftline.llm.member import Member
from graftline.llm.pool import ActorPool
from tests.protocol_server import ProtocolServer

IMPATIENT = {
    "first_backoff_s": 0.01,
    "longest_backoff_s": 0.05,
    "patience_s": 20.0,
    "first_pause_s": 0.02,
    "longest_pause_s": 0.05,
    "probe_s": 2.0,
    "health_s": 30.0,
    "load_s": 30.0,
    "look_s": 2.0,
    "stall_s": 0.2,
}
"""No look is taken by itself: a test that wants one asks for it."""


def question(text: str = "one two three", before: str = "be brief", **more: Any) -> ChatRequest:
    """Return a chat of two messages; the servers answer with the last one."""
    return ChatRequest(
        (Message(role="system", content=before), Message(role="user", content=text)), **{"deadline_s": 20.0, **more}
    )


def fleet(*servers: ProtocolServer, slots: int = 8, **more: Any) -> Fleet:
    """Return a fleet of `servers`, called `first`, `second`, ..."""
    names = ("first", "second", "third")
    actors = tuple(Actor(name=name, url=server.url, slots=slots) for name, server in zip(names, servers, strict=False))
    return Fleet(**{"engine": "vllm", "model": "model", "actors": actors, **more})


@asynccontextmanager
async def pool_of(
    *servers: ProtocolServer, settings: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[ActorPool]:
    """Open a pool over `servers` and close it again."""
    pool = ActorPool(
        fleet(*servers, **more), settings=PoolSettings(**{**IMPATIENT, **(settings or {})}), chance=random.Random(1)
    )
    try:
        yield pool
    finally:
        await pool.close()


def member(name: str, in_flight: int = 0) -> Member:
    """Return an actor with one place, of which nobody is at its address."""
    concurrency, health = Concurrency(1), Health(3, 1.0, 30.0)
    return Member(name, ActorClient("http://127.0.0.1:9"), concurrency, health, Progress(60.0), in_flight=in_flight)


async def until(claim: Callable[[], bool]) -> None:
    """Wait for `claim` to come true; a test in which it never does fails by its own time limit."""
    async with asyncio.timeout(240):
        while not claim():
            await asyncio.sleep(0.01)
