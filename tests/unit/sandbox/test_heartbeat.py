"""Who is to blame for a case that did not end in its time: the machine, or the case."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from graftline.sandbox.jail import heartbeat
from graftline.sandbox.jail.heartbeat import Heartbeat, disk_pressure_s, fault_of_machine

FREE = {"late_s": 0.0, "ready_s": 0.0, "used_s": 0.0, "stalled_s": 0.0}
ASLEEP = {"wall_s": 30.0, "ready_s": 0.0, "used_s": 0.0, "stalled_s": 0.0}


@pytest.mark.parametrize(
    "measured",
    [
        FREE,
        {"late_s": 3.0},
        {"ready_s": 30.0, "used_s": 27.0},  # an endless loop that had nine tenths of a core
        {"ready_s": 60.0, "used_s": 59.0},  # two of them
        {"used_s": 30.0},
        {"stalled_s": 3.0},
    ],
)
def test_a_case_is_to_blame_that_lost_less_than_a_tenth_of_its_time(measured: dict[str, float]) -> None:
    assert fault_of_machine(30.0, **{**FREE, **measured}) == ""


@pytest.mark.parametrize(
    ("measured", "fault"),
    [
        ({"late_s": 3.1}, "a heartbeat beside it was late by 3.1 s in 30.0 s"),
        ({"ready_s": 30.0, "used_s": 10.0}, "it was ready to use 30.0 s of processor time, and got 10.0 s in 30.0 s"),
        ({"stalled_s": 3.1}, "it waited for a disk for 3.1 s of 30.0 s"),
    ],
)
def test_the_machine_is_to_blame_that_took_more(measured: dict[str, float], fault: str) -> None:
    assert fault_of_machine(30.0, **{**FREE, **measured}) == fault


@pytest.mark.parametrize(("wall_s", "most_s"), [(30.0, 3.0), (5.0, 0.5), (2.0, 0.5), (1.0, 0.25), (0.2, 0.05)])
def test_of_a_short_time_more_may_be_lost_but_never_most_of_it(wall_s: float, most_s: float) -> None:
    measured = [fault_of_machine(wall_s, **{**FREE, "late_s": most_s * share}) != "" for share in (0.99, 1.01)]
    assert measured == [False, True]


def beats(lengths_s: Iterator[float], used_s: Iterator[float]) -> Heartbeat:
    """Return a heartbeat whose beats take so long."""
    now = [0.0]

    def clock() -> float:
        now[0] += next(lengths_s) / 2  # it is asked before and after
        return now[0]

    return Heartbeat(clock, lambda: next(used_s))


def test_a_heartbeat_that_is_on_time_blames_the_case() -> None:
    heart = beats(iter([0.2] * 300), iter([5.0, 5.0]))
    assert [heart.wait(lambda within_s: False) for _ in range(150)] == [False] * 150
    assert heart.fault_of_machine(ASLEEP) == ""


def test_a_heartbeat_that_is_late_blames_the_machine() -> None:
    heart = beats(iter([1.0] * 20), iter([5.0, 5.0]))
    assert [heart.wait(lambda within_s: False) for _ in range(10)] == [False] * 10
    # ten beats of half a second, each of which had to take a fifth
    assert heart.fault_of_machine(ASLEEP) == ""
    heart = beats(iter([1.0] * 24), iter([5.0, 5.0]))
    assert [heart.wait(lambda within_s: False) for _ in range(12)] == [False] * 12
    assert heart.fault_of_machine(ASLEEP) == "a heartbeat beside it was late by 3.6 s in 30.0 s"


def test_what_ends_at_once_costs_no_count() -> None:
    heart = Heartbeat(time.monotonic, lambda: pytest.fail("nobody asks what it used"))
    assert heart.wait(lambda within_s: True)


def test_what_the_control_group_counts_is_used_too() -> None:
    # of children that nobody asks about nothing is seen from inside
    end = {**ASLEEP, "ready_s": 30.0, "used_s": 0.1}
    hidden, kept_waiting = beats(iter([0.2] * 2), iter([5.0, 34.0])), beats(iter([0.2] * 2), iter([5.0, 15.0]))
    for heart in (hidden, kept_waiting):
        heart.wait(lambda within_s: False)
    assert hidden.fault_of_machine(end) == ""
    assert kept_waiting.fault_of_machine(end).startswith("it was ready to use 30.0 s of processor time, and got 10.0 s")


def test_disks_are_to_blame_only_where_the_kernel_saw_somebody_wait_or_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end = {**ASLEEP, "stalled_s": 30.0}
    heart = beats(iter([0.2] * 2), iter([0.0, 0.0]))
    heart.wait(lambda within_s: False)
    if not math.isnan(
        disk_pressure_s()
    ):  # a process can look as if it waited, when it waits for a child it lent its memory
        assert heart.fault_of_machine(end) == ""
    monkeypatch.setattr(heartbeat, "_PRESSURES", ("/proc/no-such-file",))
    silent = beats(iter([0.2] * 2), iter([0.0, 0.0]))
    silent.wait(lambda within_s: False)
    assert silent.fault_of_machine(end) == "it waited for a disk for 30.0 s of 30.0 s"


LOOK = """
import os, signal, sys, time
from glob import glob
from graftline.sandbox.inside.case_server import CaseLoad

def child(work):
    process = os.fork()
    if not process:
        work()
        os._exit(0)
    return process

def spin():
    while True: pass

def thread():
    import hashlib, threading
    # works without the lock of the interpreter
    threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 1 << 30)).start()
    os.write(started, b"1")
    signal.pause()

def stop(): os.kill(os.getpid(), signal.SIGSTOP)

def wait_for(process, states):
    while states != sorted(open(path).read().rpartition(") ")[2][0] for path in glob(f"/proc/{process}/task/*/stat")):
        time.sleep(0.001)

children = []
is_started, started = os.pipe()
try:
    for name in sys.argv[1:]:
        children.append(child({"spins": spin, "spared": spin, "stops": stop, "sleeps": signal.pause, "thread": thread}[name]))
        if name == "thread": os.read(is_started, 1)
        wait_for(children[-1], {"stops": ["T"], "sleeps": ["S"], "thread": ["R", "S"]}.get(name, ["R"]))
    spared = children[sys.argv[1:].index("spared")] if "spared" in sys.argv else None
    began = time.monotonic()
    load = CaseLoad(2, began - 100, spared)
    load.look()
    print(round(load.ready_s, -1), load.next_look >= began + 0.05)
finally:
    for process in children: os.kill(process, signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("children", "ready_s"),
    [
        (("sleeps", "stops"), 0.0),
        (("spins",), 100.0),
        (("spins", "sleeps"), 100.0),
        (("spins", "spins", "spins"), 200.0),  # there are two cores
        (("thread",), 100.0),  # its main thread waits
        (("spared", "sleeps"), 0.0),
    ],
)
def test_what_processes_are_ready_to_use_is_seen_from_their_states(children: tuple[str, ...], ready_s: float) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one core")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *children], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout == f"{ready_s} True\n"
