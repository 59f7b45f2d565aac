"""Takes actors out of service and brings them back: the timers behind `load.py` and `concurrency.py`."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from graftline.llm.base import ChatRequest, Message
from graftline.llm.client import Fault, FaultKind, encode_chat
from graftline.llm.dispatcher import Dispatcher
from graftline.llm.fleet import PoolSettings
from graftline.llm.load import Load, read_load
from graftline.llm.member import Member

logger = logging.getLogger(__name__)

_DEAD = (FaultKind.UNREACHABLE, FaultKind.BUSY, FaultKind.FAILED)
"""Of `/health`: what leaves no doubt. A late answer does, of a server that is full."""


class Watch:
    """Looks at every actor, in tasks of its own."""

    def __init__(
        self,
        members: Sequence[Member],
        dispatcher: Dispatcher,
        model: str,
        settings: PoolSettings,
        chance: random.Random,
    ) -> None:
        self._members = members
        self._dispatcher = dispatcher
        self._probe = encode_chat(ChatRequest((Message(role="user", content="1"),), max_tokens=1), model, None)
        self._settings = settings
        self._chance = chance
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, has_looks: bool) -> None:
        """Begin; without looks, actors are known by their answers to requests alone."""
        for member in self._members if has_looks else ():
            self._run(self._every(self._settings.health_s, self._look_at_health, member))
            self._run(self._every(self._settings.load_s, self._look_at_load, member))

    async def close(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def record_failure(self, member: Member, fault: Fault) -> None:
        """Say that a request failed at `member`."""
        if fault.kind.is_of_the_actor and member.health.record_failure():
            self._eject(member, fault.message)

    def eject_at_once(self, member: Member, message: str) -> None:
        """Take `member` out of service at once, and what it works on away from it."""
        self._eject(member, message)
        member.abort_tries()

    def _eject(self, member: Member, message: str) -> None:
        member.last_fault = message
        if not member.health.eject():
            return
        logger.warning("actor %r is out of service: %s", member.name, message)
        member.totals.ejections += 1
        # a server that is started again has forgotten them
        member.adapters.clear()
        self._dispatcher.on_ejection()
        self._run(self._bring_back(member))

    async def _bring_back(self, member: Member) -> None:
        while not member.health.is_in_service:
            await asyncio.sleep(member.health.pause_s)
            member.health.record_probe(await self._is_well(member))
        logger.info("actor %r is in service again", member.name)
        self._dispatcher.on_return()

    async def _is_well(self, member: Member) -> bool:
        try:
            load = await self._load(member)
            if load is not None and load.is_asleep:
                # it would keep the probe for ever
                return False
            async with asyncio.timeout(self._settings.probe_s):
                await member.client.chat(self._probe, f"probe-{self._chance.getrandbits(64):016x}")
        except Fault as fault:
            member.last_fault = fault.message
        except TimeoutError:
            member.last_fault = f"does not answer a probe of one token within {self._settings.probe_s:g} s"
        except Exception:
            # without this task the actor would never come back
            logger.exception("the probe of actor %r failed", member.name)
        else:
            return True
        return False

    async def _look_at_health(self, member: Member) -> None:
        try:
            await member.client.get("/health", self._settings.look_s)
        except Fault as fault:
            if fault.kind in _DEAD or (fault.kind.is_of_the_actor and member.health.record_failure()):
                self.eject_at_once(member, fault.message)
        await member.client.prune()

    async def _look_at_load(self, member: Member) -> None:
        if not member.health.is_in_service:
            return
        load = member.load = await self._load(member)
        if load is None:
            return
        now = asyncio.get_running_loop().time()
        if load.is_asleep:
            self.eject_at_once(member, "is asleep")
        elif member.progress.is_stalled(load, member.in_flight > 0, now):
            self.eject_at_once(
                member, f"hangs: {load.running} requests running, and no token for {self._settings.stall_s:g} s"
            )
        else:
            member.concurrency.observe(load, member.in_flight, now)
            self._dispatcher.hand_out()

    async def _load(self, member: Member) -> Load | None:
        try:
            content = await member.client.get("/metrics", self._settings.look_s)
        except Fault:
            # not every server says it; whether it lives is asked elsewhere
            return None
        return read_load(content.decode("utf-8", "replace"))

    async def _every(self, seconds: float, look: Callable[[Member], Awaitable[None]], member: Member) -> None:
        # not all of them in the same moment
        await asyncio.sleep(seconds * self._chance.random())
        while True:
            try:
                await look(member)
            except Exception:
                logger.exception("a look at actor %r failed", member.name)
            await asyncio.sleep(seconds)

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
