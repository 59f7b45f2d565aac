"""The job queue of one process: for its threads, and gone with it. Many processes share `redis.py`."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from threading import Condition

from graftline.rollouts.queue.base import DeadLetter, Delivery, Depth, Job, QueueRules


@dataclass(slots=True)
class _Attempt:
    """A job that was delivered and is not done."""

    job: Job
    tries: int
    receipt: str
    """Of the worker that has it; empty while it rests after it was given back."""
    until: float
    """When it is anyone's, on the clock of `time.monotonic`."""
    reason: str = ""


class MemoryJobQueue:
    """Jobs in lists and mappings, behind one lock."""

    def __init__(self, rules: QueueRules) -> None:
        self._rules = rules
        self._changed = Condition()
        self._fresh: deque[Job] = deque()
        self._attempts: dict[str, _Attempt] = {}
        self._keys: set[str] = set()
        self._receipts_done: dict[str, str] = {}
        self._dead: dict[str, DeadLetter] = {}
        self._numbers = count(1)

    @property
    def visibility_s(self) -> float:
        return self._rules.visibility_s

    def put(self, jobs: Sequence[Job]) -> int:
        with self._changed:
            for position, job in enumerate(jobs):
                if job.key in self._keys:
                    continue
                if self._count_waiting() >= self._rules.max_waiting:
                    return position
                self._keys.add(job.key)
                self._fresh.append(job)
                self._changed.notify()
        return len(jobs)

    def take(self, worker: str, most: int, wait_s: float) -> list[Delivery]:
        if most < 1:
            return []
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not (deliveries := self._deliver_up_to(most, worker)):
                now = time.monotonic()
                if now >= deadline:
                    break
                self._changed.wait(min([deadline, *(attempt.until for attempt in self._attempts.values())]) - now)
            return deliveries

    def hold(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with self._changed:
            held = [delivery for delivery in deliveries if self._is_held(delivery)]
            for delivery in held:
                self._attempts[delivery.job.key].until = time.monotonic() + self.visibility_s
            return held

    def finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with self._changed:
            return [delivery for delivery in deliveries if self._finish(delivery)]

    def give_back(self, delivery: Delivery, reason: str) -> None:
        with self._changed:
            if not self._is_held(delivery):
                return
            attempt = self._attempts[delivery.job.key]
            attempt.reason = reason
            if attempt.tries >= self._rules.max_tries:
                self._bury(attempt, reason)
            else:
                attempt.receipt, attempt.until = "", time.monotonic() + self._rules.pause_s(attempt.tries)
            self._changed.notify()

    def reject(self, delivery: Delivery, reason: str) -> None:
        with self._changed:
            if self._is_held(delivery):
                self._bury(self._attempts[delivery.job.key], reason)

    def revive(self, keys: Sequence[str]) -> int:
        with self._changed:
            letters = [letter for key in keys if (letter := self._dead.pop(key, None)) is not None]
            self._fresh.extend(letter.job for letter in letters)
            self._changed.notify(len(letters))
            return len(letters)

    def depth(self) -> Depth:
        with self._changed:
            in_flight = sum(bool(attempt.receipt) for attempt in self._attempts.values())
            return Depth(self._count_waiting(), in_flight, len(self._receipts_done), len(self._dead))

    def dead(self) -> list[DeadLetter]:
        with self._changed:
            return list(self._dead.values())

    def close(self) -> None:
        pass

    def _count_waiting(self) -> int:
        return len(self._fresh) + sum(not attempt.receipt for attempt in self._attempts.values())

    def _deliver_up_to(self, most: int, worker: str) -> list[Delivery]:
        now = time.monotonic()
        deliveries: list[Delivery] = []
        for attempt in [attempt for attempt in self._attempts.values() if attempt.until <= now]:
            if len(deliveries) >= most:
                break
            if attempt.tries >= self._rules.max_tries:
                self._bury(attempt, "; before that: ".join(filter(None, [self._rules.silence, attempt.reason])))
            else:
                deliveries.append(self._deliver(attempt.job, worker, attempt.tries + 1, attempt.reason))
        while self._fresh and len(deliveries) < most:
            deliveries.append(self._deliver(self._fresh.popleft(), worker, 1, ""))
        return deliveries

    def _deliver(self, job: Job, worker: str, tries: int, reason: str) -> Delivery:
        receipt = f"{next(self._numbers)} {worker}"
        self._attempts[job.key] = _Attempt(job, tries, receipt, time.monotonic() + self.visibility_s, reason)
        return Delivery(job, tries, receipt)

    def _is_held(self, delivery: Delivery) -> bool:
        attempt = self._attempts.get(delivery.job.key)
        return attempt is not None and attempt.receipt == delivery.receipt

    def _finish(self, delivery: Delivery) -> bool:
        key = delivery.job.key
        if key in self._receipts_done:
            return self._receipts_done[key] == delivery.receipt
        self._receipts_done[key] = delivery.receipt
        self._keys.add(key)
        if self._attempts.pop(key, None) is None and self._dead.pop(key, None) is None:
            self._fresh = deque(job for job in self._fresh if job.key != key)
        return True

    def _bury(self, attempt: _Attempt, reason: str) -> None:
        del self._attempts[attempt.job.key]
        self._dead[attempt.job.key] = DeadLetter(attempt.job, attempt.tries, reason)
