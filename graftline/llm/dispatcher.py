"""Requests wait in one line for room at any actor; whoever makes room says so, and the line is handed out."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from graftline.core.errors import ActorError
from graftline.llm.member import Member, choose_actor

logger = logging.getLogger(__name__)

_TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class _Waiter:
    place: asyncio.Future[Member]
    prefix: int
    avoided: Collection[Member]


class Dispatcher:
    """First come, first served, but that a request that failed elsewhere goes before the others."""

    def __init__(self, members: Sequence[Member], patience_s: float, report: Callable[[], str]) -> None:
        self._members = members
        self._patience_s = patience_s
        self._report = report
        self._waiters: deque[_Waiter] = deque()
        self._giving_up: asyncio.TimerHandle | None = None
        self._has_given_up = False
        self.waiting = 0
        """Requests for which there was no room so far."""

    async def take(self, prefix: int, avoided: Collection[Member], is_again: bool) -> Member:
        """Return an actor with a place for a request, which has to be released; ActorError where none is in service for too long.

        Those `avoided` get it only when there is no other; a request that was tried before need not stand in the line again.
        """
        if self._has_given_up:
            raise self._dead()
        if not self._waiters and (actors := self._without_avoided(self._open(self._members), avoided)):
            return self._give_place(actors, prefix)
        waiter = _Waiter(asyncio.get_running_loop().create_future(), prefix, avoided)
        if is_again:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        # somebody before it may wait for another actor than it does
        self.hand_out()
        self.waiting += 1
        try:
            return await waiter.place
        except asyncio.CancelledError:
            if waiter.place.done() and not waiter.place.cancelled() and waiter.place.exception() is None:
                self.release(waiter.place.result())
            raise
        finally:
            self.waiting -= 1

    def release(self, member: Member) -> None:
        """Give the place at `member` back."""
        member.in_flight -= 1
        # who waits does so because the others have no room
        self._give((member,))

    def hold(self, member: Member, seconds: float) -> None:
        """Ask `member` nothing for so long."""
        loop = asyncio.get_running_loop()
        member.not_before = max(member.not_before, loop.time() + seconds)
        # a timer may go off a tick early
        loop.call_at(member.not_before + _TICK_S, self.hand_out)
        self.hand_out()

    def on_ejection(self) -> None:
        """Say that an actor went out of service: without any, patience begins to run out."""
        # some may have waited for it because they failed at those that are left
        self.hand_out()
        if self._giving_up is None and not any(member.health.is_in_service for member in self._members):
            self._giving_up = asyncio.get_running_loop().call_later(self._patience_s, self._give_up)
            logger.warning(
                "no actor answers: %s; waiting up to %g s for one (`graftline model serve` starts those of this machine)",
                self._report(),
                self._patience_s,
            )

    def on_return(self) -> None:
        """Say that an actor is in service again."""
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._giving_up, self._has_given_up = None, False
        self.hand_out()

    def hand_out(self) -> None:
        """Give what room there is to those who wait."""
        self._give(self._members)

    def close(self) -> None:
        """Let go of the timer."""
        if self._giving_up is not None:
            self._giving_up.cancel()

    def has_other(self, avoided: Collection[Member]) -> bool:
        """Return whether there is an actor to be asked that is not `avoided`."""
        now = asyncio.get_running_loop().time()
        return any(member.is_open(now) for member in self._members if member not in avoided)

    def _give(self, members: Sequence[Member]) -> None:
        passed_over: list[_Waiter] = []
        while self._waiters and (open_members := self._open(members)):
            waiter = self._waiters.popleft()
            if waiter.place.done():
                continue
            if actors := self._without_avoided(open_members, waiter.avoided):
                waiter.place.set_result(self._give_place(actors, waiter.prefix))
            else:
                passed_over.append(waiter)
        self._waiters.extendleft(reversed(passed_over))

    def _open(self, members: Sequence[Member]) -> list[Member]:
        now = asyncio.get_running_loop().time()
        return [member for member in members if member.has_room(now)]

    def _without_avoided(self, actors: list[Member], avoided: Collection[Member]) -> list[Member]:
        if not avoided:
            return actors
        return [actor for actor in actors if actor not in avoided] if self.has_other(avoided) else actors

    def _give_place(self, actors: list[Member], prefix: int) -> Member:
        member = choose_actor(actors, prefix)
        member.in_flight += 1
        return member

    def _give_up(self) -> None:
        self._has_given_up = True
        while self._waiters:
            place = self._waiters.popleft().place
            if not place.done():
                place.set_exception(self._dead())

    def _dead(self) -> ActorError:
        return ActorError(
            f"no actor has been in service for {self._patience_s:g} s: {self._report()}; start them, or mend their"
            " addresses in configs/vllm_actors.yaml"
        )
