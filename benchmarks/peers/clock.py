"""Seconds and processor seconds of a peer, from the moment its libraries are loaded."""

import os
import time
from typing import Any


class Clock:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._started = self._lap = time.perf_counter()
        self._processor_s = _processor_s()
        self._stages: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """Say that `stage` is what was done since the lap before."""
        now = time.perf_counter()
        self._stages[stage] = round(now - self._lap, 3)
        self._lap = now

    def figures(self) -> dict[str, Any]:
        """Return seconds, processor seconds of this process and those it has waited for, and seconds by stage."""
        return {
            "seconds": round(time.perf_counter() - self._started, 3),
            "processor_seconds": round(_processor_s() - self._processor_s, 3),
            "stages": self._stages,
        }


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
