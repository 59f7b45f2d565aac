"""The order that calls are worked on in, and what becomes of their answers."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.training.local.calls import Answer, Call, Calls

pytestmark = pytest.mark.anyio
LONG_S = 120.0
SOON_S = 0.05


class Desk:
    """Calls, and what was done for them: `gate` keeps their thread from the second call on until it is opened."""

    def __init__(self, calls: Calls) -> None:
        self.calls, self.gate, self.begun = calls, threading.Event(), threading.Event()
        self.done: list[Any] = []

    async def close_gate(self) -> None:
        """Return when the thread stands before the gate."""

        def wait() -> Answer:
            self.begun.set()
            assert self.gate.wait(LONG_S)
            return {}

        self.calls.submit("gate", wait)
        await asyncio.to_thread(self.begun.wait, LONG_S)

    def submit(self, name: str, run_id: str = "", number: int | None = None) -> Call:
        def do() -> Answer:
            self.done.append(name)
            return {"did": name}

        return self.calls.submit(name, do, run_id, number)

    def submit_shared(self, name: str, shared: str, weight: int = 1) -> Call:
        def do(items: Sequence[Any]) -> Sequence[Answer]:
            self.done.append([*items])
            return [{"did": item} for item in items]

        return self.calls.submit_shared(name, shared, name, weight, do)

    async def ended(self, *calls: Call) -> list[tuple[str, Answer]]:
        """Open the gate; return what became of `calls`."""
        self.gate.set()
        assert all([await self.calls.wait(call, LONG_S) for call in calls])
        return [(call.state, call.answer) for call in calls]


@asynccontextmanager
async def open_desk(**options: Any) -> AsyncIterator[Desk]:
    calls = Calls(**{"max_shared_weight": 16, **options})
    calls.start()
    found = Desk(calls)
    try:
        yield found
    finally:
        found.gate.set()
        calls.stop()


@pytest.mark.parametrize("arrival", [[1, 2, 3, 4], [4, 3, 2, 1], [2, 4, 1, 3], [3, 1, 4, 2]])
async def test_calls_of_a_run_are_done_by_number_in_whatever_order_they_come(arrival: list[int]) -> None:
    async with open_desk() as desk:
        calls = [desk.submit(f"run/{number}", "run", number) for number in arrival]

        assert await desk.ended(*calls) == [("done", {"did": f"run/{number}"}) for number in arrival]
        assert desk.done == [f"run/{number}" for number in range(1, 5)]


async def test_a_call_waits_for_those_before_it_but_not_for_other_runs() -> None:
    async with open_desk() as desk:
        second = desk.submit("a/2", "a", 2)
        other, unnumbered = desk.submit("b/1", "b", 1), desk.submit("c")
        await desk.ended(other, unnumbered)

        assert not await desk.calls.wait(second, SOON_S)
        first = desk.submit("a/1", "a", 1)
        await desk.ended(first, second)
        assert desk.done == ["b/1", "c", "a/1", "a/2"]


async def test_what_waits_for_a_call_that_never_comes_is_refused_and_those_after_it_are_done() -> None:
    lost: list[str] = []
    async with open_desk(lost_s=SOON_S, on_lost=lost.append) as desk:
        # 2 failed in its client, after it had its number; so did 4
        calls = [desk.submit(f"run/{number}", "run", number) for number in (1, 3, 5)]
        refusal = "call 2 of this run never came, so this one after it is not done; send it again"
        refused = "failed", {"error": refusal, "category": "user"}
        assert await desk.ended(*calls) == [("done", {"did": "run/1"}), refused, refused]

        assert await desk.ended(desk.submit("run/6", "run", 6)) == [("done", {"did": "run/6"})]
        with pytest.raises(DataError, match=r"call 2 of run .* came so late that those after it did not wait"):
            desk.submit("run/2", "run", 2)
        assert desk.done == ["run/1", "run/6"]
        assert lost == ["run"]


async def test_a_call_that_comes_late_is_not_lost() -> None:
    lost: list[str] = []
    async with open_desk(lost_s=LONG_S, on_lost=lost.append) as desk:
        late = desk.submit("run/2", "run", 2), desk.submit("run/4", "run", 4)
        first = desk.submit("run/1", "run", 1)
        # of these the wait begins anew, for another number is missing
        assert await desk.ended(first, late[0]) == [("done", {"did": "run/1"}), ("done", {"did": "run/2"})]
        third = desk.submit("run/3", "run", 3)
        await desk.ended(third, late[1])
        assert desk.done == [f"run/{number}" for number in range(1, 5)]
        assert lost == []


async def test_a_call_that_is_made_again_is_the_same_call() -> None:
    async with open_desk() as desk:
        await desk.close_gate()
        waiting = desk.submit("run/1", "run", 1)
        assert desk.submit("run/1", "run", 1) is waiting
        await desk.ended(waiting)

        assert desk.submit("run/1", "run", 1) is waiting
        assert desk.submit_shared("run/1", "all") is waiting
        assert desk.calls.get("run/1") is waiting
        await desk.ended(desk.submit("run/2", "run", 2))
        assert desk.done == ["run/1", "run/2"]


@pytest.mark.parametrize(
    ("error", "answer", "logged"),
    [
        (DataError("datum 3: has no tokens"), {"error": "datum 3: has no tokens", "category": "user"}, []),
        (
            RuntimeError("out of memory"),
            {"error": "RuntimeError: out of memory", "category": "server"},
            ["call run/1 failed"],
        ),
    ],
)
async def test_a_failure_is_an_answer_that_says_whose_it_is(
    caplog: pytest.LogCaptureFixture, error: Exception, answer: Answer, logged: list[str]
) -> None:
    def fail() -> Answer:
        raise error

    with caplog.at_level(logging.WARNING):
        async with open_desk() as desk:
            failed = desk.calls.submit("run/1", fail, "run", 1)
            following = desk.submit("run/2", "run", 2)
            assert await desk.ended(failed, following) == [("failed", answer), ("done", {"did": "run/2"})]
    assert caplog.messages == logged


async def test_a_cancelled_call_is_not_done_and_who_waits_is_told_at_once() -> None:
    async with open_desk() as desk:
        await desk.close_gate()
        call, following = desk.submit("one"), desk.submit("two")
        waiting = asyncio.create_task(desk.calls.wait(call, LONG_S))
        await asyncio.sleep(SOON_S)

        desk.calls.cancel("one")

        assert await asyncio.wait_for(waiting, LONG_S / 4)
        assert (call.state, call.answer) == (
            "cancelled",
            {"error": "the call was cancelled", "category": "user"},
        )
        await desk.ended(following)
        assert desk.done == ["two"]


@pytest.mark.parametrize(
    ("asked", "together"),
    [
        # (shared, weight), and at most 4 together
        ([("a", 1)] * 3, [["0", "1", "2"]]),
        ([("a", 1)] * 6, [["0", "1", "2", "3"], ["4", "5"]]),
        ([("a", 3), ("a", 2), ("a", 2)], [["0"], ["1", "2"]]),
        ([("a", 1), ("a", 9), ("a", 1)], [["0"], ["1"], ["2"]]),
        ([("a", 1), ("b", 1), ("b", 1), ("a", 1)], [["0"], ["1", "2"], ["3"]]),
        ([("a", 1), ("", 1), ("", 1), ("a", 1)], [["0"], ["1"], ["2"], ["3"]]),
    ],
)
async def test_neighbors_that_want_the_same_are_done_together(
    asked: Sequence[tuple[str, int]], together: list[list[str]]
) -> None:
    async with open_desk(max_shared_weight=4) as desk:
        await desk.close_gate()
        calls = [desk.submit_shared(str(number), *one) for number, one in enumerate(asked)]

        answers = await desk.ended(*calls)

        assert desk.done == together
        assert answers == [("done", {"did": str(number)}) for number in range(len(asked))]


async def test_one_that_is_cancelled_is_left_out_of_what_is_done_together() -> None:
    async with open_desk() as desk:
        await desk.close_gate()
        calls = [desk.submit_shared(name, "a") for name in "xyz"]
        desk.calls.cancel("x")

        assert [state for state, _ in await desk.ended(*calls)] == ["cancelled", "done", "done"]
        assert desk.done == [["y", "z"]]


async def test_what_fails_together_is_answered_to_all() -> None:
    def fail(items: Sequence[Any]) -> Sequence[Answer]:
        raise DataError(f"{len(items)} failed")

    async with open_desk() as desk:
        await desk.close_gate()
        calls = [desk.calls.submit_shared(name, "a", name, 1, fail) for name in "xy"]

        failed = ("failed", {"error": "2 failed", "category": "user"})
        assert await desk.ended(*calls) == [failed, failed]


async def test_answers_that_nobody_fetched_for_long_are_forgotten() -> None:
    async with open_desk(keep_s=0.0) as desk:
        first = desk.submit("run/1", "run", 1)
        await desk.ended(first)
        waiting = desk.submit("run/3", "run", 3)

        second = desk.submit("run/2", "run", 2)
        await desk.ended(second, waiting)

        assert desk.calls.get("run/1") is None
        assert desk.calls.get("run/3") is waiting
        # it would wait for ever for its turn, which was long ago
        with pytest.raises(DataError, match="call 1 of run was answered long ago"):
            desk.submit("run/1", "run", 1)


async def test_only_so_many_answers_are_kept() -> None:
    async with open_desk(max_kept=3) as desk:
        for name in "abcdef":
            await desk.ended(desk.submit(name))

        assert [name for name in "abcdef" if desk.calls.get(name)] == ["c", "d", "e", "f"]


async def test_calls_of_a_run_that_is_forgotten_are_cancelled_and_its_numbers_begin_again() -> None:
    async with open_desk() as desk:
        await desk.ended(desk.submit("old/1", "run", 1))
        parked = desk.submit("old/3", "run", 3)
        other = desk.submit("other/2", "other", 2)

        desk.calls.forget_run("run")
        desk.calls.forget_run("unknown")

        assert (await desk.ended(parked))[0][0] == "cancelled"
        await desk.ended(desk.submit("new/1", "run", 1), desk.submit("other/1", "other", 1), other)
        assert desk.done == ["old/1", "new/1", "other/1", "other/2"]


async def test_stopping_ends_after_the_call_that_is_worked_on() -> None:
    async with open_desk() as desk:
        await desk.close_gate()
        calls = [desk.submit("one"), desk.submit_shared("two", "a"), desk.submit_shared("three", "a")]
        waiting = asyncio.create_task(desk.calls.wait(calls[0], LONG_S))
        await asyncio.sleep(SOON_S)
        threading.Timer(10 * SOON_S, desk.gate.set).start()

        desk.calls.stop()

        assert not await asyncio.wait_for(waiting, LONG_S / 4)
        assert (desk.done, [call.state for call in calls]) == ([], ["waiting"] * 3)
        assert not any(thread.name == "engine" for thread in threading.enumerate())
