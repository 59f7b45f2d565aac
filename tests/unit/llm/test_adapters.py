"""LoRA adapters on running actors."""

import asyncio

import pytest

from graftline.core.errors import ActorError
from graftline.llm.pool import ActorPool
from tests.protocol_server import ProtocolServer
from tests.unit.llm.pools import pool_of, question, until

LOAD = "POST /v1/load_lora_adapter"


async def refusal(pool: ActorPool, adapter: str) -> str:
    with pytest.raises(ActorError) as caught:
        await pool.generate(question(adapter=adapter))
    return str(caught.value)


def test_an_adapter_is_loaded_at_every_actor_and_answers_under_its_name(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    async def run() -> str:
        async with pool_of(server, other) as pool:
            await pool.load_adapter("style", "/adapters/style")
            return (await pool.generate(question(adapter="style"))).model

    assert asyncio.run(run()) == "style"
    assert [one.seen().adapters for one in (server, other)] == [{"style": "/adapters/style"}] * 2


def test_an_adapter_of_the_fleet_is_loaded_for_its_first_request_and_no_other(server: ProtocolServer) -> None:
    async def run() -> None:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            await pool.generate(question())
            assert server.seen().adapters == {}
            await asyncio.gather(*(pool.generate(question(adapter="style")) for _ in range(5)))

    asyncio.run(run())
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


def test_an_adapter_that_an_actor_has_already_is_taken_as_it_is(server: ProtocolServer) -> None:
    async def run() -> list[str]:
        models = []
        for _ in range(2):
            async with pool_of(server, adapters=("/adapters/style",)) as pool:
                models.append((await pool.generate(question(adapter="style"))).model)
        return models

    assert asyncio.run(run()) == ["style", "style"]


def test_an_adapter_that_is_loaded_again_replaces_the_one_before(server: ProtocolServer) -> None:
    async def run() -> None:
        async with pool_of(server) as pool:
            await pool.load_adapter("style", "/adapters/first")
            await pool.load_adapter("style", "/adapters/second")
            await pool.generate(question(adapter="style"))
            # the same folder may hold other weights by now
            await pool.load_adapter("style", "/adapters/second")

    asyncio.run(run())
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/second"}, 3)


def test_a_server_that_was_started_again_gets_its_adapter_before_a_request_for_it(server: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server) as pool:
            await pool.load_adapter("style", "/adapters/style")
            server.kill()
            asked = asyncio.create_task(pool.generate(question(adapter="style")))
            await until(lambda: not pool.stats().actors[0].is_in_service)
            server.start()
            return (await asked).model

    assert asyncio.run(run()) == "style"
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


def test_a_server_that_was_started_again_without_anybody_noticing_gets_it_too(server: ProtocolServer) -> None:
    async def run() -> tuple[str, int]:
        async with pool_of(server) as pool:
            await pool.load_adapter("style", "/adapters/style")
            server.renew()
            answer = await pool.generate(question(adapter="style"))
            return answer.model, answer.tries

    assert asyncio.run(run()) == ("style", 2)


def test_an_adapter_that_is_not_loaded_is_not_asked_for(server: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            return await refusal(pool, "stile")

    assert asyncio.run(run()) == "adapter 'stile' is unknown; known: style; load it, or name it in the fleet"
    assert server.seen().paths == {}


def test_a_folder_without_an_adapter_is_said_by_every_actor(server: ProtocolServer, other: ProtocolServer) -> None:
    async def run() -> tuple[str, str]:
        async with pool_of(server, other) as pool:
            with pytest.raises(ActorError) as caught:
                await pool.load_adapter("style", "/adapters/missing")
            return str(caught.value), await refusal(pool, "style")

    said = "does not load adapter 'style' from '/adapters/missing': answers 404: Loading lora style failed: No adapter found"
    loading, asking = asyncio.run(run())
    assert loading == f"actor 'first' {said}; actor 'second' {said}"
    assert asking in (
        f"actor 'first' {said}; mend the request or the fleet",
        f"actor 'second' {said}; mend the request or the fleet",
    )


def test_an_adapter_is_loaded_where_it_can_be_and_elsewhere_later(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    other.kill()

    async def run() -> set[str]:
        async with pool_of(server, other) as pool:
            with pytest.raises(ActorError, match=r"^actor 'second' does not load adapter 'style' .* cannot be reached"):
                await pool.load_adapter("style", "/adapters/style")
            other.start()
            answers = [await pool.generate(question(adapter="style", before=str(one))) for one in range(20)]
            return {answer.actor for answer in answers}

    assert asyncio.run(run()) == {"first", "second"}
    assert other.seen().adapters == {"style": "/adapters/style"}


def test_an_adapter_that_is_unloaded_is_gone_everywhere(server: ProtocolServer, other: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server, other) as pool:
            await pool.load_adapter("style", "/adapters/style")
            # one of them has lost it already
            other.renew()
            await pool.unload_adapter("style")
            return await refusal(pool, "style")

    assert asyncio.run(run()) == "adapter 'style' is unknown; known: none; load it, or name it in the fleet"
    assert [one.seen().adapters for one in (server, other)] == [{}, {}]


HELD = {"first": "/root/adapters/first", "style.one": "/root/adapters/style.one"}
EMBEDDED = {"engine": "embedded", "adapters": ("/root/adapters/first", "adapters/style.one")}
MODELS = "GET /v1/models"


def test_an_embedded_server_is_asked_for_an_adapter_by_its_name(server: ProtocolServer) -> None:
    server.become(adapters=HELD)

    async def run() -> list[str]:
        async with pool_of(server, **EMBEDDED) as pool:
            names = ("style.one", "first", "", "first")
            return [(await pool.generate(question(adapter=name))).model for name in names]

    assert asyncio.run(run()) == ["style.one", "first", "model", "first"]
    # once for each adapter
    assert (server.seen().paths[MODELS], server.seen().paths.get(LOAD)) == (2, None)


def test_an_embedded_server_that_was_started_again_without_an_adapter_is_not_asked_for_it(
    server: ProtocolServer,
) -> None:
    server.become(adapters=HELD)

    async def run() -> str:
        async with pool_of(server, **EMBEDDED) as pool:
            await pool.generate(question(adapter="first"))
            server.become(adapters={"style.one": HELD["style.one"]})
            return await refusal(pool, "first")

    message = "was started without adapter 'first' from '/root/adapters/first' (it has: style.one)"
    assert asyncio.run(run()) == (
        f"actor 'first' {message}; name the folder in its fleet, and start it again; mend the request or the fleet"
    )


def test_an_adapter_cannot_be_loaded_at_an_embedded_server_that_runs(server: ProtocolServer) -> None:
    server.become(adapters=HELD)

    async def run() -> str:
        async with pool_of(server, **EMBEDDED) as pool:
            await pool.load_adapter("first", "/root/adapters/first")  # which it has
            with pytest.raises(ActorError) as caught:
                await pool.load_adapter("first", "/root/newer/first")
            return str(caught.value)

    assert asyncio.run(run()) == (
        "actor 'first' was started without adapter 'first' from '/root/newer/first' (it has: first, style.one);"
        " name the folder in its fleet, and start it again"
    )
