"""Who is given which place, and when those who wait are let go."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from graftline.llm.dispatcher import Dispatcher
from graftline.llm.member import Member
from tests.unit.llm.pools import member

pytestmark = pytest.mark.anyio


Places = tuple[Dispatcher, Member, Member]


@pytest.fixture
async def places() -> AsyncIterator[Places]:
    """A dispatcher over two actors with a place each."""
    first, second = member("first"), member("second")
    dispatcher = Dispatcher([first, second], 0.05, lambda: "the report")
    yield dispatcher, first, second
    dispatcher.close()


async def settled(*tasks: "asyncio.Task[Member]") -> list[str]:
    """Return the places that were given so far, empty for those who wait."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return [task.result().name if task.done() else "" for task in tasks]


def taking(dispatcher: Dispatcher, *avoided: Member, is_again: bool = False) -> "asyncio.Task[Member]":
    return asyncio.create_task(dispatcher.take(7, set(avoided), is_again))


async def test_who_was_tried_before_goes_before_the_others(places: Places) -> None:
    dispatcher, first, second = places
    await dispatcher.take(7, (), False)
    await dispatcher.take(7, (), False)
    tasks = [taking(dispatcher), taking(dispatcher, first, is_again=True)]
    await settled(*tasks)
    dispatcher.release(second)
    found = await settled(*tasks)
    tasks[0].cancel()
    assert found == ["", "second"]


async def test_who_avoids_the_actor_with_a_place_is_passed_over_and_keeps_its_turn(places: Places) -> None:
    dispatcher, first, second = places
    await dispatcher.take(7, (), False)
    await dispatcher.take(7, (), False)
    tasks = [taking(dispatcher, first, is_again=True), taking(dispatcher), taking(dispatcher)]
    await settled(*tasks)
    dispatcher.release(first)
    passed = await settled(*tasks)
    dispatcher.release(second)
    found = await settled(*tasks)
    tasks[2].cancel()
    assert (passed, found) == (["", "first", ""], ["second", "first", ""])


async def test_who_waits_for_an_actor_that_goes_out_of_service_takes_the_one_it_avoided(places: Places) -> None:
    dispatcher, first, second = places
    second.in_flight = 1
    task = taking(dispatcher, first, is_again=True)
    before = await settled(task)
    second.health.eject()
    dispatcher.on_ejection()
    assert (before, await settled(task)) == ([""], ["first"])


async def test_who_waits_for_an_actor_that_asks_for_a_pause_takes_the_one_it_avoided(places: Places) -> None:
    dispatcher, first, second = places
    second.in_flight = 1
    task = taking(dispatcher, first, is_again=True)
    await settled(task)
    dispatcher.hold(second, 3600)
    assert await settled(task) == ["first"]


@pytest.mark.parametrize("is_given", [False, True])
async def test_who_is_cancelled_holds_no_place(places: Places, is_given: bool) -> None:
    dispatcher, first, second = places
    first.in_flight = second.in_flight = 1
    task = taking(dispatcher)
    await settled(task)
    if is_given:
        # the place is given, and its taker has not run since
        dispatcher.release(first)
    task.cancel()
    await asyncio.wait([task])
    assert (first.in_flight, second.in_flight, dispatcher.waiting) == (0 if is_given else 1, 1, 0)
