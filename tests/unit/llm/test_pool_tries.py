"""What the pool does about tries that fail."""

import asyncio
from typing import Any

import pytest
from pydantic import SecretStr

from graftline.core.errors import ActorError
from graftline.llm.base import ChatAnswer, ChatRequest
from graftline.llm.client import FaultKind
from graftline.llm.member import PoolStats
from graftline.llm.pool import ActorPool
from tests.protocol_server import Fault, ProtocolServer
from tests.unit.llm.pools import fleet, pool_of, question

pytestmark = pytest.mark.anyio


def asked(*servers: ProtocolServer, request: ChatRequest | None = None, **more: Any) -> tuple[ChatAnswer, PoolStats]:
    """Ask one question of a pool over `servers`."""

    async def run() -> tuple[ChatAnswer, PoolStats]:
        async with pool_of(*servers, **more) as pool:
            return await pool.generate(request or question()), pool.stats()

    return asyncio.run(run())


def refused(*servers: ProtocolServer, request: ChatRequest | None = None, **more: Any) -> str:
    """Return why a question that is not answered is not."""
    with pytest.raises(ActorError) as caught:
        asked(*servers, request=request, **more)
    return str(caught.value)


FAULTS = {
    "status 500": (Fault(status=500), FaultKind.FAILED),
    "status 503": (Fault(status=503), FaultKind.BUSY),
    "status 429": (Fault(status=429), FaultKind.LIMITED),
    "a connection that ends": (Fault(is_dropped=True), FaultKind.TORN),
    "a connection that ends in the middle of an answer": (Fault(torn_at=50), FaultKind.TORN),
    "an answer that is no JSON": (Fault(body="<html>"), FaultKind.MALFORMED),
    "an answer that is other JSON": (Fault(body='{"choices": []}'), FaultKind.MALFORMED),
    "an answer that never ends": (Fault(is_endless=True), FaultKind.MALFORMED),
}


@pytest.mark.parametrize(("fault", "kind"), FAULTS.values(), ids=FAULTS)
def test_another_actor_answers_after(
    server: ProtocolServer, other: ProtocolServer, fault: Fault, kind: FaultKind
) -> None:
    server.become(faults=[fault])
    other.become(faults=[fault])
    answers = [asked(server, other)[0] for _ in range(2)]
    # the first chat fails at one of them and goes to the other, which fails, too, and back; the second one is answered
    assert [(answer.text, answer.tries) for answer in answers] == [("one two three", 3), ("one two three", 1)]
    server.become(faults=[fault])
    answer, stats = asked(server)
    assert (answer.tries, stats.actors[0].faults[kind], stats.actors[0].answers) == (2, 1, 1)


def test_a_retry_carries_the_same_request_id(server: ProtocolServer) -> None:
    server.become(faults=[Fault(status=500)])
    asked(server)
    seen = server.seen()
    assert (list(seen.ids.values()), list(seen.answered.values())) == ([2], [1])


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 307])
def test_nobody_else_is_asked_after_a_refusal(server: ProtocolServer, other: ProtocolServer, status: int) -> None:
    server.become(always=Fault(status=status))
    other.become(always=Fault(status=status))
    message = refused(server, other)
    assert (
        message.removeprefix("actor 'first' ").removeprefix("actor 'second' ")
        == f"answers {status}: a fault was asked for; mend the request or the fleet"
    )
    assert sum(server.seen().ids.values()) + sum(other.seen().ids.values()) == 1


def test_a_request_that_fails_wherever_it_goes_is_given_up_and_both_are_quoted(
    server: ProtocolServer, other: ProtocolServer
) -> None:
    server.become(always=Fault(status=500, message="CUDA error"))
    other.become(always=Fault(is_dropped=True))
    message = refused(server, other)
    assert message.startswith("model: 3 tries failed: ")
    assert "first answers 500: CUDA error" in message
    assert "second broke the connection off (RemoteProtocolError)" in message
    assert sum(server.seen().ids.values()) + sum(other.seen().ids.values()) == 3


def test_a_server_that_is_full_may_be_asked_more_often_than_one_that_fails(server: ProtocolServer) -> None:
    server.become(faults=[Fault(status=429)] * 3 + [Fault(status=503)] * 2)
    assert asked(server)[0].tries == 6


def test_who_asks_for_a_pause_gets_it_while_the_other_works(server: ProtocolServer, other: ProtocolServer) -> None:
    pause = Fault(status=429, retry_after="3600")
    server.become(always=pause)
    other.become(faults=[pause])
    # both would be asked if it were forgotten; the one that is asked second answers for good
    message = refused(server, request=question(deadline_s=2.0))
    assert message == (
        "model: no answer within 2 s, 1 try failed: first answers 429: a fault was asked for; look at the actors, or give"
        " requests longer"
    )
    assert sum(server.seen().ids.values()) == 1


def test_a_pause_that_a_date_asks_for_is_kept(server: ProtocolServer) -> None:
    server.become(faults=[Fault(status=503, retry_after="Fri, 31 Dec 9999 23:59:59 GMT")])
    assert "1 try failed" in refused(server, request=question(deadline_s=2.0))


def test_the_deadline_is_one_for_all_tries(server: ProtocolServer) -> None:
    server.become(latency_s=0.1, always=Fault(status=503))
    message = refused(server, request=question(deadline_s=2.0), settings={"max_failures": 1000})
    assert message.startswith("model: no answer within 2 s, ")
    assert "first answers 503: a fault was asked for" in message


async def test_a_secret_key_that_a_server_repeats_is_not_said(server: ProtocolServer) -> None:
    server.become(always=Fault(status=400, message="Bearer sk-hidden is no key"))

    pool = ActorPool(fleet(server), SecretStr("sk-hidden"))
    with pytest.raises(ActorError) as caught:
        await pool.generate(question())
    await pool.close()
    assert str(caught.value) == ("actor 'first' answers 400: Bearer [secret] is no key; mend the request or the fleet")
