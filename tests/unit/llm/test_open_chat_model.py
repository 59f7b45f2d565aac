"""From configuration to chat models, and the one that is in this process."""

import asyncio
import json
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError
from graftline.core.secrets import EnvironmentSecrets, Secrets
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
