"""How many jobs a second go through the queue in Redis, and whether one is lost when workers are killed.

A real server is started on a loopback port, with an append-only file that is written to disk every second.

* `batches`: jobs a second that are put, taken and finished, 100 in a call, by one producer and two workers at the same
  time; `server_us` and `client_us` are the microseconds of CPU of one job in the server and in all the others;
* `single`: the same where workers take and finish one job in a call, as those of language models do;
* `memory`: the same in the queue of one process, one thread;
* `killed`: 10 workers with 8 jobs at a time that are killed with SIGKILL at random times, each followed by another one,
  until every job is done: how many jobs have a result, how many have two, and how many were lost.

Every figure but the last counts from the first call to the last answer. On a machine that does something else too, the
microseconds tell more than the jobs a second; `load` is what it was at the end.

    python -m benchmarks.job_queue [--quick]
"""

import argparse
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from benchmarks.machine import machine
from graftline.rollouts.queue.base import Job, JobQueue, MemoryQueueConfig, RedisQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue
from graftline.rollouts.queue.redis import RedisJobQueue
from graftline.rollouts.queue.worker import StopRequest, WorkerSettings, run_worker
from tests.redis_server import RedisServer

BATCH = 100
WORKERS = 2  # that take and finish, in `batches` and `single`
KILLED_WORKERS = 10
_BODY = json.dumps({"task_id": "release:0123456789abcdef", "teacher": "openai", "attempt": 3, "note": "x" * 200})
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    batches: int
    single: int
    killed: int
    kills: int


FULL = Sizes(batches=50_000, single=5_000, killed=10_000, kills=50)
QUICK = Sizes(batches=2_000, single=200, killed=400, kills=5)


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few jobs: shows that it runs, not how fast")
    figures = measure(QUICK if parser.parse_args().quick else FULL)
    print(json.dumps({"name": "job_queue", "figures": figures, "machine": machine()}))


def measure(sizes: Sizes) -> dict[str, Any]:
    """Return the figures of the claims."""
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as server:
        return {
            "batches": throughput(server, sizes.batches, BATCH),
            "single": throughput(server, sizes.single, 1),
            "memory": {"jobs_per_s": in_memory(sizes.batches)},
            "killed": killed(server, sizes.killed, sizes.kills),
            "load": round(os.getloadavg()[0], 1),
        }


def throughput(server: RedisServer, count: int, batch: int) -> dict[str, Any]:
    """Return jobs a second from the first put to the last finish, and what they cost."""
    name = f"throughput-{batch}"
    queue = _queue(server.url, name)
    begin, used = _SPAWN.Event(), _SPAWN.SimpleQueue()
    processes: list[BaseProcess] = [
        _SPAWN.Process(target=_measured, args=(function, server.url, name, count, batch, begin, used))
        for function in [_produce, *[_consume] * WORKERS]
    ]
    for process in processes:
        process.start()
    for _ in processes:
        used.get()  # it stands ready
    server_cpu_s = _server_cpu_s(server)
    began = time.perf_counter()
    begin.set()
    client_cpu_s = sum(used.get() for _ in processes)
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    assert queue.depth().done == count, queue.depth()
    queue.close()
    return {
        "jobs": count,
        "jobs_per_s": round(count / seconds),
        "server_us": round((_server_cpu_s(server) - server_cpu_s) / count * 1e6, 1),
        "client_us": round(client_cpu_s / count * 1e6, 1),
    }


def in_memory(count: int) -> int:
    """Return jobs a second of the queue of one process."""
    queue = MemoryJobQueue(MemoryQueueConfig())
    began = time.perf_counter()
    for start in range(0, count, BATCH):
        queue.put(_jobs(start, min(start + BATCH, count)))
        queue.finish(queue.take("worker", BATCH, 0))
    assert queue.depth().done == count, queue.depth()
    return round(count / (time.perf_counter() - began))


def killed(server: RedisServer, count: int, kills: int) -> dict[str, Any]:
    """Return what became of `count` jobs whose workers are killed `kills` times, at random moments of their work."""
    chance = random.Random(6)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        queue = _queue(server.url, "killed")
        assert queue.put(_jobs(0, count)) == count
        began = time.perf_counter()
        workers = [_start(server.url, results) for _ in range(KILLED_WORKERS)]
        for at in sorted(chance.randrange(count) for _ in range(kills)):
            while queue.depth().done < at or not any(has_begun.value for _, has_begun in workers):
                time.sleep(0.02)
            victim = chance.choice([worker for worker, has_begun in workers if has_begun.value])
            victim.kill()
            workers = [pair for pair in workers if pair[0] is not victim]
            workers.append(_start(server.url, results))
        while (depth := queue.depth()).done + depth.dead < count:
            time.sleep(0.02)
        seconds = time.perf_counter() - began
        for worker, _ in workers:
            worker.kill()
            worker.join()
        written = Counter(results.read_text("utf-8").splitlines())
        lost = {job.key for job in _jobs(0, count)} - written.keys()
        queue.close()
    return {
        "jobs": count,
        "results": len(written),
        "lost": len(lost),
        "written_twice": sum(written.values()) - len(written),
        "dead_letters": depth.dead,
        "kills": kills,
        "seconds": round(seconds, 1),
    }


def _start(url: str, results: Path) -> tuple[BaseProcess, Any]:
    has_begun = _SPAWN.RawValue("b", 0)  # without a lock, which a killed process could leave locked
    process = _SPAWN.Process(target=_work, args=(url, results, has_begun))
    process.start()
    return process, has_begun


def _work(url: str, results: Path, has_begun: Any) -> None:
    store = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(job: Job, is_still_mine: Callable[[], bool]) -> None:
        has_begun.value = 1
        time.sleep(0.05)
        if is_still_mine():
            os.write(store, f"{job.key}\n".encode())

    queue = _queue(url, "killed")
    run_worker(queue, handle, WorkerSettings(concurrency=8), StopRequest(), f"worker {os.getpid()}")


def _measured(
    function: Callable[[JobQueue, int, int], None], url: str, name: str, count: int, batch: int, begin: Event, used: Any
) -> None:
    queue = _queue(url, name)
    used.put(0.0)
    begin.wait()
    before = time.process_time()
    function(queue, count, batch)
    used.put(time.process_time() - before)
    queue.close()


def _produce(queue: JobQueue, count: int, _batch: int) -> None:
    for start in range(0, count, BATCH):
        queue.put(_jobs(start, min(start + BATCH, count)))


def _consume(queue: JobQueue, count: int, batch: int) -> None:
    while (taken := queue.take(f"worker {os.getpid()}", batch, 0.05)) or queue.depth().done < count:
        queue.finish(taken)


def _queue(url: str, name: str) -> RedisJobQueue:
    rules = RedisQueueConfig(name=name, visibility_s=2.0, max_tries=50, retry_s=0.0)
    return RedisJobQueue(SecretStr(url), rules)


def _jobs(start: int, end: int) -> Sequence[Job]:
    return [Job(f"release:python:{number:08}", _BODY) for number in range(start, end)]


def _server_cpu_s(server: RedisServer) -> float:
    with server.client() as client:
        used: Any = client.info("cpu")
    return float(used["used_cpu_user"]) + float(used["used_cpu_sys"])


if __name__ == "__main__":
    main()
