"""Queues on a real server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from graftline.rollouts.queue.base import RedisQueueConfig
from graftline.rollouts.queue.redis import RedisJobQueue
from tests.redis_server import RedisServer

OpenQueue = Callable[..., RedisJobQueue]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    # by default a server that is killed may forget up to two seconds, where its disk is slow
    with RedisServer(tmp_path, "--appendfsync", "always") as started:
        yield started


@pytest.fixture
def open_on() -> Iterator[OpenQueue]:
    """What opens a queue on a server, with rules that differ from the usual ones."""
    opened: list[RedisJobQueue] = []

    def open_queue(server: RedisServer, **rules: float | str) -> RedisJobQueue:
        config = RedisQueueConfig(**{"retry_s": 0.0, "patience_s": 20.0, **rules})
        opened.append(RedisJobQueue(SecretStr(server.url), config))
        return opened[-1]

    yield open_queue
    for queue in opened:
        queue.close()
