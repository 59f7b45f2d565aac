"""The calls that clients made and that are not done yet: one thread does them, in the order that each client numbered them.

Clients send pieces of a batch in parallel, and repeat a request whose answer got lost; so calls of one run are done by
their numbers, whatever order they come in, and a number that came before is the same call. A client that fails between
taking a number and sending it never sends it: what waits for such a number is refused after a while. Requests to sample that
wait for the same model are done together.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from graftline.core.errors import DataError, GraftlineError

logger = logging.getLogger(__name__)

_GATHER_S = 0.03
"""For which work that can be shared waits for more of it: one client sends many requests one after the other."""

Answer = bytes | dict[str, Any]


@dataclass(slots=True)
class Call:
    """Work that a client asked for."""

    id: str
    state: Literal["waiting", "done", "failed", "cancelled"] = "waiting"
    answer: Answer = field(default_factory=dict)
    """Or, where it failed, why and whose fault it is."""
    ended_at: float = 0.0
    waiters: list[asyncio.Event] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    """What the answer to its submission says beside its id."""

    def wake(self) -> None:
        for waiter in self.waiters:
            waiter.set()

    def end(self, state: Literal["done", "failed", "cancelled"], answer: Answer) -> None:
        self.state, self.answer, self.ended_at = state, answer, time.monotonic()
        self.wake()


@dataclass(slots=True)
class _Work:
    call: Call
    run: Callable[[Sequence["_Work"]], Sequence[Answer]]
    shared: str = ""
    """Work that says the same here, and is not empty, may be done together."""
    item: Any = None
    weight: int = 1


class Calls:
    """The calls of a server; `submit`, `wait` and `cancel` are for its event loop."""

    def __init__(
        self,
        max_shared_weight: int,
        keep_s: float = 900.0,
        max_kept: int = 4096,
        lost_s: float = 60.0,
        on_lost: Callable[[str], None] = lambda run_id: None,
    ) -> None:
        """At most so much is done together, by weight; answers stay for so long, and so many of them, for who asks again.

        A number that does not come within `lost_s` of one after it is lost; `on_lost` is called with the run, in its turn.
        """
        self._max_shared_weight, self._keep_s, self._max_kept = max_shared_weight, keep_s, max_kept
        self._lost_s, self._on_lost = lost_s, on_lost
        self._queue: queue.Queue[_Work | None] = queue.Queue()
        self._calls: OrderedDict[str, Call] = OrderedDict()
        self._parked: dict[str, dict[int, _Work]] = {}
        self._next: dict[str, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ending = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)

    def start(self) -> None:
        """Begin to work; called once, on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End after the call that is worked on."""
        self.release_waiters()
        self._is_ending = True
        self._queue.put(None)
        self._thread.join()

    def release_waiters(self) -> None:
        """Have all who wait learn that their calls have not ended yet."""
        for call in self._calls.values():
            call.wake()

    def submit(
        self,
        id: str,
        work: Callable[[], Answer],
        run_id: str = "",
        number: int | None = None,
    ) -> Call:
        """Have `work` called, after that of the same run with lower numbers; DataError for a number whose call is forgotten."""
        return self._enqueue(id, _Work(Call(id), lambda works: [work()]), run_id, number)

    def submit_shared(
        self,
        id: str,
        shared: str,
        item: Any,
        weight: int,
        work: Callable[[Sequence[Any]], Sequence[Answer]],
        facts: dict[str, Any] | None = None,
    ) -> Call:
        """Have `work` called with `item`, and with those of other calls that are `shared` in the same way."""

        def run(works: Sequence[_Work]) -> Sequence[Answer]:
            return work([other.item for other in works])

        return self._enqueue(id, _Work(Call(id, facts=facts or {}), run, shared, item, weight), "", None)

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
        return call.state != "waiting"

    def cancel(self, id: str) -> None:
        """Leave out a call that has not begun."""
        call = self._calls.get(id)
        if call is not None and call.state == "waiting":
            call.end("cancelled", {"error": "the call was cancelled", "category": "user"})

    def forget_run(self, run_id: str) -> None:
        """Drop what waits for calls of a run that will not come."""
        for work in self._parked.pop(run_id, {}).values():
            self.cancel(work.call.id)
        self._next.pop(run_id, None)

    def _enqueue(self, id: str, work: _Work, run_id: str, number: int | None) -> Call:
        if id in self._calls:
            return self._calls[id]
        following = self._next.get(run_id, 1)
        if number is not None and number < following:
            raise DataError(
                f"call {number} of {run_id} was answered long ago, and its answer is not known any more; or it came so late"
                " that those after it did not wait"
            )
        self._forget_old()
        self._calls[id] = work.call
        if number is None:
            self._queue.put(work)
            return work.call
        parked = self._parked.setdefault(run_id, {})
        parked[number] = work
        while following in parked:
            self._queue.put(parked.pop(following))
            following += 1
        self._next[run_id] = following
        if parked:
            asyncio.get_running_loop().call_later(self._lost_s, self._give_up, run_id, following)
        return work.call

    def _give_up(self, run_id: str, missing: int) -> None:
        """Refuse what still waits for the call `missing`."""
        parked = self._parked.get(run_id, {})
        if not parked or self._next[run_id] != missing:
            return
        logger.warning("call %s of %s never came", missing, run_id)

        def report(works: Sequence[_Work]) -> Sequence[Answer]:
            self._on_lost(run_id)
            return [{}]

        def refuse(works: Sequence[_Work]) -> Sequence[Answer]:
            raise DataError(f"call {missing} of this run never came, so this one after it is not done; send it again")

        self._queue.put(_Work(Call(f"{run_id}/{missing}/lost"), report))
        for number in sorted(parked):
            self._queue.put(replace(parked[number], run=refuse))
        self._next[run_id] = max(parked) + 1
        parked.clear()

    def _forget_old(self) -> None:
        limit = time.monotonic() - self._keep_s
        for id in [id for id, call in self._calls.items() if call.state != "waiting"]:
            if len(self._calls) <= self._max_kept and self._calls[id].ended_at > limit:
                break
            del self._calls[id]

    def _work(self) -> None:
        pending: _Work | None = None
        while (work := pending or self._queue.get()) is not None and not self._is_ending:
            works, pending = self._gather(work)
            works = [other for other in works if other.call.state == "waiting"]
            if works:
                self._run(works)

    def _gather(self, work: _Work) -> tuple[list[_Work], _Work | None]:
        """Return what is done with `work`, and what was taken from the queue to be done after it."""
        works = [work]
        while work.shared:
            try:
                other = self._queue.get(timeout=_GATHER_S)
            except queue.Empty:
                break
            if other is None:
                self._queue.put(None)
                break
            weight = sum(member.weight for member in [*works, other])
            if other.shared != work.shared or weight > self._max_shared_weight:
                return works, other
            works.append(other)
        return works, None

    def _run(self, works: Sequence[_Work]) -> None:
        state: Literal["done", "failed"] = "done"
        answers: Sequence[Answer]
        try:
            answers = works[0].run(works)
        except GraftlineError as error:
            state, answers = "failed", [{"error": str(error), "category": "user"}] * len(works)
        except Exception as error:
            logger.exception("call %s failed", works[0].call.id)
            message = f"{type(error).__name__}: {error}"
            state, answers = "failed", [{"error": message, "category": "server"}] * len(works)
        assert self._loop is not None
        for work, answer in zip(works, answers, strict=True):
            self._loop.call_soon_threadsafe(work.call.end, state, answer)
