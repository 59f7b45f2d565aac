"""What clients asked for and is not done yet: one thread works on it, in the order that each client numbered it.

Clients send pieces of a batch in parallel, and repeat a request whose answer got lost; so calls of one run are worked on by
their numbers, whatever order they come in, and a number that was seen before is the same call. Requests to sample that wait
for the same model are worked on together.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from graftline.errors import GraftlineError

logger = logging.getLogger(__name__)

_KEPT_S, _KEPT = 900.0, 4096
"""How long an answer stays for who asks again, and how many do."""
Answer = bytes | dict[str, Any]


@dataclass(slots=True)
class Call:
    """Something that was asked for."""

    id: str
    state: Literal["waiting", "done", "failed", "cancelled"] = "waiting"
    answer: Answer = field(default_factory=dict)
    """Or, where it failed, why and whose fault it is."""
    ended_at: float = 0.0
    waiters: list[asyncio.Event] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """What the answer to its submission says beside its id."""


@dataclass(slots=True)
class _Work:
    call: Call
    do: Callable[[Sequence["_Work"]], Sequence[Answer]]
    shared: str
    """Work that says the same here, and is not empty, may be done together."""
    item: Any
    weight: int


class Calls:
    """The calls of a server; `submit`, `wait` and `cancel` are for its event loop."""

    def __init__(self, most_together: int = 16) -> None:
        """At most so much is done together, by weight."""
        self._most_together = most_together
        self._queue: queue.Queue[_Work | None] = queue.Queue()
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._parked: dict[str, dict[int, _Work]] = {}
        self._next: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to work; called once, on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End after the call that is worked on."""
        self._queue.put(None)
        self._thread.join()

    def submit(
        self,
        id: str,
        do: Callable[[], Answer],
        run_id: str = "",
        number: int | None = None,
        facts: dict[str, Any] | None = None,
    ) -> Call:
        """Have `do` called, after those of the same run with lower numbers; the first number is 1."""
        return self._take(id, _Work(Call(id, facts=facts or {}), lambda works: [do()], "", None, 1), run_id, number)

    def submit_shared(
        self,
        id: str,
        shared: str,
        item: Any,
        weight: int,
        do: Callable[[Sequence[Any]], Sequence[Answer]],
        facts: dict[str, Any] | None = None,
    ) -> Call:
        """Have `do` called with `item`, and with those of other calls that are `shared` in the same way."""

        def do_all(works: Sequence[_Work]) -> Sequence[Answer]:
            return do([work.item for work in works])

        return self._take(id, _Work(Call(id, facts=facts or {}), do_all, shared, item, weight), "", None)

    def get(self, id: str) -> Call | None:
        """Return a call; None where it was never made, or so long ago that it is forgotten."""
        return self._calls.get(id)

    async def wait(self, call: Call, seconds: float) -> bool:
        """Return whether `call` has ended, after `seconds` at most."""
        if call.state != "waiting":
            return True
        ended = asyncio.Event()
        call.waiters.append(ended)
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            call.waiters.remove(ended)
        return True

    def cancel(self, id: str) -> None:
        """Leave out a call that nobody waits for any more, if it has not begun."""
        call = self._calls.get(id)
        if call is not None and call.state == "waiting":
            call.state = "cancelled"

    def forget_run(self, run_id: str) -> None:
        """Drop what waits for calls of a run that will not come."""
        self._parked.pop(run_id, None)
        self._next.pop(run_id, None)

    @property
    def waiting(self) -> int:
        """Calls that have not begun."""
        return self._queue.qsize()

    def _take(self, id: str, work: _Work, run_id: str, number: int | None) -> Call:
        if id in self._calls:
            return self._calls[id]
        self._forget_old()
        self._calls[id] = work.call
        if number is None:
            self._queue.put(work)
            return work.call
        parked = self._parked.setdefault(run_id, {})
        parked[number] = work
        following = self._next.get(run_id, 1)
        while following in parked:
            self._queue.put(parked.pop(following))
            following += 1
        self._next[run_id] = following
        return work.call

    def _forget_old(self) -> None:
        limit = time.monotonic() - _KEPT_S
        ended = [id for id, call in self._calls.items() if call.state != "waiting"]
        for id in ended:
            if len(self._calls) <= _KEPT and self._calls[id].ended_at > limit:
                break
            del self._calls[id]

    def _work(self) -> None:
        held: _Work | None = None
        while (work := held or self._queue.get()) is not None:
            held, works = None, [work]
            while work.shared and sum(one.weight for one in works) < self._most_together:
                try:
                    other = self._queue.get_nowait()
                except queue.Empty:
                    break
                if other is None or other.shared != work.shared:
                    held = other
                    if other is None:
                        self._queue.put(None)
                    break
                works.append(other)
            works = [one for one in works if one.call.state == "waiting"]
            if works:
                self._do(works)

    def _do(self, works: Sequence[_Work]) -> None:
        state: Literal["done", "failed"] = "done"
        answers: Sequence[Answer]
        try:
            answers = works[0].do(works)
        except GraftlineError as error:
            state, answers = "failed", [{"error": str(error), "category": "user"}] * len(works)
        except Exception as error:
            logger.exception("call %s failed", works[0].call.id)
            told = f"{type(error).__name__}: {error}"
            state, answers = "failed", [{"error": told, "category": "server"}] * len(works)
        assert self._loop is not None
        for work, answer in zip(works, answers, strict=True):
            self._loop.call_soon_threadsafe(_end, work.call, state, answer)


def _end(call: Call, state: Literal["done", "failed"], answer: Answer) -> None:
    call.state, call.answer, call.ended_at = state, answer, time.monotonic()
    for waiter in call.waiters:
        waiter.set()
