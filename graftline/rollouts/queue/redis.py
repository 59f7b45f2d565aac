"""The job queue in Redis 7 or later, or Valkey: a stream with a consumer group, for processes on many machines.

Every change of state is one call of `queue.lua` here beside, and may be repeated: a call whose answer was lost is sent
again. All keys of a queue carry its name as hash tag, so that a cluster keeps them in one place. What the server keeps
after it was killed or lost its power is decided by its append-only file (`appendonly yes`): all with `appendfsync always`, all but up
to two seconds with `everysec`, its default (https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/).
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import SecretStr
from redis import Redis, RedisCluster, exceptions
from redis.backoff import FullJitterBackoff, NoBackoff
from redis.retry import Retry

from graftline.core.errors import ConfigError, QueueError
from graftline.rollouts.queue.base import DeadLetter, Delivery, Depth, Job, RedisQueueConfig

logger = logging.getLogger(__name__)

LEAST_VERSION = (7, 0)
_GROUP = "workers"  # as in queue.lua
_CHUNK = 500  # jobs that one call of the script is about
_CHUNK_CHARACTERS = 1 << 20
_MAX_WAIT_S = 1.0  # then a worker looks again whether another one died
_TRANSIENT = (
    *(exceptions.ConnectionError, exceptions.TimeoutError),  # of which are that it starts, or has too many clients
    *(exceptions.ReadOnlyError, exceptions.ClusterDownError, exceptions.TryAgainError),  # another server takes over
    exceptions.RedisClusterException,  # no node of the cluster answers
)

T = TypeVar("T")


class RedisJobQueue:
    """One queue of one server; a connection for every thread that is in a call."""

    def __init__(self, url: SecretStr, config: RedisQueueConfig) -> None:
        """Reach the server, and refuse one that would lose jobs."""
        self._config = config
        self._url, self._label = url, f"queue {config.name!r} in redis"
        try:
            self._label += f" at {_host(url)}"
            self._client = self._with_retries(lambda: _client(url, config.is_cluster))
            info = self._with_retries(self._client.info)
        except (ValueError, TypeError):  # whose text may hold a part of the address; TypeError is of its query
            raise ConfigError(
                f"{config.url}: is not the address of a Redis server; expected redis://host:6379/0,"
                " rediss://host:6379/0 or unix:///path/to/socket, special characters of the password as %XX"
            ) from None
        self._check_server(info)
        prefix = f"graftline:{{{config.name}}}"
        self._jobs, self._dead, self._mark = f"{prefix}:jobs", f"{prefix}:dead", f"{prefix}:done:"
        self._keys = [
            *(self._jobs, f"{prefix}:places", f"{prefix}:reasons", self._dead),
            *(f"{prefix}:finished", f"{prefix}:cursor"),
        ]
        script = Path(__file__).with_name("queue.lua").read_text("utf-8")
        # what takes jobs in stops when memory is full; what gets rid of them goes on
        self._put_script = self._client.register_script(script)
        self._other_script = self._client.register_script(f"#!lua flags=allow-oom\n{script}")
        self._call("forget_workers", [_ms(config.visibility_s)])

    @property
    def visibility_s(self) -> float:
        return self._config.visibility_s

    def put(self, jobs: Sequence[Job]) -> int:
        count = 0
        for chunk in _chunks(jobs):
            accepted = int(self._call("put", [self._config.max_waiting], chunk, [job.body for job in chunk]))
            count += accepted
            if accepted < len(chunk):
                break
        return count

    def take(self, worker: str, most: int, wait_s: float) -> list[Delivery]:
        if most < 1:
            return []
        limits = _ms(self.visibility_s), self._config.max_tries, self._config.silence
        deadline = time.monotonic() + wait_s
        while True:
            if rows := self._call("take", [worker, most, *limits]):
                return [_delivery(worker, *fields) for fields in rows]
            remaining_s = min(deadline - time.monotonic(), _MAX_WAIT_S, self.visibility_s / 5)
            if remaining_s <= 0:
                return []
            if fresh := self._wait_for_fresh(worker, most, remaining_s):
                return fresh

    def hold(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        held = []
        for start in range(0, len(deliveries), _CHUNK):
            chunk = deliveries[start : start + _CHUNK]
            held += _select(chunk, self._call("hold", [delivery.receipt for delivery in chunk]))
        return held

    def finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        finished = []
        known_ms = _ms(timedelta(days=self._config.done_days).total_seconds())
        for start in range(0, len(deliveries), _CHUNK):
            chunk = deliveries[start : start + _CHUNK]
            jobs, receipts = [delivery.job for delivery in chunk], [delivery.receipt for delivery in chunk]
            finished += _select(chunk, self._call("finish", [known_ms], jobs, receipts))
        return finished

    def give_back(self, delivery: Delivery, reason: str) -> None:
        # the server counts how long nothing was heard of a job, so one that rests is one that was heard of lately
        idle_ms = _ms(self.visibility_s - self._config.pause_s(delivery.tries))
        self._call("give_back", [delivery.receipt, delivery.job.key, reason, idle_ms, self._config.max_tries])

    def reject(self, delivery: Delivery, reason: str) -> None:
        self._call("reject", [delivery.receipt, reason])

    def revive(self, keys: Sequence[str]) -> int:
        return sum(int(self._call("revive", keys[start : start + _CHUNK])) for start in range(0, len(keys), _CHUNK))

    def depth(self) -> Depth:
        return Depth(*self._call("depth", []))

    def dead(self) -> list[DeadLetter]:
        letters: list[DeadLetter] = []
        after = "-"
        while page := self._call("dead", [after, _CHUNK]):
            letters += [DeadLetter(Job(key, body), int(tries), reason) for _, key, body, tries, reason in page]
            after = f"({page[-1][0]}"
        return letters

    def close(self) -> None:
        self._client.close()

    def _wait_for_fresh(self, worker: str, most: int, wait_s: float) -> list[Delivery]:
        """Return jobs that nobody was given yet, as soon as there are some."""

        def read() -> Any:
            try:
                return self._client.xreadgroup(_GROUP, worker, {self._jobs: ">"}, most, _ms(wait_s) or 1)
            except exceptions.ResponseError as error:
                if str(error).startswith(("NOGROUP", "UNBLOCKED")):  # the queue was emptied: as if nothing had come
                    return []
                raise

        return [
            _delivery(worker, entry, 1, fields["key"], fields["body"])
            for _, entries in self._with_retries(read)
            for entry, fields in entries
        ]

    def _call(
        self, command: str, arguments: Sequence[str | int], jobs: Sequence[Job] = (), values: Sequence[str] = ()
    ) -> Any:
        """Run a command of the script; for each of `jobs` it gets the mark, the key and a value."""
        keys = [*self._keys, *(self._mark + job.key for job in jobs)]
        pairs = [part for job, value in zip(jobs, values, strict=True) for part in (job.key, value)]
        script = self._put_script if command == "put" else self._other_script
        return self._with_retries(lambda: script(keys, [command, *arguments, *pairs]))

    def _with_retries(self, call: Callable[[], T]) -> T:
        """Return what `call` returns; it is repeated while the server cannot be reached, until patience is over."""
        deadline = time.monotonic() + self._config.patience_s
        failures = 0

        def on_failure(error: Exception) -> None:
            nonlocal failures
            failures += 1
            if time.monotonic() >= deadline:
                raise error
            if failures == 1:
                logger.warning(
                    "%s: %s; trying again for %g s", self._label, self._describe(error), self._config.patience_s
                )

        retry = Retry(FullJitterBackoff(cap=2.0, base=0.05), -1, _TRANSIENT)
        try:
            return retry.call_with_retry(
                call, on_failure, lambda error: not isinstance(error, exceptions.AuthenticationError)
            )
        except exceptions.OutOfMemoryError:
            raise QueueError(f"{self._label}: its memory is full; raise `maxmemory`, or wait for the workers") from None
        except exceptions.MovedError:
            raise QueueError(f"{self._label}: is on another node of a cluster; set `is_cluster: true`") from None
        except _TRANSIENT as error:
            remedy = (
                "check user and password" if isinstance(error, exceptions.AuthenticationError) else "check that it runs"
            )
            raise QueueError(f"{self._label}: cannot be reached ({self._describe(error)}); {remedy}") from None
        except exceptions.RedisError as error:
            raise QueueError(f"{self._label}: refuses a call ({self._describe(error)}); see its log") from None

    def _describe(self, error: Exception) -> str:
        """Return what an error says, without the password: some servers repeat what they did not understand."""
        text = f"{type(error).__name__}: {error}".partition("\n")[0]
        parts = urlsplit(self._url.get_secret_value())
        for password in {parts.password, unquote(parts.password or ""), *parse_qs(parts.query).get("password", [])}:
            text = text.replace(password, "[secret]") if password else text
        return text

    def _check_server(self, info: Any) -> None:
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < LEAST_VERSION:
            least = ".".join(map(str, LEAST_VERSION))
            raise QueueError(f"{self._label}: is version {version}; Redis {least} or later, or Valkey, is needed")
        policy = info.get("maxmemory_policy", "noeviction")  # some providers do not say
        if info.get("maxmemory") and policy != "noeviction":
            raise QueueError(f"{self._label}: throws keys away ({policy!r}); set its `maxmemory-policy` to noeviction")
        if not info.get("aof_enabled", 1):
            logger.warning(
                "%s: keeps no append-only file and loses jobs with its process; `appendonly yes`", self._label
            )


def _host(url: SecretStr) -> str:
    parts = urlsplit(url.get_secret_value())
    return parts.path if parts.scheme == "unix" else f"{parts.hostname}:{parts.port or 6379}"


def _client(url: SecretStr, is_cluster: bool) -> Redis | RedisCluster:
    return (RedisCluster if is_cluster else Redis).from_url(
        url.get_secret_value(),
        decode_responses=True,
        protocol=2,
        # `_with_retries` repeats calls, and nothing below it
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=5.0,
        socket_timeout=10.0 + _MAX_WAIT_S,
        max_connections=10_000,  # the threads of a worker are bound elsewhere
    )


def _chunks(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    chunk: list[Job] = []
    size = 0
    for job in jobs:
        if chunk and (len(chunk) == _CHUNK or size + len(job.body) > _CHUNK_CHARACTERS):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += len(job.body)
    if chunk:
        yield chunk


def _delivery(worker: str, entry: str, tries: int, key: str, body: str) -> Delivery:
    return Delivery(Job(key, body), tries, f"{entry} {tries} {worker}")


def _select(deliveries: Sequence[Delivery], answers: Sequence[int]) -> list[Delivery]:
    return [delivery for delivery, answer in zip(deliveries, answers, strict=True) if answer]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
