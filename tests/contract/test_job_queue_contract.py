"""What every job queue answers, whichever implementation it is."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.rollouts.queue import open_queue
from graftline.rollouts.queue.base import (
    DeadLetter,
    Delivery,
    Depth,
    Job,
    JobQueue,
    MemoryQueueConfig,
    RedisQueueConfig,
)
from tests.redis_server import RedisServer

KINDS = ("memory", "redis")
OPEN_S = 20.0  # longer than any test takes
AFTER_S = 0.3  # longer than the visibility of 0.2 s
SILENCE = "its worker was not heard of for 0.2 s"

NewQueue = Callable[..., JobQueue]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture(params=KINDS)
def new_queue(request: pytest.FixtureRequest) -> Iterator[NewQueue]:
    opened: list[JobQueue] = []

    def new(**rules: float) -> JobQueue:
        rules = {"retry_s": 0.0, **rules}
        if request.param == "memory":
            opened.append(open_queue(MemoryQueueConfig(**rules), Secrets([])))
        else:
            secrets = Secrets([EnvironmentSecrets({"URL": request.getfixturevalue("server").url})])
            name = f"{request.node.name.partition('[')[0][:60]}-{len(opened)}"
            opened.append(open_queue(RedisQueueConfig(url="URL", name=name, **rules), secrets))
        return opened[-1]

    yield new
    for queue in opened:
        queue.close()


@pytest.fixture
def queue(new_queue: NewQueue) -> JobQueue:
    return new_queue()


def jobs(count: int, start: int = 0) -> list[Job]:
    return [Job(f"job {{{number}}} ü", f'{{"n": {number}}}') for number in range(start, start + count)]


def taken(deliveries: list[Delivery]) -> list[tuple[Job, int]]:
    return [(delivery.job, delivery.tries) for delivery in deliveries]


def test_jobs_are_delivered_in_the_order_they_were_put(queue: JobQueue) -> None:
    assert queue.put(jobs(5)) == 5
    first, second = queue.take("a", 2, 0), queue.take("b", 9, 0)
    assert (taken(first), taken(second)) == ([(job, 1) for job in jobs(2)], [(job, 1) for job in jobs(3, 2)])


def test_receipts_tell_all_deliveries_apart(queue: JobQueue) -> None:
    queue.put(jobs(5))
    receipts = [delivery.receipt for _ in range(2) for delivery in queue.take("a", 3, 0)]
    assert len(set(receipts)) == 5


def test_an_empty_queue_gives_nothing(queue: JobQueue) -> None:
    assert (queue.take("a", 3, 0), queue.take("a", 3, 0.01), queue.depth()) == ([], [], Depth(0, 0, 0, 0))


def test_who_asks_for_no_jobs_gets_none(queue: JobQueue) -> None:
    queue.put(jobs(1))
    assert (queue.take("a", 0, OPEN_S), queue.put([]), queue.hold([]), queue.finish([])) == ([], 0, [], [])


def test_a_waiting_worker_gets_a_job_that_is_put_later(queue: JobQueue) -> None:
    later = threading.Timer(0.05, lambda: queue.put(jobs(1)))
    later.start()
    assert taken(queue.take("a", 3, OPEN_S)) == [(jobs(1)[0], 1)]
    later.join()


def test_two_jobs_of_one_key_are_one_job(queue: JobQueue) -> None:
    assert queue.put([Job("k", "1"), Job("k", "2"), Job("l", "3")]) == 3
    assert taken(queue.take("a", 9, 0)) == [(Job("k", "1"), 1), (Job("l", "3"), 1)]


def test_a_key_is_known_whatever_became_of_its_job(queue: JobQueue) -> None:
    queue.put(jobs(4))
    _flying, done, dead = queue.take("a", 3, 0)
    queue.finish([done])
    queue.reject(dead, "no")
    assert (queue.put(jobs(4)), queue.depth()) == (4, Depth(1, 1, 1, 1))


def test_a_full_queue_takes_in_what_fits(new_queue: NewQueue) -> None:
    queue = new_queue(max_waiting=3)
    assert (queue.put(jobs(2)), queue.put(jobs(9)), queue.put(jobs(9, 3))) == (2, 3, 0)
    queue.take("a", 2, 0)
    assert (queue.put(jobs(9)), queue.depth()) == (5, Depth(3, 2, 0, 0))


def test_many_and_large_jobs_are_put_at_once(queue: JobQueue) -> None:
    many = [Job(str(number), "x" * (number % 7 * 4_000)) for number in range(1203)]
    assert queue.put(many) == 1203
    deliveries = queue.take("a", 5000, 0)
    assert taken(deliveries) == [(job, 1) for job in many]
    assert queue.hold(deliveries) == deliveries
    assert (queue.finish(deliveries), queue.depth()) == (deliveries, Depth(0, 0, 1203, 0))


def test_a_finished_job_is_done(queue: JobQueue) -> None:
    queue.put(jobs(2))
    first, second = queue.take("a", 2, 0)
    assert queue.finish([second]) == [second]
    assert (queue.depth(), queue.hold([first, second])) == (Depth(0, 1, 1, 0), [first])


def test_to_finish_twice_is_the_same_as_once(queue: JobQueue) -> None:
    queue.put(jobs(1))
    deliveries = queue.take("a", 1, 0)
    assert [queue.finish(deliveries) for _ in range(2)] == [deliveries, deliveries]
    assert queue.depth() == Depth(0, 0, 1, 0)


def test_the_job_of_a_worker_that_says_nothing_goes_to_another_one(new_queue: NewQueue) -> None:
    queue = new_queue(visibility_s=0.2)
    queue.put(jobs(2))
    lost = queue.take("a", 2, 0)
    again = queue.take("b", 1, OPEN_S)
    assert taken(again) == [(jobs(1)[0], 2)]
    assert queue.hold([lost[0], *again]) == again


def test_jobs_of_dead_workers_come_first(new_queue: NewQueue) -> None:
    queue = new_queue(visibility_s=0.2)
    queue.put(jobs(2))
    queue.take("a", 1, 0)
    time.sleep(AFTER_S)
    assert taken(queue.take("b", 2, 0)) == [(jobs(1)[0], 2), (jobs(1, 1)[0], 1)]


def test_a_job_that_is_held_stays_with_its_worker(new_queue: NewQueue) -> None:
    queue = new_queue(visibility_s=3.0)
    queue.put(jobs(1))
    held = queue.take("a", 1, 0)
    # together longer than the visibility, and each much shorter, however busy the machine is
    for _ in range(8):
        assert (queue.take("b", 1, 0.5), queue.hold(held)) == ([], held)


def test_what_a_slow_worker_finished_is_done_for_all(new_queue: NewQueue) -> None:
    queue = new_queue(visibility_s=0.2)
    queue.put(jobs(1))
    slow, quick = queue.take("a", 1, 0), queue.take("b", 1, OPEN_S)
    assert (queue.finish(slow), queue.finish(quick), queue.finish(slow)) == (slow, [], slow)
    assert (queue.hold(quick), queue.depth()) == ([], Depth(0, 0, 1, 0))


def test_a_delivery_that_was_lost_cannot_be_given_back(new_queue: NewQueue) -> None:
    queue = new_queue(visibility_s=0.2)
    queue.put(jobs(1))
    [slow], quick = queue.take("a", 1, 0), queue.take("b", 1, OPEN_S)
    queue.give_back(slow, "late")
    queue.reject(slow, "late")
    assert (queue.hold(quick), queue.depth()) == (quick, Depth(0, 1, 0, 0))


def test_a_job_that_was_given_back_is_delivered_again(queue: JobQueue) -> None:
    queue.put(jobs(1))
    [first] = queue.take("a", 1, 0)
    queue.give_back(first, "busy")
    assert (queue.depth(), queue.hold([first])) == (Depth(1, 0, 0, 0), [])
    assert taken(queue.take("a", 1, OPEN_S)) == [(jobs(1)[0], 2)]


def test_a_job_that_was_given_back_rests(new_queue: NewQueue) -> None:
    queue = new_queue(retry_s=3600.0, visibility_s=7200.0)
    queue.put(jobs(2))
    queue.give_back(queue.take("a", 1, 0)[0], "busy")
    assert taken(queue.take("a", 9, 0)) == [(jobs(1, 1)[0], 1)]
    assert (queue.take("a", 9, 0.05), queue.depth()) == ([], Depth(1, 1, 0, 0))


def test_a_job_that_rests_takes_room(new_queue: NewQueue) -> None:
    queue = new_queue(max_waiting=1, retry_s=3600.0, visibility_s=7200.0)
    queue.put(jobs(1))
    queue.give_back(queue.take("a", 1, 0)[0], "busy")
    assert queue.put(jobs(2)) == 1


def test_a_job_that_was_tried_often_enough_is_a_dead_letter(new_queue: NewQueue) -> None:
    queue = new_queue(max_tries=2)
    queue.put(jobs(1))
    for reason in ("first", "second"):
        queue.give_back(queue.take("a", 1, OPEN_S)[0], reason)
    assert (queue.dead(), queue.depth()) == ([DeadLetter(jobs(1)[0], 2, "second")], Depth(0, 0, 0, 1))


def test_a_job_whose_workers_die_without_a_word_is_a_dead_letter(new_queue: NewQueue) -> None:
    queue = new_queue(max_tries=3, visibility_s=0.2)
    queue.put(jobs(2))
    queue.finish(queue.take("a", 2, 0)[1:])
    queue.give_back(queue.take("b", 1, OPEN_S)[0], "busy")
    queue.take("c", 1, OPEN_S)
    assert queue.take("d", 1, AFTER_S) == []
    assert queue.dead() == [DeadLetter(jobs(1)[0], 3, f"{SILENCE}; before that: busy")]


def test_a_first_silence_is_reason_enough_where_one_try_is_all(new_queue: NewQueue) -> None:
    queue = new_queue(max_tries=1, visibility_s=0.2)
    queue.put(jobs(1))
    queue.take("a", 1, 0)
    assert (queue.take("b", 1, AFTER_S), queue.dead()) == ([], [DeadLetter(jobs(1)[0], 1, SILENCE)])


def test_a_rejected_job_is_a_dead_letter_at_once(queue: JobQueue) -> None:
    queue.put(jobs(2))
    for delivery in queue.take("a", 2, 0):
        queue.reject(delivery, f"no {delivery.job.body}")
    assert queue.dead() == [DeadLetter(job, 1, f"no {job.body}") for job in jobs(2)]
    assert queue.take("a", 1, 0.05) == []


def test_all_dead_letters_are_listed(queue: JobQueue) -> None:
    queue.put(jobs(1100))
    for delivery in queue.take("a", 1100, 0):
        queue.reject(delivery, "no")
    assert queue.dead() == [DeadLetter(job, 1, "no") for job in jobs(1100)]


def test_a_dead_letter_whose_worker_was_only_slow_is_done(new_queue: NewQueue) -> None:
    queue = new_queue(max_tries=1, visibility_s=0.2)
    queue.put(jobs(1))
    slow = queue.take("a", 1, 0)
    queue.take("b", 1, AFTER_S)
    assert (queue.finish(slow), queue.dead(), queue.depth()) == (slow, [], Depth(0, 0, 1, 0))


def test_a_revived_job_waits_as_if_it_had_never_been_tried(queue: JobQueue) -> None:
    queue.put(jobs(3))
    for delivery in (old := queue.take("a", 2, 0)):
        queue.reject(delivery, "no")
    assert queue.revive([jobs(1)[0].key, jobs(1, 2)[0].key, "unknown"]) == 1
    assert [letter.job for letter in queue.dead()] == jobs(1, 1)
    assert queue.put(jobs(3)) == 3
    assert taken(queue.take("a", 9, 0)) == [(jobs(1, 2)[0], 1), (jobs(1)[0], 1)]
    assert queue.hold(old) == []


def test_a_revived_job_that_its_first_worker_finished_is_not_delivered(queue: JobQueue) -> None:
    queue.put(jobs(1))
    [old] = queue.take("a", 1, 0)
    queue.reject(old, "no")
    queue.revive([old.job.key])
    assert queue.finish([old]) == [old]
    assert (queue.take("b", 1, 0), queue.depth()) == ([], Depth(0, 0, 1, 0))


def test_many_threads_share_a_queue_and_get_every_job_once(queue: JobQueue) -> None:
    queue.put(jobs(200))
    keys: list[str] = []

    def work(name: str) -> None:
        while deliveries := queue.take(name, 3, 0.1):
            keys.extend(delivery.job.key for delivery in queue.finish(deliveries))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, "abcd"))
    assert (sorted(keys), queue.depth()) == (sorted(job.key for job in jobs(200)), Depth(0, 0, 200, 0))


def test_a_closed_queue_may_be_closed_again(new_queue: NewQueue, tmp_path: Path) -> None:
    queue = new_queue()
    queue.close()
    queue.close()
