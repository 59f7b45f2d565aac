"""The `ChatModel` of served actors: one loop of tries under one deadline, over all actors of a fleet.

What is where: `dispatcher.py` says who is asked, `client.py` asks, `watch.py` takes actors out of service and brings them
back, `adapters.py` loads what a request needs.
"""

import asyncio
import random
from dataclasses import replace
from http import HTTPStatus

from pydantic import SecretStr

from graftline.core.errors import ActorError
from graftline.llm.adapters import ensure_adapter
from graftline.llm.base import ChatAnswer, ChatRequest
from graftline.llm.client import ActorClient, Fault, FaultKind, Reply, encode_chat
from graftline.llm.concurrency import Concurrency
from graftline.llm.dispatcher import Dispatcher
from graftline.llm.fleet import Fleet, PoolSettings
from graftline.llm.load import Health, Progress
from graftline.llm.member import Member, PoolStats, cost_usd, full_jitter, prefix_of
from graftline.llm.watch import Watch

_MAX_REPORTED = 8


class ActorPool:
    """Asks the actors of `fleet`. Belongs to the event loop of its first request; `blocking.py` is for threads."""

    def __init__(
        self,
        fleet: Fleet,
        key: SecretStr | None = None,
        settings: PoolSettings | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._fleet = fleet
        self._settings = settings or PoolSettings()
        self._chance = chance or random.Random()
        self._members = [
            Member(
                actor.name,
                ActorClient(actor.url, fleet.api_path, key, self._settings.connect_s),
                Concurrency(actor.slots),
                Health(self._settings.max_failures, self._settings.first_pause_s, self._settings.longest_pause_s),
                Progress(self._settings.stall_s),
            )
            for actor in fleet.actors
        ]
        self._dispatcher = Dispatcher(self._members, self._settings.patience_s, self._report)
        self._watch = Watch(self._members, self._dispatcher, fleet.called, self._settings, self._chance)
        self._adapters = fleet.adapter_folders
        self._loop: asyncio.AbstractEventLoop | None = None
        self._in_flight: set[asyncio.Timeout] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_closed = False
        self._requests = self._answers = self._errors = 0

    @property
    def name(self) -> str:
        return self._fleet.called

    async def generate(self, request: ChatRequest) -> ChatAnswer:
        loop = self._check_loop()
        self._requests += 1
        began = loop.time()
        scope = asyncio.timeout_at(began + request.deadline_s)
        failures: list[str] = []
        self._is_empty.clear()
        self._in_flight.add(scope)
        try:
            async with scope:
                answer = await self._try_until_answered(request, began, failures)
            self._answers += 1
            return answer
        except ActorError:
            self._errors += 1
            raise
        except TimeoutError:
            self._errors += 1
            if self._is_closed:
                raise ActorError(f"{self.name}: was closed before there was an answer") from None
            raise ActorError(
                f"{self.name}: no answer within {request.deadline_s:g} s, {_count_tries(len(failures))}: {self._report()};"
                " look at the actors, or give requests longer"
            ) from None
        finally:
            self._in_flight.discard(scope)
            if not self._in_flight:
                self._is_empty.set()

    async def close(self) -> None:
        """Take no more requests, cancel those in flight, and let go of everything."""
        if self._is_closed:
            return
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for scope in self._in_flight:
            if not scope.expired():
                scope.reschedule(now)
        await self._is_empty.wait()
        self._dispatcher.close()
        await self._watch.close()
        for member in self._members:
            await member.client.close()

    def stats(self) -> PoolStats:
        """Return the figures of this moment; any thread may ask."""
        return PoolStats(
            requests=self._requests,
            answers=self._answers,
            errors=self._errors,
            waiting=self._dispatcher.waiting,
            actors=tuple(member.stats(self._fleet.price) for member in self._members),
        )

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        if self._is_closed:
            raise ActorError(f"{self.name}: is closed; open another")
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
            # of a service that others run, only its answers are known
            self._watch.start(has_looks=self._fleet.engine != "service")
        elif self._loop is not loop:
            raise RuntimeError("a pool belongs to the event loop of its first request")
        return loop

    async def _try_until_answered(self, request: ChatRequest, began: float, failures: list[str]) -> ChatAnswer:
        """Return the answer to `request`; every try that fails goes to `tried`."""
        if request.adapter and request.adapter not in self._adapters:
            # an actor has others under names that it was started with
            names = ", ".join(sorted(self._adapters)) or "none"
            raise ActorError(f"adapter {request.adapter!r} is unknown; known: {names}; name it in the fleet")
        seed = request.seed if self._fleet.takes_seed else None
        if self._fleet.engine == "service":
            # some refuse a request that asks for it
            request = replace(request, top_tokens=0)
        body = encode_chat(request, request.adapter or self._fleet.called, seed, self._fleet.dialect)
        prefix = prefix_of(request)
        request_id = f"{self._chance.getrandbits(64):016x}"
        avoided: set[Member] = set()
        attempts = waits = 0
        while True:
            member = await self._dispatcher.take(prefix, avoided, is_again=bool(failures))
            try:
                reply = await self._try(member, request, body, request_id)
            except Fault as fault:
                failures.append(f"{member.name} {fault.message}")
                self._count(member, fault)
                if fault.kind is FaultKind.REFUSED:
                    raise ActorError(f"actor {member.name!r} {fault.message}; mend the request or the fleet") from None
                attempts += fault.kind.was_taken
                if attempts >= self._settings.max_tries:
                    raise ActorError(
                        f"{self.name}: {_count_tries(len(failures))}: {'; '.join(failures[-_MAX_REPORTED:])}; look at the actors,"
                        " or mend the request"
                    ) from None
                avoided.add(member)
            else:
                return self._answer(member, reply, request, began, len(failures) + 1)
            finally:
                self._dispatcher.release(member)
            if not self._dispatcher.has_other(avoided):
                avoided.clear()
                waits += 1
                await asyncio.sleep(self._backoff_s(waits))

    async def _try(self, member: Member, request: ChatRequest, body: bytes, request_id: str) -> Reply:
        scope = asyncio.timeout(None)
        member.tries.add(scope)
        member.totals.tries += 1
        try:
            async with scope:
                if request.adapter:
                    folder = self._adapters[request.adapter]
                    await ensure_adapter(member, request.adapter, folder, self._fleet.engine == "embedded")
                return await member.client.chat(body, request_id)
        except TimeoutError:
            raise Fault(FaultKind.STALLED, f"was taken out of service: {member.last_fault}") from None
        except Fault as fault:
            if fault.status == HTTPStatus.NOT_FOUND and request.adapter in member.adapters:
                member.adapters.remove(request.adapter)
                raise Fault(FaultKind.FORGOTTEN, fault.message, status=fault.status) from None
            raise
        finally:
            member.tries.discard(scope)

    def _count(self, member: Member, fault: Fault) -> None:
        member.totals.faults[fault.kind] += 1
        if fault.kind is not FaultKind.STALLED:  # which repeats what was said
            member.last_fault = fault.message
        if fault.retry_after_s and fault.kind is not FaultKind.REFUSED:
            self._dispatcher.hold(member, fault.retry_after_s)
        elif fault.kind is FaultKind.LIMITED and member.is_open(asyncio.get_running_loop().time()):
            # it answers at once, so it would look like the least loaded of all; what was sent before says nothing more
            member.limited += 1
            self._dispatcher.hold(member, self._backoff_s(member.limited))
        self._watch.record_failure(member, fault)

    def _answer(self, member: Member, reply: Reply, request: ChatRequest, began: float, tries: int) -> ChatAnswer:
        now = asyncio.get_running_loop().time()
        member.limited = 0
        member.health.record_success()
        member.totals.add_answer(reply.usage)
        member.concurrency.record_answer(member.in_flight, now)
        return ChatAnswer(
            text=reply.text,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            model=reply.model,
            actor=member.name,
            latency_s=now - began,
            tries=tries,
            seed=request.seed if self._fleet.takes_seed else None,
            cost_usd=cost_usd(reply.usage, self._fleet.price),
            reasoning=reply.reasoning,
            temperature=self._fleet.dialect.temperature(request.temperature),
            outputs=self._fleet.outputs,
            first_tokens=reply.first_tokens,
        )

    def _backoff_s(self, times: int) -> float:
        settings = self._settings
        return full_jitter(times, settings.first_backoff_s, settings.longest_backoff_s, self._chance)

    def _report(self) -> str:
        faults = [f"{member.name} {member.last_fault}" for member in self._members if member.last_fault]
        more = [f"and {len(faults) - _MAX_REPORTED} more"] if len(faults) > _MAX_REPORTED else []
        return "; ".join([*faults[:_MAX_REPORTED], *more]) or "no actor has said anything"


def _count_tries(tries: int) -> str:
    return "1 try failed" if tries == 1 else f"{tries} tries failed"
