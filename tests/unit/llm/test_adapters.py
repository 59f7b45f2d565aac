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


def test_an_adapter_of_the_fleet_is_loaded_for_its_first_request_and_no_other(server: ProtocolServer) -> None:
    async def run() -> None:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            await pool.generate(question())
            assert server.seen().adapters == {}
            await asyncio.gather(*(pool.generate(question(adapter="style")) for _ in range(5)))

    asyncio.run(run())
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


def test_a_server_that_was_started_again_gets_its_adapter_before_a_request_for_it(server: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            await pool.generate(question(adapter="style"))
            server.kill()
            asked = asyncio.create_task(pool.generate(question(adapter="style")))
            await until(lambda: not pool.stats().actors[0].is_in_service)
            server.start()
            return (await asked).model

    assert asyncio.run(run()) == "style"
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


def test_a_server_that_was_started_again_without_anybody_noticing_gets_it_too(server: ProtocolServer) -> None:
    async def run() -> tuple[str, int]:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            await pool.generate(question(adapter="style"))
            server.renew()
            answer = await pool.generate(question(adapter="style"))
            return answer.model, answer.tries

    assert asyncio.run(run()) == ("style", 2)


def test_an_adapter_that_is_not_loaded_is_not_asked_for(server: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server, adapters=("/adapters/style",)) as pool:
            return await refusal(pool, "stile")

    assert asyncio.run(run()) == "adapter 'stile' is unknown; known: style; name it in the fleet"
    assert server.seen().paths == {}


def test_a_folder_without_an_adapter_is_said(server: ProtocolServer) -> None:
    async def run() -> str:
        async with pool_of(server, adapters=("/adapters/missing",)) as pool:
            return await refusal(pool, "missing")

    assert asyncio.run(run()) == (
        "actor 'first' does not load adapter 'missing' from '/adapters/missing': answers 404: Loading lora missing failed:"
        " No adapter found; mend the request or the fleet"
    )


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


def test_an_embedded_server_that_has_an_adapter_of_another_folder_is_not_asked_for_it(server: ProtocolServer) -> None:
    server.become(adapters=HELD)

    async def run() -> str:
        async with pool_of(server, engine="embedded", adapters=("/root/newer/first",)) as pool:
            return await refusal(pool, "first")

    assert asyncio.run(run()) == (
        "actor 'first' was started without adapter 'first' from '/root/newer/first' (it has: first, style.one);"
        " name the folder in its fleet, and start it again; mend the request or the fleet"
    )
