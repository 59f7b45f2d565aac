"""The `ChatModel` port: ask a language model.

An answer, however poor, is a result, and so is one that was cut off by its length. An error is raised only when nobody
answered: then nothing is known about the question, and it may be asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

Role = Literal["system", "user", "assistant"]


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked, in what vLLM and llama.cpp both understand."""

    messages: tuple[Message, ...]
    max_tokens: int = 512
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    """Texts at which the answer ends; they are not part of it."""
    json_schema: Mapping[str, Any] | None = None
    """Schema that the answer has to follow, as `response_format` of kind `json_schema`."""
    seed: int | None = None
    """Sent only to actors that can take it; vLLM on a CPU dies of it."""
    adapter: str = ""
    """Name of a loaded LoRA adapter; empty for the model itself."""
    deadline_s: float = 600.0
    """From the call to the answer, all tries together."""


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one answer, as the server counted them."""

    prompt: int
    completion: int
    cached: int = 0
    """Of `prompt`, those that the server had already read."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """What a model said."""

    text: str
    finish_reason: Literal["stop", "length"]
    usage: TokenUsage
    model: str
    """As the server calls it: the model's, or the adapter's, name."""
    actor: str
    """Name of the actor that answered."""
    latency_s: float
    """From the call to the answer, all tries together."""
    tries: int
    """How many times it was sent, the last included."""
    seed: int | None = None
    """The seed that was really sent."""
    cost_usd: float | None = None
    """None where no price is configured."""


class ChatModel(Protocol):
    """Answers chats; as many at a time as its actors take, the others wait."""

    @property
    def name(self) -> str:
        """The model, as trajectories and reports call it."""

    async def generate(self, request: ChatRequest) -> ChatAnswer:
        """Return the answer to `request`. Cancelling the call cancels the work of the server too.

        Raises:
            ActorError: nobody answered before the deadline, or the request was refused.
        """

    async def close(self) -> None:
        """Let go of every connection; what is in flight is cancelled."""
