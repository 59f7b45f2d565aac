"""A language model as the agent asks it: within limits, and never twice the same.

An answer is kept in a file that is named after the digest of what was asked, so that a run which was ended goes on where it
was, and the same input comes to the same change. What a model says is text, compared and parsed, and never run.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.core.errors import ActorError, ConfigError
from graftline.core.hashing import digest
from graftline.core.record import write_atomically
from graftline.core.secrets import Secrets
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Fleet, PoolSettings, load_fleet
from graftline.llm.questions import fits_into, seed_of
from graftline.rollouts.teachers.prompt import PROMPT_FILE, Prompt, load_prompt, unpack_prompt

_PATIENCE_S, _STALL_S = 10.0, 600.0
"""A person waits: servers that are not up are told of soon. One that works beside other programs may say nothing for long."""
DRAWN_TEMPERATURE = 0.7
"""Of answers that are drawn, not the likeliest ones."""
_LEAST_SAID = 0.2
"""How likely yes or no has to be for the relation of both to say anything."""


class ModelAnswer(BaseModel):
    """What a model said, as it is stored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: int = 1
    model: str
    text: str
    is_whole: bool
    """False where it was cut off by its length."""
    prompt_tokens: int
    completion_tokens: int
    first_tokens: dict[str, float]
    """As `ChatAnswer.first_tokens`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be asked in one run."""

    tokens: int = 200_000
    """Of prompts and answers, those that were kept from earlier runs left out."""
    seconds: float = 3_600.0
    """From the first question on."""


@dataclass
class Spent:
    """What was asked so far."""

    questions: int = 0
    replayed: int = 0
    """Of these, answered by an earlier run."""
    tokens: int = 0
    seconds: float = 0.0


@dataclass
class AgentModel:
    """Asks `model`, whose context holds `context_tokens`; one thread at a time."""

    model: BlockingChatModel
    context_tokens: int
    answers: Path | None = None
    """Folder of kept answers; None keeps none."""
    limits: Limits = Limits()
    adapter: str = ""
    name: str = ""
    """As reports call it."""
    spent: Spent = field(default_factory=Spent)
    clock: Callable[[], float] = time.monotonic
    prompt: Prompt | None = None
    """How a model is asked that was trained to edit; one that was not is asked as `agent.edits` says."""
    draw: int = 0
    """Another one is another draw of the same run; 0 has the likeliest first answer at each place."""

    @property
    def is_exhausted(self) -> bool:
        """Whether a limit is reached."""
        return self.spent.tokens >= self.limits.tokens or self.spent.seconds >= self.limits.seconds

    def ask(self, request: ChatRequest) -> ModelAnswer | None:
        """Return the answer; None where a limit is reached, or the question does not fit into the context.

        ActorError where nobody answers.
        """
        request = replace(request, adapter=self.adapter)
        if self.draw and not request.top_tokens:
            temperature = request.temperature or DRAWN_TEMPERATURE
            request = replace(request, temperature=temperature, seed=seed_of(request.seed or 0, self.draw))
        path = self.answers / f"{self.digest(request)}.json" if self.answers else None
        answer = _read_answer(path) if path else None
        if answer is not None:
            self.spent.questions += 1
            self.spent.replayed += 1
            return answer
        if self.is_exhausted or not fits_into(self.context_tokens, request.messages, request.max_tokens):
            return None
        began = self.clock()
        deadline_s = min(request.deadline_s, self.limits.seconds - self.spent.seconds)
        try:
            chat = self.model.generate(replace(request, deadline_s=max(1.0, deadline_s)))
        finally:
            self.spent.seconds += self.clock() - began
        self.spent.questions += 1
        self.spent.tokens += chat.usage.prompt + chat.usage.completion
        answer = ModelAnswer(
            model=chat.model,
            text=chat.text,
            is_whole=chat.finish_reason == "stop",
            prompt_tokens=chat.usage.prompt,
            completion_tokens=chat.usage.completion,
            first_tokens=dict(chat.first_tokens),
        )
        if path:
            write_atomically(path, answer.model_dump_json())
        return answer

    def digest(self, request: ChatRequest) -> str:
        """Return what the answer to `request` depends on."""
        messages = [[message.role, message.content] for message in request.messages]
        schema = None if request.json_schema is None else dict(request.json_schema)
        settings = [request.max_tokens, request.temperature, [*request.stop], schema, request.seed, request.top_tokens]
        return digest([self.model.name, request.adapter, messages, settings])


