"""How requests flow through the pool while all is well: places, prefixes, cancelling, closing, counting."""

import asyncio
import math
from typing import Any

import pytest

from graftline.core.errors import ActorError
from graftline.llm.client import FaultKind
from graftline.llm.fleet import Price
from graftline.llm.member import ActorStats, PoolStats
from graftline.llm.pool import ActorPool
from tests.protocol_server import Fault, ProtocolServer
from tests.unit.llm.pools import fleet, pool_of, question, until

pytestmark = pytest.mark.anyio


async def test_an_actor_never_has_more_requests_than_slots(server: ProtocolServer, other: ProtocolServer) -> None:
    server.become(latency_s=0.02)
    other.become(latency_s=0.02)

    async with pool_of(server, other, slots=3) as pool:
        asked = asyncio.gather(*(pool.generate(question(str(one))) for one in range(60)))
        most = 0
        while not asked.done():
            most = max(most, *(actor.in_flight for actor in pool.stats().actors))
            await asyncio.sleep(0)
        assert (most, len(await asked)) == (3, 60)
    assert [server.seen().connections, other.seen().connections] == [3, 3]


async def test_those_that_wait_are_answered_in_their_order(server: ProtocolServer) -> None:

    order: list[str] = []
    async with pool_of(server, slots=1) as pool:

        async def ask(text: str) -> None:
            order.append((await pool.generate(question(text))).text)

        await asyncio.gather(*(ask(str(one)) for one in range(20)))
    assert order == [str(one) for one in range(20)]


async def test_a_request_that_is_cancelled_is_aborted_at_the_server_and_its_place_is_free(
    server: ProtocolServer,
) -> None:
    server.become(latency_s=30)

    async with pool_of(server, slots=1) as pool:
        asked = [asyncio.create_task(pool.generate(question())) for _ in range(3)]
        await until(lambda: pool.stats().actors[0].tries == 1)
        while not server.seen().ids:
            await asyncio.sleep(0.01)
        # one is being answered, one waits, one will be answered
        server.become()
        asked[0].cancel()
        asked[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        text = (await asked[2]).text
        while not server.seen().aborted:
            await asyncio.sleep(0.01)
        assert (pool.stats().actors[0].in_flight, text) == (0, "one two three")
    assert (server.seen().aborted, len(server.seen().ids)) == (1, 2)


async def test_a_hundred_cancelled_in_any_moment_leave_every_place_free(server: ProtocolServer) -> None:
    server.become(latency_s=0.01)

    async with pool_of(server, slots=4) as pool:
        for pause in range(10):
            asked = [asyncio.create_task(pool.generate(question())) for _ in range(10)]
            await asyncio.sleep(0.003 * pause)
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        text = (await pool.generate(question())).text
        assert (pool.stats().actors[0].in_flight, pool.stats().waiting, text) == (0, 0, "one two three")


def test_a_pool_belongs_to_one_event_loop(server: ProtocolServer) -> None:
    pool = ActorPool(fleet(server))
    with pytest.raises(ActorError):
        asyncio.run(pool.generate(question(deadline_s=0.0)))
    with pytest.raises(RuntimeError, match="a pool belongs to the event loop of its first request"):
        asyncio.run(pool.generate(question()))


async def test_a_seed_is_kept_from_actors_that_die_of_it(server: ProtocolServer) -> None:

    async with pool_of(server, engine="vllm-cpu", takes_seed=False) as pool:
        assert (await pool.generate(question(seed=5))).seed is None
    assert "seed" not in server.seen().bodies[0]


def stats_of(server: ProtocolServer, **more: Any) -> PoolStats:
    """Ask three questions, of which the first fails once and the last is wrong."""
    server.become(faults=[Fault(status=500)])

    async def run() -> PoolStats:
        async with pool_of(server, **more) as pool:
            await pool.generate(question())
            await pool.generate(question())
            with pytest.raises(ActorError):
                await pool.generate(question(max_tokens=0))
            return pool.stats()

    return asyncio.run(run())


def test_usage_and_faults_are_counted(server: ProtocolServer) -> None:
    faults = dict.fromkeys(FaultKind, 0) | {FaultKind.FAILED: 1, FaultKind.REFUSED: 1}
    assert stats_of(server) == PoolStats(
        requests=3,
        answers=2,
        errors=1,
        waiting=0,
        actors=(
            ActorStats(
                name="first",
                is_in_service=True,
                in_flight=0,
                limit=8,
                answers=2,
                tries=4,
                faults=faults,
                ejections=0,
                # twice two words before and three words, of which the two were known the second time
                prompt_tokens=10,
                completion_tokens=6,
                cached_tokens=2,
                cost_usd=None,
                last_fault="answers 400: max_tokens must be at least 1",
                load=None,
            ),
        ),
    )


COSTS = {
    # (8 x 2 + 2 x 1 + 6 x 4) / 1e6
    "a price of cached tokens": (Price(prompt_usd=2.0, cached_usd=1.0, completion_usd=4.0), 42e-6),
    # (10 x 2 + 6 x 4) / 1e6
    "no price of cached tokens": (Price(prompt_usd=2.0, completion_usd=4.0), 44e-6),
    "cached tokens for nothing": (Price(prompt_usd=2.0, cached_usd=0.0, completion_usd=4.0), 40e-6),
}


@pytest.mark.parametrize(("price", "cost_usd"), COSTS.values(), ids=COSTS)
def test_cost_is_counted_with(server: ProtocolServer, price: Price, cost_usd: float) -> None:
    found = stats_of(server, price=price).actors[0].cost_usd
    assert found is not None
    assert math.isclose(found, cost_usd)
