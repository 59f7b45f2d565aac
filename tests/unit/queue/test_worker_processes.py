"""Workers as processes: asked to stop, and killed."""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from graftline.rollouts.queue.base import Depth, Job
from graftline.rollouts.queue.redis import RedisJobQueue
from tests.redis_server import RedisServer

OpenQueue = Callable[..., RedisJobQueue]
Start = Callable[..., subprocess.Popen[str]]
PROGRAM = Path(__file__).with_name("worker_process.py")
ENDS_WITHIN_S = 240.0


@pytest.fixture
def start(server: RedisServer, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start_worker(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(PROGRAM), server.url, str(tmp_path / "results"), *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start_worker
    for process in started:
        process.kill()
        process.communicate()


def jobs(count: int) -> list[Job]:
    return [Job(f"job {number}", "{}") for number in range(count)]


def results(folder: Path) -> Counter[str]:
    return Counter((folder / "results").read_text("utf-8").splitlines())


def wait_until(is_time: Callable[[], bool]) -> None:
    deadline = time.monotonic() + ENDS_WITHIN_S
    while not is_time():
        assert time.monotonic() < deadline, "what was waited for never came"
        time.sleep(0.01)


def test_a_signal_lets_a_worker_finish_what_it_has(
    server: RedisServer, open_on: OpenQueue, start: Start, tmp_path: Path
) -> None:
    queue = open_on(server)
    queue.put(jobs(6))
    process = start("3")  # they are to be told in the middle of it
    wait_until(lambda: queue.depth().in_flight == 4)
    process.terminate()
    output, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert (output, process.returncode) == ("begins\n{'finished': 4}\n", 0)
    assert (results(tmp_path), queue.depth()) == (Counter(job.key for job in jobs(4)), Depth(2, 0, 4, 0))


def test_a_second_signal_gives_everything_back_at_once(server: RedisServer, open_on: OpenQueue, start: Start) -> None:
    queue = open_on(server)
    queue.put(jobs(2))
    process = start("3600")
    wait_until(lambda: queue.depth().in_flight == 2)
    for number in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
        time.sleep(0.2)
    output, _ = process.communicate(timeout=ENDS_WITHIN_S)
    assert (output, process.returncode) == ("begins\n{'given_back': 2}\n", 0)
    assert queue.depth() == Depth(2, 0, 0, 0)


def test_no_job_is_lost_when_workers_and_server_are_killed(
    server: RedisServer, open_on: OpenQueue, start: Start, tmp_path: Path
) -> None:
    queue = open_on(server, max_tries=50)
    queue.put(jobs(300))
    chance = random.Random(6)
    workers = [start("0.02") for _ in range(3)]
    for done in (20, 100, 180):
        wait_until(lambda done=done: queue.depth().done >= done)
        time.sleep(chance.uniform(0, 0.05))
        victim = chance.randrange(3)
        workers[victim].kill()
        workers[victim] = start("0.02")
    server.kill()
    server.start()
    wait_until(lambda: queue.depth() == Depth(0, 0, 300, 0))
    written = results(tmp_path)
    assert sorted(written) == sorted(job.key for job in jobs(300))
    # a job whose worker died between its result and the word of it is done again: at most 4 for each of the 3
    assert sum(written.values()) - 300 <= 12
