"""Actors that go out of service and come back."""

import asyncio
from typing import Any

import pytest

from graftline.core.errors import ActorError
from graftline.llm.base import ChatAnswer
from graftline.llm.client import FaultKind
from graftline.llm.pool import ActorPool
from tests.protocol_server import Fault, ProtocolServer
from tests.unit.llm.pools import pool_of, question, until

pytestmark = pytest.mark.anyio


def in_service(pool: ActorPool) -> list[bool]:
    return [actor.is_in_service for actor in pool.stats().actors]


def probes_of(server: ProtocolServer) -> int:
    return sum(request_id.startswith("probe-") for request_id in server.seen().ids)


async def many(pool: ActorPool, number: int, **more: Any) -> list[ChatAnswer]:
    asked = [pool.generate(question(str(one), before=str(one), **more)) for one in range(number)]
    return list(await asyncio.gather(*asked))


async def test_an_actor_that_is_killed_loses_nothing_and_comes_back(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(latency_s=0.2)
    other.become(latency_s=0.02)

    async with pool_of(server, other, slots=16) as pool:
        asked = asyncio.gather(*(pool.generate(question(str(one), before=str(one))) for one in range(100)))
        await until(lambda: pool.stats().actors[0].in_flight > 3)
        server.kill()
        texts = [answer.text for answer in await asked]
        lost = in_service(pool)
        server.start()
        await until(lambda: in_service(pool) == [True, True])
        used = {answer.actor for answer in await many(pool, 30)}
    assert (texts, lost, used) == ([str(one) for one in range(100)], [False, True], {"first", "second"})


async def test_an_actor_that_fails_three_times_in_a_row_is_probed_before_it_is_asked_again(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(always=Fault(status=500))

    async with pool_of(server, other, settings={"first_pause_s": 0.01}) as pool:
        await many(pool, 30)
        found = in_service(pool)
        before = probes_of(server)
        while probes_of(server) < before + 2:
            await asyncio.sleep(0.01)
        still = in_service(pool)
        server.become()
        await until(lambda: in_service(pool) == [True, True])
        assert (found, still) == ([False, True], [False, True])
        assert (in_service(pool), pool.stats().actors[0].ejections) == ([True, True], 1)
    assert [body["max_tokens"] for body in server.seen().bodies if body["messages"][-1]["content"] == "1"][-1] == 1


async def test_a_pool_without_an_actor_says_what_each_of_them_said_last(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(always=Fault(status=500, message="out of memory"))
    other.kill()

    async with pool_of(server, other, settings={"patience_s": 0.1, "max_tries": 10}) as pool:
        said = []
        for _ in range(2):
            with pytest.raises(ActorError) as caught:
                await pool.generate(question())
            said.append(str(caught.value))
        first, second = said
    assert first == (
        "no actor has been in service for 0.1 s: first answers 500: out of memory; second cannot be reached: Connection"
        " refused; start them, or mend their addresses in configs/vllm_actors.yaml"
    )
    assert second == first


async def test_an_engine_that_hangs_while_its_health_is_well_is_left_for_another(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(always=Fault(hangs=True))

    said = "does not answer a probe of one token within 0.2 s"
    async with pool_of(server, other, settings={"load_s": 0.05, "probe_s": 0.2}) as pool:
        answers = await many(pool, 12)
        stalled = pool.stats().actors[0].faults[FaultKind.STALLED]
        # which a first probe may have come to before the last answer came
        await until(lambda: pool.stats().actors[0].last_fault == said)
        texts, found = [answer.text for answer in answers], in_service(pool)
    assert (texts, found, stalled > 0) == ([str(one) for one in range(12)], [False, True], True)
    assert server.seen().aborted == sum(server.seen().ids.values())


async def test_an_engine_that_is_asleep_is_left_and_not_probed_until_it_wakes(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(is_asleep=True)

    async with pool_of(server, other, settings={"load_s": 0.05, "stall_s": 30.0}) as pool:
        texts = [answer.text for answer in await many(pool, 12)]
        found = in_service(pool)
        looks = server.seen().paths["GET /metrics"]
        while server.seen().paths["GET /metrics"] < looks + 3:
            await asyncio.sleep(0.01)
        probes = probes_of(server)
        server.become()
        await until(lambda: in_service(pool) == [True, True])
        assert (texts, found, probes) == ([str(one) for one in range(12)], [False, True], 0)


async def test_a_health_that_is_ill_takes_an_actor_out_of_service_without_a_request(server: ProtocolServer) -> None:
    server.become(health=503)

    async with pool_of(server, settings={"health_s": 0.02}) as pool:
        await pool.generate(question())
        server.become(health=503, always=Fault(status=500, message="the engine is dead"))
        await until(lambda: pool.stats().actors[0].last_fault == "answers 500: the engine is dead")
        assert in_service(pool) == [False]


async def test_a_server_without_a_health_page_is_well(server: ProtocolServer) -> None:
    server.become(health=404)

    async with pool_of(server, settings={"health_s": 0.01}) as pool:
        await pool.generate(question())
        while server.seen().paths.get("GET /health", 0) < 5:
            await asyncio.sleep(0.01)
        assert in_service(pool) == [True]


async def test_a_process_that_is_frozen_is_left_for_another(server: ProtocolServer, other: ProtocolServer) -> None:

    # long enough for the one that is not frozen, on a busy machine too
    settings = {"health_s": 0.05, "look_s": 1.0, "max_failures": 2}
    async with pool_of(server, other, settings=settings) as pool:
        await many(pool, 4)
        server.freeze()
        texts = [answer.text for answer in await many(pool, 12)]
        found = in_service(pool)
        server.thaw()
        await until(lambda: in_service(pool) == [True, True])
        assert (texts, found, pool.stats().actors[0].faults[FaultKind.STALLED] > 0) == (
            [str(one) for one in range(12)],
            [False, True],
            True,
        )


async def test_a_cache_that_fills_lowers_what_an_actor_is_given(server: ProtocolServer) -> None:
    server.become(latency_s=0.05, kv_usage=0.95)

    async with pool_of(server, slots=32, settings={"load_s": 0.02, "stall_s": 30.0}) as pool:
        asked = asyncio.ensure_future(many(pool, 200))
        # each look takes a quarter of what is in flight away
        await until(lambda: pool.stats().actors[0].limit < 16)
        asked.cancel()
        load = pool.stats().actors[0].load
        assert load is not None
        assert load.kv_use == 0.95


async def test_servers_without_metrics_get_all_their_slots(server: ProtocolServer) -> None:
    server.become(has_metrics=False)

    async with pool_of(server, slots=5, settings={"load_s": 0.01}) as pool:
        await pool.generate(question())
        while server.seen().paths.get("GET /metrics", 0) < 3:
            await asyncio.sleep(0.01)
        actor = pool.stats().actors[0]
        assert (actor.limit, actor.load) == (5, None)


async def test_of_a_service_nothing_but_chats_is_asked(server: ProtocolServer) -> None:
    async with pool_of(server, engine="service", settings={"health_s": 0.01, "load_s": 0.01}) as pool:
        for _ in range(5):
            await pool.generate(question())
            await asyncio.sleep(0.02)
    assert server.seen().paths == {"POST /v1/chat/completions": 5}
