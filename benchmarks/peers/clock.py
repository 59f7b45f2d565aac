"""What a peer is started with, and what it says of itself: seconds from the moment its libraries are loaded."""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
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


def timed(description: str | None, work: Callable[[Path, Path, Path, bool, Clock], dict[str, int]]) -> None:
    """Call `work` (source, target, a folder for itself, whether to parse, clock), and print one line of JSON."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--no-syntax", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.target) as folder:
        clock = Clock()
        counts = work(arguments.source, arguments.target, Path(folder), not arguments.no_syntax, clock)
        print(json.dumps({**clock.figures(), "counts": counts}))


def _processor_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
