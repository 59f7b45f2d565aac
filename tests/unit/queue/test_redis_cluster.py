"""The queue on a cluster of three nodes."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from pydantic import SecretStr

from graftline.core.errors import QueueError
from graftline.rollouts.queue.base import DeadLetter, Depth, Job, RedisQueueConfig
from graftline.rollouts.queue.redis import RedisJobQueue
from tests.redis_server import RedisServer

SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))
JOBS = [Job(f"job {{{number}}}", "{}") for number in range(4)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ExitStack() as stack:
        options = ("--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf")
        nodes = [stack.enter_context(RedisServer(tmp_path_factory.mktemp("node"), *options)) for _ in SLOTS]
        clients = [node.client() for node in nodes]
        for client, slots in zip(clients, SLOTS, strict=True):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        for node in nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
        while not all(client.cluster("INFO")["cluster_state"] == "ok" for client in clients):
            time.sleep(0.05)
        yield nodes[0].url


@pytest.mark.parametrize("name", ["b", "c", "a"])  # on the first, second and third node
def test_a_queue_is_on_one_node(cluster: str, name: str) -> None:
    queue = RedisJobQueue(SecretStr(cluster), RedisQueueConfig(name=name, is_cluster=True, max_tries=1))
    assert queue.put(JOBS) == 4
    first, second, third = queue.take("w", 3, 0)
    assert (queue.finish([first]), queue.hold([first, second])) == ([first], [second])
    queue.give_back(second, "busy")
    queue.reject(third, "no")
    assert queue.dead() == [DeadLetter(second.job, 1, "busy"), DeadLetter(third.job, 1, "no")]
    assert (queue.revive([third.job.key]), queue.depth()) == (1, Depth(2, 0, 1, 1))
    assert [delivery.job for delivery in queue.take("w", 9, 1.0)] == [JOBS[3], JOBS[2]]
    assert queue.take("w", 9, 0.1) == []
    queue.close()


def test_who_does_not_know_of_the_cluster_is_told(cluster: str) -> None:
    with pytest.raises(QueueError, match=r"is on another node of a cluster; set `is_cluster: true`"):
        RedisJobQueue(SecretStr(cluster), RedisQueueConfig(name="a"))
