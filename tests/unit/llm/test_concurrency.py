"""How the limit of an actor follows its load."""

from dataclasses import replace
from typing import Any

import pytest

from graftline.llm.concurrency import Concurrency
from graftline.llm.load import Load

CLEAR = Load(
    running=64, waiting=0, waiting_for_room=0, kv_use=0.5, preemptions=0, prompt_tokens=0, completion_tokens=0, steps=0
)


def load(**changed: Any) -> Load:
    return replace(CLEAR, **changed)


def lowered() -> Concurrency:
    """Return a limit of 35, which a trim has left of 64, and which may not grow yet."""
    one = Concurrency(64)
    # 48 x 0.7 / 0.95 = 35.4
    one.observe(load(kv_use=0.95), 48, 0.0)
    return one


def test_there_is_no_growth_beyond_the_slots() -> None:
    one = Concurrency(64)
    one.observe(CLEAR, 64, 0.0)
    for _ in range(100):
        one.record_answer(64, 1.0)
    assert one.limit == 64


def test_the_limit_grows_by_a_quarter_while_all_in_flight_are_answered_once() -> None:
    one = lowered()
    one.observe(CLEAR, 40, 1.0)
    for _ in range(40):
        one.record_answer(40, 2.0)
    # 35.4 x 1.25 = 44.2
    assert one.limit == 44


def test_a_limit_of_one_can_grow() -> None:
    one = Concurrency(8)
    one.observe(load(preemptions=0), 1, 0.0)
    one.observe(load(preemptions=1), 1, 1.0)
    one.observe(load(preemptions=1), 1, 2.0)
    one.observe(load(preemptions=1), 1, 3.0)
    limits = [one.limit]
    for _ in range(4):
        one.record_answer(one.limit, 4.0)
        limits.append(one.limit)
    # 1.25, 1.56, 1.95, 2.44
    assert limits == [1, 1, 1, 1, 2]


NO_GROWTH = {
    "the cache is filling": (load(kv_use=0.6), 35, 1.0),
    "requests wait for room": (load(waiting_for_room=1), 35, 1.0),
    "the limit does not bind": (CLEAR, 31, 1.0),  # of which 0.9 is 31.5
    "the server has said nothing for 15 s": (CLEAR, 35, 16.0),
}


@pytest.mark.parametrize(("said", "in_flight", "now"), NO_GROWTH.values(), ids=NO_GROWTH)
def test_the_limit_does_not_grow_while(said: Load, in_flight: int, now: float) -> None:
    one = lowered()
    one.observe(said, in_flight, 1.0)
    for _ in range(100):
        one.record_answer(in_flight, now)
    assert one.limit == 35


CUTS = {
    "0.7 / 0.81 of what is in flight when the cache is fuller than 0.8": ([load(kv_use=0.81)], 55),  # 64 x 0.864
    "nothing at 0.8": ([load(kv_use=0.8)], 64),
    "0.7 / 0.95 of it when the cache is fuller than 0.9": ([load(kv_use=0.95)], 47),  # 64 x 0.737
    "nothing more while a trim is to show": ([load(kv_use=0.81)] * 6, 55),
    "more when the cache fills on": ([load(kv_use=0.81), load(kv_use=0.95)], 47),
    "0.8 of it when requests are preempted": ([load(), load(preemptions=2)], 51),  # 64 x 0.8
    "nothing for preemptions before we looked": ([load(preemptions=7), load(preemptions=7)], 64),
    "nothing for a counter that starts again": ([load(preemptions=7), load(preemptions=0)], 64),
    "0.8 of it when they are preempted after that": (
        [load(preemptions=7), load(preemptions=0), load(preemptions=1)],
        51,
    ),
    "0.9 of it when more than half as many wait as run, six times": ([load(waiting_for_room=33)] * 6, 57),
    "nothing five times": ([load(waiting_for_room=33)] * 5, 64),
    "nothing when they wait no more in between": (
        [*[load(waiting_for_room=33)] * 5, load(), *[load(waiting_for_room=33)] * 5],
        64,
    ),
    "nothing for half as many": ([load(waiting_for_room=32)] * 12, 64),
    "nothing while it says no cache use": ([load(kv_use=None)] * 3, 64),
    # it drains: 64 are in flight and 51 are allowed
    "nothing more while it drains": ([load(), load(preemptions=2), load(preemptions=9), load(kv_use=0.95)], 51),
}


@pytest.mark.parametrize(("said", "limit"), CUTS.values(), ids=CUTS)
def test_the_limit_of_64_in_flight_is_cut_by(said: list[Load], limit: int) -> None:
    one = Concurrency(64)
    for number, one_load in enumerate(said):
        one.observe(one_load, 64, 5.0 * number)
    assert one.limit == limit


def test_overload_that_outlives_the_drain_cuts_again() -> None:
    one = Concurrency(64)
    for number, (preemptions, in_flight) in enumerate([(0, 64), (2, 64), (4, 51), (6, 51)]):
        one.observe(load(preemptions=preemptions), in_flight, 5.0 * number)
    # 64 x 0.8 = 51.2; the third look ends the drain; 51 x 0.8
    assert one.limit == 40


def test_the_limit_is_never_less_than_one() -> None:
    one = Concurrency(4)
    for number in range(20):
        one.observe(load(kv_use=0.99), 1, 5.0 * number)
    assert one.limit == 1


def test_a_trim_sized_by_more_than_the_limit_does_not_raise_it() -> None:
    one = lowered()
    one.observe(load(kv_use=0.95), 64, 1.0)
    assert one.limit == 35
