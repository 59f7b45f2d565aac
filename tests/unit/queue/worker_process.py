"""A worker as a process of its own: python worker_process.py URL RESULTS WORK_S [until_empty].

Prints a line when it begins, and one with what it did. Its result of a job is a line of RESULTS.
"""

import os
import sys
import time
from collections.abc import Callable

from pydantic import SecretStr

from graftline.rollouts.queue.base import Job, RedisQueueConfig
from graftline.rollouts.queue.redis import RedisJobQueue
from graftline.rollouts.queue.worker import WorkerSettings, run_worker, stop_on_signals, worker_name


def main(url: str, results: str, work_s: str, *options: str) -> None:
    store = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(job: Job, is_still_mine: Callable[[], bool]) -> None:
        time.sleep(float(work_s))
        if is_still_mine():
            os.write(store, f"{job.key}\n".encode())

    rules = RedisQueueConfig(visibility_s=0.5, max_tries=50, retry_s=0.0)
    settings = WorkerSettings(concurrency=4, drain_s=10.0, until_empty="until_empty" in options)
    queue = RedisJobQueue(SecretStr(url), rules)
    with stop_on_signals() as stop:
        print("begins", flush=True)
        print(dict(run_worker(queue, handle, settings, stop, worker_name())), flush=True)


main(*sys.argv[1:])
