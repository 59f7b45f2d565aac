"""What a rollout of the refactoring environment asks for: who acts, and with which prompt."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.harbor.contract import ContextOverride
from graftline.harbor.refusal import RequestError
from graftline.llm.blocking import BlockingChatModel
from graftline.rollouts.state.state import State
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import NoProposal, Turn
from graftline.rollouts.teachers.examples import Examples
from graftline.rollouts.teachers.prompt import Prompt, PromptSettings

TeacherName = Literal["agent", "induction", "memory", "nop", "openai"]
Part = Literal["system", "state", "user", "failed", "kept"]
PARTS: tuple[Part, ...] = get_args(Part)
"""Of a prompt; what a file `prompts/<part>.txt` of an override takes the place of."""
_MAX_PART = 100_000


class Policy(BaseModel):
    """`policy.config` of a rollout."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True)

    teacher: TeacherName | None = None
    """`openai` where a model is named, else `induction`. `memory` knows the gold actions, `nop` does nothing. `agent`
    is `graftline refactor` at a whole repository, with the model that is named, or without any."""
    model: str | None = Field(default=None, max_length=256)
    """Which of the models that were opened; may be left out where there is one."""
    provider: str | None = Field(default=None, max_length=256)
    """Kept beside the result; who serves a model was decided when it was opened."""
    prompt: str | dict[Part, str] | None = None
    """The text of the system message, or texts by part."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Of the first answer."""
    max_tokens: int | None = Field(default=None, ge=32, le=32_768)
    max_steps: int | None = Field(default=None, ge=1, le=64)
    """Of `agent`, places that the model edits."""
    attempt: int = Field(default=1, ge=1, le=10_000)
    """Another one is another draw."""

    @property
    def texts(self) -> dict[Part, str]:
        """The parts of the prompt that are replaced."""
        if self.prompt is None:
            return {}
        return {"system": self.prompt} if isinstance(self.prompt, str) else dict(self.prompt)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A language model that the caller opened, and closes."""

    model: BlockingChatModel
    prompt: Prompt
    context_tokens: int
    """Of one request: prompt and answer."""
    examples: Examples | None = None
    adapter: str = ""
    """Name of a loaded LoRA adapter; empty for the model itself."""


class NopTeacher:
    """Does nothing: what that earns is the floor of the reward."""

    name = "nop"
    uses_feedback = False

    def propose(self, task: Task, text: str, state: State, turns: Sequence[Turn] = (), attempt: int = 1) -> NoProposal:
        return NoProposal("nop")


class PromptFault(ValueError):
    """A prompt that cannot be used: the fault of who wrote it, of which nothing is known about the task."""


def policy_of(config: Mapping[str, Any]) -> Policy:
    """Return `policy.config` as a policy. Raises RequestError where it asks for what there is not."""
    try:
        return Policy.model_validate(dict(config))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(["policy.config", *(str(part)[:64] for part in fault["loc"])])
        fields = ", ".join(Policy.model_fields)
        raise RequestError("unknown_policy", f"{key}: {fault['msg']}; known: {fields}") from None


def texts_of(overrides: Sequence[ContextOverride]) -> dict[Part, str]:
    """Return the parts of the prompt that `overrides` replace; of two for one part the later counts.

    Raises:
        PromptFault: an override is about something else.
    """
    parts = {f"prompts/{part}.txt": part for part in PARTS}
    texts: dict[Part, str] = {}
    for override in overrides:
        if override.env_vars:
            raise PromptFault("context_overrides: env_vars change nothing here; override the files of the prompt")
        for path, text in override.file_artifacts.items():
            if path not in parts:
                raise PromptFault(
                    f"context_overrides: {path[:128]!r} is no file of this environment; known: {', '.join(parts)}"
                )
            texts[parts[path]] = text
    return texts


def prompt_with(prompt: Prompt, texts: Mapping[Part, str], policy: Policy) -> Prompt:
    """Return `prompt` with `texts` and the sampling of `policy` in it.

    Raises:
        PromptFault: a text does not fit its part.
    """
    if long := [part for part, text in texts.items() if len(text) > _MAX_PART]:
        raise PromptFault(f"prompt: {long[0]} has more than {_MAX_PART} characters")
    settings = prompt.settings
    overrides = {"temperature": policy.temperature, "max_tokens": policy.max_tokens}
    changed = {name: value for name, value in overrides.items() if value is not None}
    sampling = settings.sampling.model_copy(update=changed)
    if not texts and sampling == settings.sampling:
        return prompt
    filled = {part: text for part, text in texts.items() if part != "system"}
    required = {"state": settings.state, "user": settings.user, "failed": settings.failed, "kept": settings.kept}
    try:
        PromptSettings.model_validate({**required, **filled})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise PromptFault(f"prompt: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    # nothing is filled into the first message, so that its `$names` are words like others: it is not looked at
    changed_prompt = copy(prompt)
    changed_prompt.settings = settings.model_copy(
        update={**{str(part): text for part, text in texts.items()}, "sampling": sampling}
    )
    return changed_prompt
