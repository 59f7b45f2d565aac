"""Threads that ask."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from graftline.core.errors import ActorError
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import PoolSettings
from graftline.llm.memory import MemoryChatModel
from graftline.llm.pool import ActorPool
from tests.protocol_server import ProtocolServer
from tests.unit.llm.pools import IMPATIENT, fleet, question


def pool(server: ProtocolServer, slots: int = 64) -> ActorPool:
    return ActorPool(fleet(server, slots=slots), settings=PoolSettings(**IMPATIENT))


def waiting_for(server: ProtocolServer, number: int) -> None:
    while sum(server.seen().ids.values()) < number:
        time.sleep(0.01)


def test_hundreds_of_threads_each_get_their_own_answer(server: ProtocolServer) -> None:
    server.become(latency_s=0.02)
    with BlockingChatModel(pool(server)) as model, ThreadPoolExecutor(200) as threads:
        texts = list(threads.map(lambda one: model.generate(question(str(one))).text, range(400)))
    assert texts == [str(one) for one in range(400)]


def test_closing_ends_the_waiting_of_every_thread_and_the_work_of_the_server(server: ProtocolServer) -> None:
    server.become(latency_s=30)
    asked = pool(server, slots=4)
    model = BlockingChatModel(asked)

    def ask() -> str:
        with pytest.raises(ActorError) as caught:
            model.generate(question())
        return str(caught.value)

    with ThreadPoolExecutor(6) as threads:
        answers = [threads.submit(ask) for _ in range(6)]
        waiting_for(server, 4)
        while asked.stats().waiting < 2:
            time.sleep(0.01)
        model.close()
        said = [one.result() for one in answers]
    assert said == ["model: was closed before there was an answer"] * 6
    while server.seen().aborted < 4:
        time.sleep(0.01)


def test_after_closing_nothing_is_asked_and_no_thread_is_left(server: ProtocolServer) -> None:
    before = {*threading.enumerate()}
    model = BlockingChatModel(pool(server))
    model.generate(question())
    model.close()
    model.close()
    with pytest.raises(ActorError, match=r"^model: is closed; open another$"):
        model.generate(question())
    # one that other tests left may end meanwhile
    assert {*threading.enumerate()} <= before


def test_a_fault_of_the_model_itself_reaches_the_thread_that_asked() -> None:
    async def answer(_: ChatRequest) -> str:
        raise AssertionError("is not reached")

    with BlockingChatModel(MemoryChatModel(answer)) as model, pytest.raises(AssertionError, match="is not reached"):
        model.generate(question())
