"""What the queue in Redis does when the server fails, restarts, forgets or is unfit."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError, QueueError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.rollouts.queue import open_queue
from graftline.rollouts.queue.base import DeadLetter, Delivery, Depth, Job, RedisQueueConfig
from graftline.rollouts.queue.redis import RedisJobQueue
from graftline.rollouts.queue.worker import StopRequest, WorkerSettings, run_worker
from tests.redis_server import RedisServer, old_redis

OpenQueue = Callable[..., RedisJobQueue]
JOBS = [Job(f"job {number}", "{}") for number in range(6)]


def tried(deliveries: list[Delivery]) -> list[tuple[str, int]]:
    return [(delivery.job.key, delivery.tries) for delivery in deliveries]


def test_all_is_there_after_the_server_was_killed(server: RedisServer, open_on: OpenQueue) -> None:
    queue = open_on(server)
    queue.put(JOBS)
    held, done, dead, back = queue.take("a", 4, 0)
    queue.finish([done])
    queue.reject(dead, "no")
    queue.give_back(back, "busy")
    server.kill()
    server.start()
    assert (queue.depth(), queue.dead()) == (Depth(3, 1, 1, 1), [DeadLetter(dead.job, 1, "no")])
    assert (queue.hold([held]), queue.put(JOBS), queue.finish([done])) == ([held], 6, [done])
    assert tried(queue.take("b", 9, 0)) == [("job 3", 2), ("job 4", 1), ("job 5", 1)]


def test_a_call_waits_for_a_server_that_restarts(
    server: RedisServer, open_on: OpenQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = open_on(server)
    server.kill()
    restart = threading.Timer(0.3, server.start)
    restart.start()
    assert queue.put(JOBS) == 6
    restart.join()
    # as often as it was tried again, which is more often where the server takes long to start
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_worker_that_waits_gets_jobs_after_a_restart(server: RedisServer, open_on: OpenQueue) -> None:
    queue, taken = open_on(server), []
    waiting = threading.Thread(target=lambda: taken.extend(queue.take("a", 9, 20.0)))
    waiting.start()
    time.sleep(0.1)
    server.kill()
    server.start()
    open_on(server).put(JOBS[:1])
    waiting.join()
    assert tried(taken) == [("job 0", 1)]


def test_patience_ends(server: RedisServer, open_on: OpenQueue) -> None:
    queue = open_on(server, patience_s=1.0)  # a first try finds the old connection closed
    server.kill()
    with pytest.raises(QueueError) as caught:
        queue.depth()
    assert str(caught.value) == (
        f"queue 'teacher' in redis at 127.0.0.1:{server.port}: cannot be reached (ConnectionError:"
        f" Error 111 connecting to 127.0.0.1:{server.port}. Connection refused.); check that it runs"
    )


def test_a_worker_ends_when_its_queue_is_gone(server: RedisServer, open_on: OpenQueue) -> None:
    queue, written = open_on(server, patience_s=0.2), []
    queue.put(JOBS[:1])

    def handle(job: Job, _is_mine: Callable[[], bool]) -> None:
        server.kill()
        time.sleep(0.5)  # meanwhile the worker asks for another job
        written.append(job)

    with pytest.raises(QueueError, match="cannot be reached"):
        run_worker(queue, handle, WorkerSettings(), StopRequest(), "w")
    assert written == JOBS[:1]


def test_scripts_that_the_server_forgot_are_loaded_again(server: RedisServer, open_on: OpenQueue) -> None:
    queue = open_on(server)
    server.client().script_flush()
    assert (queue.put(JOBS), tried(queue.take("a", 1, 0))) == (6, [("job 0", 1)])


def test_a_queue_that_was_emptied_goes_on(server: RedisServer, open_on: OpenQueue) -> None:
    queue, taken = open_on(server), []
    queue.put(JOBS[:2])
    old = queue.take("a", 2, 0)
    waiting = threading.Thread(target=lambda: taken.extend(queue.take("b", 9, 20.0)))
    waiting.start()
    time.sleep(0.1)
    server.client().flushall()
    assert (queue.hold(old), queue.finish(old[:1])) == ([], old[:1])
    # its producer puts everything again, and what was done meanwhile is not done again
    queue.put(JOBS[:2])
    waiting.join()
    assert (tried(taken), queue.depth()) == ([("job 1", 1)], Depth(0, 1, 1, 0))


def test_who_lost_a_job_is_told_and_finishes_nothing(server: RedisServer, open_on: OpenQueue) -> None:
    queue, thief, asked = open_on(server, visibility_s=3600.0), open_on(server, visibility_s=0.05), []
    queue.put(JOBS[:1])

    def handle(_job: Job, is_mine: Callable[[], bool]) -> None:
        asked.extend([is_mine(), tried(thief.take("thief", 1, 20.0)), is_mine()])

    ended = run_worker(
        queue, handle, WorkerSettings(until_empty=True, concurrency=1), stop := StopRequest(), "w", _StopAfter(stop)
    )
    assert (ended, asked, queue.depth()) == ({"lost": 1}, [True, [("job 0", 2)], False], Depth(0, 1, 0, 0))


class _StopAfter:
    """Stops a worker after its first job."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def on_start(self, delivery: Delivery) -> None:
        self._stop.ask()

    def on_end(self, delivery: Delivery, outcome: str, seconds: float) -> None:
        pass


