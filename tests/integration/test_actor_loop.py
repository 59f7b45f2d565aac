"""The whole loop over a real queue: the lineage puts attempts, workers make them, and one of them is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.paths import Paths
from graftline.rollouts.shards import read_shards, sealed_shards
from tests.redis_server import RedisServer

BIN = Path(sys.executable).parent
ANSWER = json.dumps(
    {
        "think": "The calls change.",
        "action": {"pattern": "old($A, $B)", "rewrite": "new($A, $B)"},
        "state_update": {"history": ["did it"], "next_focus": "done"},
    }
)
PORTS = {
    "sandbox": "memory",
    "teacher": "openai",
    "chat_model": {"kind": "memory", "answers": [ANSWER]},
    "vector_store": "memory",
    "queue": {"kind": "redis", "visibility_s": 1.0, "retry_s": 0.1},
}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


def command(root: Path, *arguments: str) -> list[str]:
    ports = [part for port, value in PORTS.items() for part in ("--set", f"{port}={json.dumps(value)}")]
    return [str(BIN / "graftline"), "--root", str(root), *arguments, *ports]


@contextmanager
def started(environment: Mapping[str, str], arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


def worker(root: Path, environment: Mapping[str, str], *options: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(environment, command(root, "worker", "run", "--metrics-port", "0", "--concurrency", "2", *options))


def test_every_task_has_one_attempt_whoever_dies(small_checkout: Any, pair: Any, redis: RedisServer) -> None:
    rows = [
        {**pair, "id": f"release:{number}", "qual": f"f{number}", "pkg": f"p{number}",
         "pre": f"def f{number}(a):\n    return old(a, {number})\n",
         "post": f"def f{number}(a):\n    return new(a, {number})\n"}
        for number in range(12)
    ]  # fmt: skip
    small_checkout.write(rows)
    small_checkout.configure(per_partition=4, languages=["python"])
    root = small_checkout.root
    environment = {**os.environ, "GRAFTLINE_REDIS_URL": redis.url}
    with (
        started(environment, command(root, "run")) as lineage,
        worker(root, environment) as first,
    ):
        attempts = root / "data" / "trajectories" / "attempts"
        until(lambda: any(attempts.rglob("*.open")))
        first.send_signal(signal.SIGKILL)
        with worker(root, environment) as second:
            assert lineage.wait(240) == 0
            second.send_signal(signal.SIGTERM)
            _, said = second.communicate(timeout=240)
    assert (second.returncode, said) == (0, "")
    for split in ("train", "dev", "test"):
        tasks = (Paths(root).partition("tasks", "python", split) / "tasks.jsonl").read_text("utf-8").splitlines()
        made = [
            one.task_id for one in read_shards(sealed_shards(Paths(root).attempts("python", split, "openai/memory")))
        ]
        assert made == [json.loads(task)["id"] for task in tasks]


def test_a_worker_tells_its_figures_and_logs_what_it_does(small_checkout: Any, redis: RedisServer) -> None:
    root = small_checkout.root
    environment = {**os.environ, "GRAFTLINE_REDIS_URL": redis.url}
    with worker(root, environment, "--queue", "empty") as one:
        until(lambda: any((root / "logs" / "actor").glob("*.jsonl")))
        [log] = (root / "logs" / "actor").glob("*.jsonl")
        until(lambda: "/metrics" in log.read_text("utf-8"))
        line = json.loads(log.read_text("utf-8").splitlines()[0])
        address = line["message"].partition("figures are on ")[2]
        until(lambda: "queue_depth{" in httpx.get(address).text)
        figures = httpx.get(address).text
        one.send_signal(signal.SIGTERM)
        assert one.wait(240) == 0
    assert ('graftline_queue_depth{state="waiting"}' in figures, redis.url in log.read_text("utf-8")) == (True, False)


@pytest.mark.parametrize("name", ["queue", "retry", "run"])
def test_a_queue_in_memory_is_refused_with_what_to_do(small_checkout: Any, name: str) -> None:
    ended = CliRunner().invoke(main, ["--root", str(small_checkout.root), "worker", name])
    assert (ended.exit_code, ended.stdout, ended.stderr) == (
        1,
        "",
        "error: queue 'memory' is inside one process, so that a worker would find nothing in it; expected --set"
        " queue=redis, or materialize `teacher_trajectories` in process\n",
    )


def until(is_so: Any, within_s: float = 240.0) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.05)
