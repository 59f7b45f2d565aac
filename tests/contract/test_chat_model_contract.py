"""What every chat model answers, whichever implementation it is."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ActorError
from graftline.core.secrets import Secrets
from graftline.llm.base import ChatAnswer, ChatModel, ChatRequest, Message, TokenUsage
from graftline.llm.memory import MemoryChatModel
from graftline.llm.open import ActorsConfig, open_chat_model
from tests.protocol_server import ProtocolServer

pytestmark = pytest.mark.anyio

Opener = Callable[..., ChatModel]


async def last_message(request: ChatRequest) -> str:
    return request.messages[-1].content


async def never(_: ChatRequest) -> str:
    await asyncio.sleep(3600)
    return ""


@pytest.fixture(scope="module")
def server() -> Iterator[ProtocolServer]:
    with ProtocolServer() as one:
        yield one


@pytest.fixture(params=["actors", "memory"])
def opened(request: pytest.FixtureRequest, server: ProtocolServer, tmp_path: Path) -> Opener:
    """Open a model that answers with the last message, or one that never answers."""

    def of_actors(is_silent: bool = False) -> ChatModel:
        server.renew(latency_s=3600.0 if is_silent else 0.0)
        fleet = {"engine": "vllm", "model": "model", "actors": [{"name": "actor", "url": server.url}]}
        (tmp_path / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"mine": fleet}}), "utf-8")
        return open_chat_model(ActorsConfig(fleet="mine"), tmp_path, Secrets([]))

    def of_memory(is_silent: bool = False) -> ChatModel:
        return MemoryChatModel(never if is_silent else last_message, "model")

    return of_actors if request.param == "actors" else of_memory


def chat(text: str = "one two three", **more: Any) -> ChatRequest:
    return ChatRequest((Message(role="system", content="be brief"), Message(role="user", content=text)), **more)


def answered(opened: Opener, *requests: ChatRequest) -> list[ChatAnswer]:
    async def run() -> list[ChatAnswer]:
        model = opened()
        answers = await asyncio.gather(*(model.generate(request) for request in requests))
        await model.close()
        return list(answers)

    return asyncio.run(run())


def test_an_answer_says_what_was_said_and_what_it_took(opened: Opener) -> None:
    [answer] = answered(opened, chat())
    assert (answer.text, answer.finish_reason, answer.usage, answer.model, answer.tries, answer.cost_usd) == (
        "one two three",
        "stop",
        TokenUsage(prompt=5, completion=3),
        "model",
        1,
        None,
    )
    assert answer.latency_s >= 0
    assert answer.actor


@pytest.mark.parametrize(
    ("stop", "text"), [((" three",), "one two"), (("four", "two"), "one "), (("four",), "one two three")]
)
def test_an_answer_ends_before_the_first_stop(opened: Opener, stop: tuple[str, ...], text: str) -> None:
    [answer] = answered(opened, chat(stop=stop))
    assert (answer.text, answer.finish_reason) == (text, "stop")


def test_an_answer_that_is_too_long_is_cut_and_says_so(opened: Opener) -> None:
    [answer] = answered(opened, chat(max_tokens=2))
    assert (answer.text, answer.finish_reason, answer.usage.completion) == ("one two", "length", 2)


def test_text_is_answered_as_it_is(opened: Opener) -> None:
    text = 'naïve \U0001d4b3 \u2028 \\n "quoted" </action> \t x'
    assert answered(opened, chat(text))[0].text == text


def test_a_seed_that_was_sent_is_said(opened: Opener) -> None:
    assert [answer.seed for answer in answered(opened, chat(seed=7), chat())] == [7, None]


def test_many_at_a_time_are_not_mixed_up(opened: Opener) -> None:
    answers = answered(opened, *(chat(str(number)) for number in range(100)))
    assert [answer.text for answer in answers] == [str(number) for number in range(100)]


def test_a_deadline_is_kept(opened: Opener) -> None:
    async def run() -> str:
        model = opened(is_silent=True)
        with pytest.raises(ActorError) as caught:
            await model.generate(chat(deadline_s=0.05))
        await model.close()
        return str(caught.value)

    assert asyncio.run(run()).startswith("model: no answer within 0.05 s")


def test_a_request_can_be_cancelled(opened: Opener) -> None:
    async def run() -> bool:
        model = opened(is_silent=True)
        task = asyncio.create_task(model.generate(chat()))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        await model.close()
        return task.cancelled()

    assert asyncio.run(run())


async def test_closing_ends_what_is_in_flight(opened: Opener) -> None:

    model = opened(is_silent=True)
    tasks = [asyncio.create_task(model.generate(chat())) for _ in range(2)]
    await asyncio.sleep(0.02)
    await model.close()
    assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [
        "model: was closed before there was an answer"
    ] * 2


async def test_a_closed_model_answers_nothing_and_can_be_closed_again(opened: Opener) -> None:

    model = opened()
    await model.close()
    await model.close()
    with pytest.raises(ActorError) as caught:
        await model.generate(chat())
    assert str(caught.value) == "model: is closed; open another"


async def test_a_model_that_is_never_asked_can_be_closed(opened: Opener) -> None:

    model = opened()
    await model.close()
    assert model.name == "model"
