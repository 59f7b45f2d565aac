"""LoRA adapters on running actors."""

import asyncio

import pytest

from graftline.core.errors import ActorError
from graftline.llm.pool import ActorPool
from tests.protocol_server import ProtocolServer
from tests.unit.llm.pools import pool_of, question, until

pytestmark = pytest.mark.anyio

LOAD = "POST /v1/load_lora_adapter"


async def refusal(pool: ActorPool, adapter: str) -> str:
    with pytest.raises(ActorError) as caught:
        await pool.generate(question(adapter=adapter))
    return str(caught.value)


async def test_an_adapter_of_the_fleet_is_loaded_for_its_first_request_and_no_other(server: ProtocolServer) -> None:

    async with pool_of(server, adapters=("/adapters/style",)) as pool:
        await pool.generate(question())
        assert server.seen().adapters == {}
        await asyncio.gather(*(pool.generate(question(adapter="style")) for _ in range(5)))
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


async def test_a_server_that_was_started_again_gets_its_adapter_before_a_request_for_it(server: ProtocolServer) -> None:

    async with pool_of(server, adapters=("/adapters/style",)) as pool:
        await pool.generate(question(adapter="style"))
        server.kill()
        asked = asyncio.create_task(pool.generate(question(adapter="style")))
        await until(lambda: not pool.stats().actors[0].is_in_service)
        server.start()
        assert (await asked).model == "style"
    assert (server.seen().adapters, server.seen().paths[LOAD]) == ({"style": "/adapters/style"}, 1)


async def test_a_server_that_was_started_again_without_anybody_noticing_gets_it_too(server: ProtocolServer) -> None:

    async with pool_of(server, adapters=("/adapters/style",)) as pool:
        await pool.generate(question(adapter="style"))
        server.renew()
        answer = await pool.generate(question(adapter="style"))
        assert (answer.model, answer.tries) == ("style", 2)


async def test_an_adapter_that_is_not_loaded_is_not_asked_for(server: ProtocolServer) -> None:

    async with pool_of(server, adapters=("/adapters/style",)) as pool:
        assert await refusal(pool, "stile") == "adapter 'stile' is unknown; known: style; name it in the fleet"
    assert server.seen().paths == {}


async def test_a_folder_without_an_adapter_is_said(server: ProtocolServer) -> None:
    async with pool_of(server, adapters=("/adapters/missing",)) as pool:
        assert await refusal(pool, "missing") == (
            "actor 'first' does not load adapter 'missing' from '/adapters/missing': answers 404: Loading lora missing failed:"
            " No adapter found; mend the request or the fleet"
        )


HELD = {"first": "/root/adapters/first", "style.one": "/root/adapters/style.one"}
EMBEDDED = {"engine": "embedded", "adapters": ("/root/adapters/first", "adapters/style.one")}
MODELS = "GET /v1/models"


async def test_an_embedded_server_is_asked_for_an_adapter_by_its_name(server: ProtocolServer) -> None:
    server.become(adapters=HELD)

    async with pool_of(server, **EMBEDDED) as pool:
        names = ("style.one", "first", "", "first")
        assert [(await pool.generate(question(adapter=name))).model for name in names] == [
            "style.one",
            "first",
            "model",
            "first",
        ]
    # once for each adapter
    assert (server.seen().paths[MODELS], server.seen().paths.get(LOAD)) == (2, None)


async def test_an_embedded_server_that_was_started_again_without_an_adapter_is_not_asked_for_it(
    server: ProtocolServer,
) -> None:
    server.become(adapters=HELD)

    message = "was started without adapter 'first' from '/root/adapters/first' (it has: style.one)"
    async with pool_of(server, **EMBEDDED) as pool:
        await pool.generate(question(adapter="first"))
        server.become(adapters={"style.one": HELD["style.one"]})
        assert await refusal(pool, "first") == (
            f"actor 'first' {message}; name the folder in its fleet, and start it again; mend the request or the fleet"
        )


async def test_an_embedded_server_that_has_an_adapter_of_another_folder_is_not_asked_for_it(
    server: ProtocolServer,
) -> None:
    server.become(adapters=HELD)

    async with pool_of(server, engine="embedded", adapters=("/root/newer/first",)) as pool:
        assert await refusal(pool, "first") == (
            "actor 'first' was started without adapter 'first' from '/root/newer/first' (it has: first, style.one);"
            " name the folder in its fleet, and start it again; mend the request or the fleet"
        )
