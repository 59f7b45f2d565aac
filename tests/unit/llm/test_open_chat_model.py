"""From configuration to chat models, and the one that is in this process."""

import asyncio
import json
from pathlib import Path

import pytest

from graftline.core.config import validate
from graftline.core.errors import ConfigError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.llm.base import ChatRequest
from graftline.llm.fleet import Fleet
from graftline.llm.memory import MemoryChatModel
from graftline.llm.open import ActorsConfig, MemoryChatModelConfig, open_chat_model
from tests.protocol_server import ProtocolServer
from tests.unit.llm.pools import question

pytestmark = pytest.mark.anyio


def written(folder: Path, **more: object) -> Path:
    fleet = {"engine": "service", "model": "m", "actors": [{"name": "one", "url": "http://127.0.0.1:9"}], **more}
    (folder / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"mine": fleet}}), "utf-8")
    return folder


async def test_answers_of_a_script_come_in_their_order_and_then_again() -> None:
    model = open_chat_model(MemoryChatModelConfig(answers=("a", "b")), Path(), Secrets([]))

    assert [(await model.generate(question())).text for _ in range(3)] == ["a", "b", "a"]


def test_a_model_in_memory_keeps_what_it_was_asked() -> None:
    async def answer(request: ChatRequest) -> str:
        return request.messages[-1].content.upper()

    model = MemoryChatModel(answer)
    asked = [question("one"), question("two")]

    async def run() -> list[str]:
        return [(await model.generate(request)).text for request in asked]

    assert (asyncio.run(run()), model.requests) == (["ONE", "TWO"], asked)


def test_a_fleet_is_opened_with_its_key(tmp_path: Path, server: ProtocolServer) -> None:
    server.become(api_key="sk-hidden")
    actors = [{"name": "one", "url": server.url}]
    configs = written(tmp_path, model="model", actors=actors, api_key="MY_KEY")
    model = open_chat_model(ActorsConfig(fleet="mine"), configs, Secrets([EnvironmentSecrets({"MY_KEY": "sk-hidden"})]))

    async def run() -> str:
        answer = await model.generate(question())
        await model.close()
        return answer.actor

    assert (model.name, asyncio.run(run())) == ("model", "one")


@pytest.mark.parametrize(
    ("fleet", "message"),
    [
        ("mine", "^MY_KEY: is not set, but fleet 'mine' needs it; put it into .env or Vault$"),
        ("yours", r"vllm_actors\.yaml: fleet 'yours' is unknown; known: mine$"),
    ],
)
def test_a_fleet_without_its_key_or_without_an_entry_is_refused(tmp_path: Path, fleet: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_chat_model(ActorsConfig(fleet=fleet), written(tmp_path, api_key="MY_KEY"), Secrets([]))


def test_a_model_is_called_by_the_name_that_it_is_served_under(tmp_path: Path) -> None:
    configs = written(tmp_path, served_name="short")
    assert open_chat_model(ActorsConfig(fleet="mine"), configs, Secrets([])).name == "short"


@pytest.mark.parametrize("path", ["v1", "/v1/", "/v 1", "/v1?x"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="api_path"):
        validate(
            {"engine": "service", "model": "m", "api_path": path, "actors": [{"name": "a", "url": "http://a"}]},
            Fleet,
            "fleet",
        )


def test_a_script_has_an_answer() -> None:
    with pytest.raises(ConfigError, match="answers"):
        validate({"kind": "memory", "answers": []}, MemoryChatModelConfig, "model")