def test_a_key_is_forgotten_in_time(server: RedisServer, open_on: OpenQueue) -> None:
    queue = open_on(server, done_days=0.2 / 86_400)
    queue.put(JOBS[:1])
    queue.finish(queue.take("a", 1, 0))
    time.sleep(0.3)
    queue.put(JOBS[:1])
    assert queue.depth() == Depth(1, 0, 1, 0)


def test_names_of_workers_that_are_gone_are_not_kept(server: RedisServer, open_on: OpenQueue) -> None:
    queue = open_on(server)
    queue.put(JOBS[:1])
    [held] = queue.take("busy", 1, 0)
    queue.take("gone", 1, 0)
    time.sleep(0.1)
    open_on(server, visibility_s=0.05)
    consumers = server.client().xinfo_consumers("graftline:{teacher}:jobs", "workers")
    assert ([consumer["name"] for consumer in consumers], queue.hold([held])) == (["busy"], [held])


def test_a_full_server_takes_no_jobs_but_lets_go_of_them(tmp_path: Path, open_on: OpenQueue) -> None:
    with RedisServer(tmp_path, "--maxmemory", "6mb", "--maxmemory-policy", "noeviction") as server:
        queue = open_on(server)
        with pytest.raises(QueueError) as caught:
            queue.put([Job(str(number), "x" * 100_000) for number in range(100)])
        assert str(caught.value).endswith("its memory is full; raise `maxmemory`, or wait for the workers")
        taken = queue.take("a", 100, 0)
        assert queue.finish(taken) == taken
        assert queue.put(JOBS) == 6


def test_a_server_that_throws_keys_away_is_refused(tmp_path: Path, open_on: OpenQueue) -> None:
    with (
        RedisServer(tmp_path, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru") as server,
        pytest.raises(
            QueueError, match="throws keys away \\('allkeys-lru'\\); set its `maxmemory-policy` to noeviction"
        ),
    ):
        open_on(server)


def test_a_server_without_a_file_is_warned_of(
    tmp_path: Path, open_on: OpenQueue, caplog: pytest.LogCaptureFixture
) -> None:
    with RedisServer(tmp_path, "--appendonly", "no") as server:
        open_on(server)
    assert [record.message.partition(": ")[2] for record in caplog.records] == [
        "keeps no append-only file and loses jobs with its process; `appendonly yes`"
    ]


def test_an_old_server_is_refused() -> None:
    with old_redis("6.2.14") as url, pytest.raises(QueueError) as caught:
        RedisJobQueue(SecretStr(url), RedisQueueConfig())
    assert str(caught.value).endswith(": is version 6.2.14; Redis 7.0 or later, or Valkey, is needed")


def test_a_password_is_used_and_never_shown(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--requirepass", "geheim") as server:
        address = server.url.replace("//", "//:{}@")
        config = RedisQueueConfig(url="URL", patience_s=20.0)
        queue = open_queue(config, Secrets([EnvironmentSecrets({"URL": address.format("geheim")})]))
        assert queue.put(JOBS) == 6
        queue.close()
        with pytest.raises(QueueError) as caught:
            open_queue(config, Secrets([EnvironmentSecrets({"URL": address.format("falsch")})]))
    assert str(caught.value) == (
        f"queue 'teacher' in redis at 127.0.0.1:{server.port}: cannot be reached (AuthenticationError:"
        " invalid username-password pair or user is disabled.); check user and password"
    )


def test_a_server_that_repeats_the_password_is_not_quoted(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--rename-command", "AUTH", "") as server:
        url = SecretStr(server.url.replace("//", "//:gehei%6D@"))
        with pytest.raises(QueueError) as caught:
            RedisJobQueue(url, RedisQueueConfig(patience_s=0))
    assert str(caught.value).endswith(
        "refuses a call (ResponseError: unknown command 'AUTH', with args beginning with: '[secret]' ); see its log"
    )


@pytest.mark.parametrize(
    "address",
    [
        "redis:/",
        "localhost:6379",
        "http://localhost",
        "redis://:pw@host:gehe/im",
        "redis://localhost:1/0?geheim=1",
        "[",
    ],
)
def test_an_address_that_is_none_is_a_fault_of_the_configuration(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_queue(RedisQueueConfig(url="URL", patience_s=0), Secrets([EnvironmentSecrets({"URL": address})]))
    assert str(caught.value) == (
        "URL: is not the address of a Redis server; expected redis://host:6379/0, rediss://host:6379/0 or"
        " unix:///path/to/socket, special characters of the password as %XX"
    )


def test_a_queue_may_be_behind_a_socket(tmp_path: Path) -> None:
    with RedisServer(tmp_path, "--unixsocket", "socket") as _server:
        queue = RedisJobQueue(SecretStr(f"unix://{tmp_path}/socket"), RedisQueueConfig())
        assert queue.put(JOBS) == 6
        queue.close()
