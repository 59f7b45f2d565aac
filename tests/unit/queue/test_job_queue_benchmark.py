"""The benchmark of the queue, at sizes that show that it runs and measures what it says; no clock is judged."""

import pytest

from benchmarks import job_queue
from tests.redis_server import RedisServer


@pytest.mark.long
def test_what_goes_through_the_queue_is_counted(server: RedisServer) -> None:
    figures = job_queue.throughput(server, 250, 100)
    assert figures.keys() == {"jobs", "jobs_per_s", "server_us", "client_us"}
    assert figures["jobs"] == 250


def test_the_queue_in_memory_does_every_job() -> None:
    assert job_queue.in_memory(250) > 0