def open_model(
    name: str, configs: Path, secrets: Secrets, answers: Path | None = None, limits: Limits | None = None
) -> AgentModel:
    """Return the model that `name` says: a fleet of `vllm_actors.yaml`, or `FLEET:ADAPTER`; whoever opens it closes its `model`.

    ConfigError where there is none, with what there is. Nothing is asked of it yet.
    """
    from graftline.llm.pool import ActorPool  # httpx and its TLS are loaded by whoever asks served models

    fleet_name, _, adapter = name.partition(":")
    fleet = load_fleet(configs, fleet_name)
    if adapter and adapter not in fleet.adapter_folders:
        listed = ", ".join(fleet.adapter_folders) or "none"
        raise ConfigError(
            f"{configs / 'vllm_actors.yaml'}: fleet {fleet_name!r} has no adapter {adapter!r}; it has {listed};"
            " name its folder in `adapters` of the fleet"
        )
    key = secrets.require(fleet.api_key, f"fleet {fleet_name!r}") if fleet.api_key else None
    pool = ActorPool(fleet, key, PoolSettings(patience_s=_PATIENCE_S, stall_s=_STALL_S))
    model = BlockingChatModel(pool)
    prompt = find_edit_prompt(configs, fleet, adapter)
    return AgentModel(model, fleet.prompt_and_answer_tokens, answers, limits or Limits(), adapter, name, prompt=prompt)


def find_edit_prompt(configs: Path, fleet: Fleet, adapter: str) -> Prompt | None:
    """Return the prompt by which a model was trained to edit; None of one that was not.

    That of an adapter lies in its folder, that of a whole model is named in its fleet. ConfigError where a file does not fit.
    """
    if not adapter:
        if "prompt" not in fleet.model_fields_set:
            return None  # a folder of one's own need not have prompts
        prompt = load_prompt(configs, fleet.prompt)
    else:
        path = configs.parent / fleet.adapter_folders[adapter] / PROMPT_FILE
        if not path.is_file():  # of another version, or of others
            return None
        prompt = unpack_prompt(path)
    return take_edit_prompt(prompt)


def take_edit_prompt(prompt: Prompt) -> Prompt | None:
    """Return `prompt` where it is for models that were trained to edit; None where it is another one."""
    return prompt if prompt.settings.answer.layout == "code" and not prompt.settings.has_shots else None


@contextmanager
def use_model(name: str, configs: Path, secrets: Secrets, answers: Path, limits: Limits) -> Iterator[AgentModel]:
    """Open the model that `name` says, as `open_model`; ActorError says what to do where nobody answers."""
    model = open_model(name, configs, secrets, answers, limits)
    try:
        yield model
    except ActorError as error:
        advice = f"`graftline model serve --fleet {name.partition(':')[0]}` starts it, if it is one of this machine"
        raise ActorError(f"model {name}: {error}; {advice}") from error
    finally:
        model.model.close()


def read_probability(first_tokens: Mapping[str, float], text: str) -> float | None:
    """Return how likely yes is, of yes and no; None where the answer is neither.

    Without the likeliest first tokens, what the text says is certain.
    """
    shares = {"yes": 0.0, "no": 0.0}
    for token, logarithm in first_tokens.items():
        word = token.strip().lower()
        if word in shares:
            shares[word] += math.exp(logarithm)
    total = sum(shares.values())
    if total >= _LEAST_SAID:
        return shares["yes"] / total
    word = text.strip().lower().split()[0].strip(".,!:;") if text.strip() else ""
    return {"yes": 1.0, "no": 0.0}.get(word)


def _read_answer(path: Path) -> ModelAnswer | None:
    try:
        return ModelAnswer.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):  # not there, or not whole: it is asked again
        return None
