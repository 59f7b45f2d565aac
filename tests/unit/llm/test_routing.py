"""Which actor is chosen, and how long is waited."""

import random
from collections import Counter

import pytest

from graftline.llm.base import ChatRequest, Message
from graftline.llm.member import Member, choose_actor, digest, full_jitter, prefix_of
from tests.unit.llm.pools import member


def places(**in_flight: int) -> list[Member]:
    return [member(name, number) for name, number in in_flight.items()]


def chat(*contents: str, adapter: str = "") -> ChatRequest:
    return ChatRequest(tuple(Message(role="user", content=content) for content in contents), adapter=adapter)


LEAST = {
    "one alone": (places(a=7), {"a"}),
    "the least loaded": (places(a=7, b=3, c=9), {"b"}),
    "not one with three more": (places(a=0, b=3), {"a"}),
    "one with two more, if the prompt is known there": (places(a=0, b=2), {"a", "b"}),
    "one with two more, but not one with three": (places(a=0, b=2, c=3), {"a", "b"}),
}


@pytest.mark.parametrize(("actors", "expected"), LEAST.values(), ids=LEAST)
def test_chosen_is(actors: list[Member], expected: set[str]) -> None:
    assert {choose_actor(actors, digest(str(number))).name for number in range(100)} == expected


def test_the_same_prefix_prefers_the_same_actor() -> None:
    prefix = digest("shared")
    assert len({choose_actor(places(a=i % 3, b=j % 3, c=0), prefix).name for i in range(3) for j in range(3)}) == 1


def test_prefixes_are_spread_over_the_actors() -> None:
    counts = Counter(choose_actor(places(a=0, b=0, c=0), digest(str(number))).name for number in range(3000))
    # the digest is the same everywhere, so are these counts; a third of them would be 1000
    assert all(900 < counts[name] < 1100 for name in "abc")


def test_an_actor_that_goes_moves_no_prefix_but_its_own() -> None:
    prefixes = [digest(str(number)) for number in range(300)]
    before = [choose_actor(places(a=0, b=0, c=0), prefix).name for prefix in prefixes]
    after = [choose_actor(places(a=0, b=0), prefix).name for prefix in prefixes]
    assert [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1] and pair[0] != "c"] == []


def test_a_prefix_is_the_same_in_every_process() -> None:
    # printf x | b2sum -l 64
    assert digest("x") == 0x4ADF4367F96E584F


SAME = {
    "another last message": (chat("system", "one"), chat("system", "two"), True),
    "another message before it": (chat("system", "one"), chat("other", "one"), False),
    "another adapter": (chat("system", "one"), chat("system", "one", adapter="a"), False),
    "the same text cut elsewhere": (chat("ab", "c", "d"), chat("a", "bc", "d"), False),
    "single messages": (chat("one"), chat("two"), True),
}


@pytest.mark.parametrize(("one", "other", "is_same"), SAME.values(), ids=SAME)
def test_a_prefix_is_shared_with(one: ChatRequest, other: ChatRequest, is_same: bool) -> None:
    assert (prefix_of(one) == prefix_of(other)) is is_same


@pytest.mark.parametrize(("tries", "most"), [(1, 0.5), (2, 1.0), (3, 2.0), (8, 30.0), (10_000, 30.0)])
def test_jitter_is_full_up_to_a_bound_that_doubles(tries: int, most: float) -> None:
    chance = random.Random(1)
    found = [full_jitter(tries, 0.5, 30.0, chance) for _ in range(2000)]
    assert all(0.0 <= seconds <= most for seconds in found)
    assert min(found) < 0.01 * most < 0.99 * most < max(found)
