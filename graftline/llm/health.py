"""Whether an actor is in service: pure, over what is seen of it and a given time. The timers are in `watch.py`.

An actor is taken out of service by failures in a row, or at once by what leaves no doubt. It comes back when a probe was
answered: 200 on `/health` says only that the process lives.
"""

from graftline.llm.load import Load


class Health:
    """Counts failures, and says when a probe is due."""

    def __init__(self, most_failures: int, first_pause_s: float, longest_pause_s: float) -> None:
        self._most_failures = most_failures
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._failures = 0
        self.is_in_service = True
        self.pause_s = first_pause_s
        """Until the next probe, while it is out of service."""

    def succeeded(self) -> None:
        """Say that a request was answered."""
        self._failures, self.pause_s = 0, self._first_pause_s

    def failed(self) -> bool:
        """Say that the actor failed at something; return whether it did so too often."""
        self._failures += 1
        return self._failures >= self._most_failures

    def eject(self) -> bool:
        """Take it out of service; return whether it was in it."""
        was_in_service, self.is_in_service = self.is_in_service, False
        return was_in_service

    def probed(self, is_well: bool) -> None:
        """Say how a probe went. Each pause is twice as long as the one before until a request was answered: there are
        servers that answer probes, and nothing else.
        """
        self._failures, self.is_in_service = 0, is_well
        self.pause_s = min(2 * self.pause_s, self._longest_pause_s)


class Progress:
    """Finds engines that hang: work, and no step for a long time, while `/health` is as ever."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._steps = -1
        self._since = 0.0

    def is_stalled(self, load: Load, has_our_work: bool, now: float) -> bool:
        """Return whether nothing has moved for too long. Without work of ours it does not matter, and cannot be told:
        gauges may stay where the last step left them.
        """
        has_work = has_our_work and load.running + load.waiting > 0
        # after a restart the server counts from zero: any other number is a step
        if not has_work or load.steps != self._steps:
            self._steps, self._since = load.steps, now
        return now - self._since >= self._stall_s
