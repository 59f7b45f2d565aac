"""A run whose attempts workers make: attempts of several partitions are in the queue at the same time."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from graftline.core.hashing import digest
from graftline.core.metrics import Metrics
from graftline.core.paths import Paths
from graftline.datasets.splits import Split
from graftline.pipeline import attempts as asked_attempts
from graftline.pipeline.attempts import JobFeed, Place
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.ports import open_ports
from graftline.pipeline.settings import attempt_settings, load_settings, stage_code
from graftline.pipeline.worker_loop import AttemptMaker, Store, open_states
from graftline.rollouts.collect_many import AttemptJob
from graftline.rollouts.queue.base import Job, MemoryQueueConfig
from graftline.rollouts.queue.memory import MemoryJobQueue
from graftline.rollouts.queue.worker import StopRequest, WorkerSettings, run_worker
from graftline.rollouts.shards import read_shards, sealed_shards
from tests.redis_server import RedisServer
from tests.unit.pipeline.test_asked_attempts import RIGHT, asking

PLACES: Sequence[Place] = [("python", "train"), ("python", "dev"), ("java", "train"), ("java", "dev")]


def jobs_of(language: str, split: str) -> list[Job]:
    return [Job(f"{language}/{split}", "{}")]


def waiting(queue: MemoryJobQueue) -> list[str]:
    return [delivery.job.key for delivery in queue.take("worker", 99, 0.0)]


@pytest.fixture
def queue() -> Iterator[MemoryJobQueue]:
    opened = MemoryJobQueue(MemoryQueueConfig(max_waiting=2))
    yield opened
    opened.close()


def test_jobs_of_all_partitions_are_put_in_order_as_far_as_there_is_room(queue: MemoryJobQueue) -> None:
    feed = JobFeed(PLACES, jobs_of, has_examples=False)
    feed.begin(("python", "train"))
    feed.put(queue)
    first = waiting(queue)
    feed.put(queue)
    assert (first, waiting(queue)) == (["python/dev", "java/train"], ["java/dev"])


def test_where_prompts_show_examples_other_splits_wait_for_the_training_split(queue: MemoryJobQueue) -> None:
    feed = JobFeed(PLACES, jobs_of, has_examples=True)
    put = []
    for place in PLACES:
        feed.begin(place)
        feed.put(queue)
        put.append(waiting(queue))
    # python/dev and java/dev are left to their stages, which begin when the training split is made
    assert put == [["java/train"], [], [], []]


def test_two_workers_have_jobs_of_two_partitions_at_the_same_time(
    made: Path, run: Any, reconfigure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asked_attempts, "_LOOK_S", 0.05)
    reconfigure(made, "trajectories.yaml", {"asking.most_tasks": 1})
    paths, both, stop = Paths(made), threading.Barrier(2, timeout=60), StopRequest()
    overrides = asking(RIGHT) | {"queue": {"kind": "redis", "retry_s": 0.05, "max_tries": 1}}
    splits: list[Split] = []
    with ExitStack() as stack:
        server = stack.enter_context(RedisServer(tmp_path))
        monkeypatch.setenv("GRAFTLINE_REDIS_URL", server.url)
        manifest = load_manifest(paths, "local", overrides)
        ports = stack.enter_context(open_ports(manifest, paths))
        settings, states = load_settings(paths), open_states(paths, stack)
        made_by = digest(attempt_settings(paths, manifest, settings, ports))
        stores = [stack.enter_context(Store(paths, name)) for name in ("first", "second")]

        def handler(store: Store) -> Callable[[Job, Callable[[], bool]], None]:
            make = AttemptMaker(
                ports.queue, ports.teacher, ports.sandbox, settings.trajectories.collecting, states, store, Metrics(),
                made_by, stage_code("teacher_trajectories"),
            )  # fmt: skip

            def handle(job: Job, is_still_mine: Callable[[], bool]) -> None:
                splits.append(AttemptJob.of(job).split)
                if splits[-1] != "train":
                    both.wait()  # for the other worker to have a job, too
                make(job, is_still_mine)
                store.seal()

            return handle

        workers = [
            threading.Thread(
                target=run_worker,
                args=(ports.queue, handler(store), WorkerSettings(concurrency=1), stop, f"worker {number}"),
            )
            for number, store in enumerate(stores)
        ]
        for worker in workers:
            worker.start()
        try:
            run(made, overrides)
        finally:
            stop.ask()
            for worker in workers:
                worker.join()
    assert (splits[0], {*splits[1:]}) == ("train", {"dev", "test"})
    for split in ("train", "dev", "test"):
        tasks = (paths.partition("tasks", "python", split) / "tasks.jsonl").read_text("utf-8").splitlines()
        [attempt] = read_shards(sealed_shards(paths.attempts("python", split, "openai/memory")))
        assert attempt.task_id in tasks[0]
