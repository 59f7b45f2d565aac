"""How many requests at a time an actor is given: grows while they pay, and gives way before its KV cache thrashes.

Pure, over loads and a given time. It is the controller of prime-rl (AIMD; `orchestrator/concurrency.py` there), with
these deviations:

1. One for each actor rather than for all of them together: they need not be alike.
2. It starts at the slots of the actor, which are what its server was started for, and never goes beyond them.
3. What is in flight is never cancelled: a chat ends by itself after `max_tokens`, and work that is thrown away has to be
   done again elsewhere. The hard trim differs from the soft one in that it does not wait for the last one to show.
4. A drain is over when what is in flight fits the limit. If the overload survives it, the next poll cuts again, by no
   more than the first one did.
"""

from graftline.llm.load import Load

_GROWTH = 1.25
"""Of the limit, in the time in which all requests in flight are answered once."""
_BINDING = 0.9
"""Of the limit, in flight: with less, a higher one would change nothing."""
_GROW_BELOW = 0.6
_SOFT_TRIM = 0.8
_HARD_TRIM = 0.9
_TRIM_TO = 0.7
_TRIM_POLLS = 6
"""Polls until a soft trim has shown."""
_QUEUE_RATIO = 0.5
"""Of the running requests, waiting for room."""
_QUEUE_POLLS = 6
_QUEUE_CUT = 0.9
_PREEMPTION_CUT = 0.8
_GROWTH_GATE_S = 15.0
"""A server that is too busy to tell its load must not be given more."""


class Concurrency:
    """The limit of one actor."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._limit = float(slots)
        self._may_grow_until = 0.0
        self._preemptions: int | None = None
        self._queue_polls = 0
        self._trim_polls = 0
        self._is_draining = False

    @property
    def limit(self) -> int:
        """Requests in flight at most."""
        return int(self._limit)

    def record_answer(self, in_flight: int, now: float) -> None:
        """Say that one of `in_flight` requests was answered: the limit grows with them, so at the pace of the actor."""
        if now < self._may_grow_until and in_flight >= _BINDING * self.limit:
            self._limit = min(self._limit * _GROWTH ** (1 / in_flight), float(self._slots))

    def observe(self, load: Load, in_flight: int, now: float) -> None:
        """Say what the server says while `in_flight` requests of ours are with it."""
        # counters of a server that was started again begin at zero
        before = self._preemptions if self._preemptions is not None else load.preemptions
        is_preempting = load.preemptions > before
        self._preemptions = load.preemptions
        is_queueing = load.running > 0 and load.waiting_for_room > _QUEUE_RATIO * load.running
        self._queue_polls = self._queue_polls + 1 if is_queueing else 0
        is_overloaded = is_preempting or self._queue_polls >= _QUEUE_POLLS
        self._trim_polls = max(0, self._trim_polls - 1)
        self._may_grow_until = 0.0
        if self._is_draining:
            # what it says is of the load before the cut
            self._is_draining = in_flight > self.limit
            return
        use = load.kv_use or 0.0
        if is_overloaded:
            self._queue_polls = 0
            self._lower(in_flight * (_PREEMPTION_CUT if is_preempting else _QUEUE_CUT))
            self._is_draining = True
        elif use > _HARD_TRIM or (use > _SOFT_TRIM and not self._trim_polls):
            self._lower(in_flight * _TRIM_TO / use)
            self._trim_polls = _TRIM_POLLS
        elif use < _GROW_BELOW and not load.waiting_for_room:
            self._may_grow_until = now + _GROWTH_GATE_S

    def _lower(self, limit: float) -> None:
        self._limit = max(1.0, min(self._limit, limit))
