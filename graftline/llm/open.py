"""From configuration to a chat model."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.secrets import Secrets
from graftline.llm.base import ChatModel
from graftline.llm.fleet import PoolSettings, load_fleet
from graftline.llm.memory import MemoryChatModel, script_answers


class ActorsConfig(Config):
    """The actors of a fleet of `configs/vllm_actors.yaml`."""

    kind: Literal["actors"] = "actors"
    fleet: str = "embedded"
    pool: PoolSettings = PoolSettings()


class MemoryChatModelConfig(Config):
    """Answers given in the configuration, in their order; after the last one, from the first again."""

    kind: Literal["memory"] = "memory"
    answers: tuple[str, ...] = Field(default=("",), min_length=1)


ChatModelConfig = Annotated[ActorsConfig | MemoryChatModelConfig, Field(discriminator="kind")]


def open_chat_model(config: ChatModelConfig, configs: Path, secrets: Secrets) -> ChatModel:
    """Return the chat model of `config`, its fleet of `vllm_actors.yaml` in the folder `configs`; nothing is asked of it yet."""
    match config:
        case ActorsConfig():
            # httpx and its TLS are loaded by whoever asks served models
            from graftline.llm.pool import ActorPool

            fleet = load_fleet(configs, config.fleet)
            key = secrets.require(fleet.api_key, f"fleet {config.fleet!r}") if fleet.api_key else None
            return ActorPool(fleet, key, config.pool)
        case MemoryChatModelConfig():
            return MemoryChatModel(script_answers(config.answers))
        case _:
            assert_never(config)
