"""Whether a case that did not end in its time was kept from it by the machine, or is to blame itself.

Code that sleeps or stops itself must not get by with "not known", and a busy machine must not be taken for a wrong
answer. Three things are looked at:

1. a heartbeat beside the jail: how late this process woke up while it waited;
2. how much processor time the processes of the case were ready to use (`inside.case_server.CaseLoad`), and how much they used, by
   the count of the control group where there is one;
3. how long they waited for a disk, while the kernel saw somebody wait (https://docs.kernel.org/accounting/psi.html).

A case is to blame if each of them has cost less than a tenth of the time.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_BEAT_S = 0.2
_SHARE = 0.1
_SHORT_S, _SHORT_SHARE = 0.5, 0.25  # of times so short that less cannot be seen
_PRESSURES = ("/proc/pressure/io", "/proc/pressure/memory")


class Heartbeat:
    """Beats while a case runs; costs nothing before the first beat."""

    def __init__(self, clock: Callable[[], float], used_s: Callable[[], float]) -> None:
        """`used_s` is the processor time of the jail until now."""
        self._clock, self._used_s = clock, used_s
        self._late_s = 0.0
        self._before: tuple[float, float] | None = None

    def wait(self, is_ready: Callable[[float], bool]) -> bool:
        """Wait for one beat, or until something is ready; return whether it is."""
        began = self._clock()
        if is_ready(_BEAT_S):
            return True
        self._late_s += max(0.0, self._clock() - began - _BEAT_S)
        self._before = self._before or (self._used_s(), disk_pressure_s())
        return False

    def fault_of_machine(self, end: Mapping[str, Any]) -> str:
        """Return how the machine kept a case from ending in its time, by what its server says; empty if it did not."""
        used_s, pressure_s = self._before or (self._used_s(), 0.0)
        pressed_s = disk_pressure_s() - pressure_s
        return fault_of_machine(
            end["wall_s"],
            late_s=self._late_s,
            ready_s=end["ready_s"],
            used_s=max(end["used_s"], self._used_s() - used_s),
            stalled_s=end["stalled_s"] if math.isnan(pressed_s) else min(end["stalled_s"], pressed_s),
        )


def fault_of_machine(wall_s: float, *, late_s: float, ready_s: float, used_s: float, stalled_s: float) -> str:
    """Return how the machine kept a case from ending within `wall_s`; empty if the case is to blame."""
    most_s = max(_SHARE * wall_s, min(_SHORT_S, _SHORT_SHARE * wall_s))
    if late_s > most_s:
        return f"a heartbeat beside it was late by {late_s:.1f} s in {wall_s:.1f} s"
    if ready_s - used_s > most_s:
        return f"it was ready to use {ready_s:.1f} s of processor time, and got {used_s:.1f} s in {wall_s:.1f} s"
    if stalled_s > most_s:
        return f"it waited for a disk for {stalled_s:.1f} s of {wall_s:.1f} s"
    return ""


def disk_pressure_s() -> float:
    """Return how long anybody on this machine has waited for a disk since it started; NaN where the kernel does not say."""
    try:
        lines = [Path(path).read_text("ascii").splitlines()[0] for path in _PRESSURES]
    except OSError:
        return math.nan
    return sum(int(line.rpartition("total=")[2]) for line in lines) / 1e6
