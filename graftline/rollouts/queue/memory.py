"""The job queue of one process: for its threads, and gone with it. Many processes share `redis.py`."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from threading import Condition

from graftline.rollouts.queue.base import DeadLetter, Delivery, Depth, Job, QueueRules


@dataclass(slots=True)
class _Tried:
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
        self._tried: dict[str, _Tried] = {}
        self._known: set[str] = set()
        self._done: dict[str, str] = {}  # the receipt that each was finished with
        self._dead: dict[str, DeadLetter] = {}
        self._receipts = count(1)

    @property
    def visibility_s(self) -> float:
        return self._rules.visibility_s

    def put(self, jobs: Sequence[Job]) -> int:
        with self._changed:
            for position, job in enumerate(jobs):
                if job.key in self._known:
                    continue
                if self._waiting() >= self._rules.max_waiting:
                    return position
                self._known.add(job.key)
                self._fresh.append(job)
                self._changed.notify()
        return len(jobs)

    def take(self, worker: str, most: int, wait_s: float) -> list[Delivery]:
        if most < 1:
            return []
        deadline = time.monotonic() + wait_s
        with self._changed:
            while not (taken := self._deliveries(worker, most)):
                now = time.monotonic()
                if now >= deadline:
                    break
                self._changed.wait(min([deadline, *(tried.until for tried in self._tried.values())]) - now)
            return taken

    def hold(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with self._changed:
            held = [delivery for delivery in deliveries if self._is_held(delivery)]
            for delivery in held:
                self._tried[delivery.job.key].until = time.monotonic() + self.visibility_s
            return held

    def finish(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        with self._changed:
            return [delivery for delivery in deliveries if self._finish(delivery)]

    def give_back(self, delivery: Delivery, reason: str) -> None:
        with self._changed:
            if not self._is_held(delivery):
                return
            tried = self._tried[delivery.job.key]
            tried.reason = reason
            if tried.tries >= self._rules.max_tries:
                self._bury(tried, reason)
            else:
                tried.receipt, tried.until = "", time.monotonic() + self._rules.pause_s(tried.tries)
            self._changed.notify()

    def reject(self, delivery: Delivery, reason: str) -> None:
        with self._changed:
            if self._is_held(delivery):
                self._bury(self._tried[delivery.job.key], reason)

    def revive(self, keys: Sequence[str]) -> int:
        with self._changed:
            letters = [letter for key in keys if (letter := self._dead.pop(key, None)) is not None]
            self._fresh.extend(letter.job for letter in letters)
            self._changed.notify(len(letters))
            return len(letters)

    def depth(self) -> Depth:
        with self._changed:
            in_flight = sum(1 for tried in self._tried.values() if tried.receipt)
            return Depth(self._waiting(), in_flight, len(self._done), len(self._dead))

    def dead(self) -> list[DeadLetter]:
        with self._changed:
            return list(self._dead.values())

    def close(self) -> None:
        pass

    def _waiting(self) -> int:
        return len(self._fresh) + sum(1 for tried in self._tried.values() if not tried.receipt)

    def _deliveries(self, worker: str, most: int) -> list[Delivery]:
        now = time.monotonic()
        taken: list[Delivery] = []
        for tried in [tried for tried in self._tried.values() if tried.until <= now]:
            if len(taken) >= most:
                break
            if tried.tries >= self._rules.max_tries:
                self._bury(tried, "; before that: ".join(filter(None, [self._rules.silence, tried.reason])))
            else:
                taken.append(self._deliver(tried.job, worker, tried.tries + 1, tried.reason))
        while self._fresh and len(taken) < most:
            taken.append(self._deliver(self._fresh.popleft(), worker, 1, ""))
        return taken

    def _deliver(self, job: Job, worker: str, tries: int, reason: str) -> Delivery:
        receipt = f"{next(self._receipts)} {worker}"
        self._tried[job.key] = _Tried(job, tries, receipt, time.monotonic() + self.visibility_s, reason)
        return Delivery(job, tries, receipt)

    def _is_held(self, delivery: Delivery) -> bool:
        tried = self._tried.get(delivery.job.key)
        return tried is not None and tried.receipt == delivery.receipt

    def _finish(self, delivery: Delivery) -> bool:
        key = delivery.job.key
        if key in self._done:
            return self._done[key] == delivery.receipt
        self._done[key] = delivery.receipt
        self._known.add(key)
        if self._tried.pop(key, None) is None and self._dead.pop(key, None) is None:
            self._fresh = deque(job for job in self._fresh if job.key != key)
        return True

    def _bury(self, tried: _Tried, reason: str) -> None:
        del self._tried[tried.job.key]
        self._dead[tried.job.key] = DeadLetter(tried.job, tried.tries, reason)
