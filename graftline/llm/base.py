"""The `ChatModel` port: ask a language model.

An answer, however poor, is a result, and so is one that was cut off by its length. An error is raised only when nobody
answered: then nothing is known about the question, and it may be asked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graftline.core.config import Config

Role = Literal["system", "user", "assistant"]


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    content: str


class OutputTerms(Config):
    """On what terms the answers of a model may be used."""

    may_train: bool | None
    """Whether models may be trained on the answers; None where nobody has verified it."""
    terms: str = Field(min_length=1)
    """Which terms those are, and what they say of training, in a sentence."""
    source: str = ""
    """Where they can be read: a URL."""

    @model_validator(mode="after")
    def _says_where(self) -> Self:
        if self.may_train is not None and not self.source:
            raise ValueError("source: name the page that says whether models may be trained on the answers")
        return self


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
    top_tokens: int = 0
    """How many of the likeliest first tokens the answer is to come with (`ChatAnswer.first_tokens`); at most 20."""


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
    reasoning: str = ""
    """What the model thought before `text`, where the server tells it apart."""
    temperature: float | None = None
    """The one that was really sent; None where it is that of the request."""
    outputs: OutputTerms | None = None
    """The terms that the text is under; None where the fleet names none."""
    first_tokens: Mapping[str, float] = field(default_factory=dict)
    """What the answer might have begun with, and the logarithms of the probabilities; empty where the server does not say."""


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
