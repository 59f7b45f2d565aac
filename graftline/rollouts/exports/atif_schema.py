"""The Agent Trajectory Interchange Format, ATIF-v1.0 to v1.8, as models, and whether a document is one.

After release 0.25.0 of https://github.com/harbor-framework/harbor (`src/harbor/models/trajectories`). A key that is not of
the format is a fault everywhere but in `extra`, `arguments` and `tool_definitions`. Deviation: a number that JSON cannot
say (NaN) is a fault, and so is a document of more than `MAX_BYTES`.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from graftline.core.errors import DataError

MAX_BYTES = 256 << 20
_MOST_FAULTS = 20
_OF_AGENTS = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_OF_MODELS = ("metrics", "reasoning_content")
_AUDIO_NAMES = {
    "audio/mp3": "audio/mpeg",
    "audio/mpga": "audio/mpeg",
    "audio/x-mpeg": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-aac": "audio/aac",
    "audio/x-flac": "audio/flac",
    "audio/x-aiff": "audio/aiff",
}
"""Names that providers use instead of the registered ones."""

Version = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]
Extra = dict[str, Any] | None
Count = Annotated[int, Field(ge=0)]


def _is_time(value: str) -> str:
    datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value


def _registered(value: Any) -> Any:
    plain = value.strip().lower() if isinstance(value, str) else value
    return _AUDIO_NAMES.get(plain, plain) if isinstance(plain, str) else plain


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


class ImageSource(_Part):
    """Where an image is."""

    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class AudioSource(_Part):
    """Where a sound is."""

    media_type: Annotated[
        Literal[
            "audio/wav", "audio/mpeg", "audio/mp4", "audio/aac", "audio/ogg", "audio/flac", "audio/webm", "audio/aiff"
        ],
        BeforeValidator(_registered),
    ]
    path: str
    duration_sec: float | None = Field(default=None, ge=0)


class ContentPart(_Part):
    """A piece of a message that is not text alone."""

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: ImageSource | AudioSource | None = None

    @model_validator(mode="after")
    def _holds_what_it_says(self) -> Self:
        if self.type == "text":
            if self.text is None or self.source is not None:
                raise ValueError("a part of type 'text' has a text and no source")
        elif self.text is not None or not isinstance(self.source, ImageSource if self.type == "image" else AudioSource):
            raise ValueError(f"a part of type {self.type!r} has no text and a source of that type")
        return self


Content = str | tuple[ContentPart, ...]


class SubagentRef(_Part):
    """Where the trajectory of another agent is, to which something was delegated."""

    trajectory_id: str | None = None
    session_id: str | None = None
    """Names a run, and is no key."""
    trajectory_path: str | None = None
    extra: Extra = None

    @model_validator(mode="after")
    def _leads_somewhere(self) -> Self:
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("names neither trajectory_id nor trajectory_path")
        return self


class ToolCall(_Part):
    """One action."""

    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]
    extra: Extra = None


class ObservationResult(_Part):
    """One answer."""

    source_call_id: str | None = None
    """The tool call of the same step that it answers."""
    content: Content | None = None
    subagent_trajectory_ref: tuple[SubagentRef, ...] | None = None
    extra: Extra = None


class Observation(_Part):
    """What the environment answered."""

    results: tuple[ObservationResult, ...]


class Metrics(_Part):
    """What one call of a model came to."""

    prompt_tokens: int | None = None
    """Cached ones included."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    completion_token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    extra: Extra = None


class Step(_Part):
    """One turn."""

    step_id: int = Field(ge=1)
    timestamp: Annotated[str, AfterValidator(_is_time)] | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: Content
    reasoning_content: str | None = None
    tool_calls: tuple[ToolCall, ...] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: Count | None = None
    """0 on a step of the agent: no model was asked."""
    extra: Extra = None

    @model_validator(mode="after")
    def _fits_its_source(self) -> Self:
        for name in _OF_AGENTS if self.source != "agent" else ():
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for source 'agent', not {self.source!r}")
        for name in _OF_MODELS if self.source == "agent" and self.llm_call_count == 0 else ():
            if getattr(self, name) is not None:
                raise ValueError(f"{name} must be absent where llm_call_count is 0")
        return self

    @model_validator(mode="after")
    def _answers_its_own_calls(self) -> Self:
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        for result in self.observation.results if self.observation else ():
            if result.source_call_id is not None and result.source_call_id not in calls:
                raise ValueError(f"source_call_id {result.source_call_id!r} is no tool call of this step")
        return self


class AtifAgent(_Part):
    """Who acts."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: tuple[dict[str, Any], ...] | None = None
    extra: Extra = None


class FinalMetrics(_Part):
    """What all steps came to."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: Count | None = None
    extra: Extra = None


class AtifDocument(_Part):
    """A whole trajectory."""

    schema_version: Version
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: AtifAgent
    steps: tuple[Step, ...] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Extra = None
    subagent_trajectories: tuple["AtifDocument", ...] | None = None

    @model_validator(mode="after")
    def _is_numbered(self) -> Self:
        for number, step in enumerate(self.steps, 1):
            if step.step_id != number:
                raise ValueError(
                    f"steps.{number - 1}.step_id: expected {number}, for steps count from 1, got {step.step_id}"
                )
        return self

    @model_validator(mode="after")
    def _tells_subagents_apart(self) -> Self:
        ids = [inner.trajectory_id for inner in self.subagent_trajectories or ()]
        if None in ids or len(set(ids)) < len(ids):
            raise ValueError("subagent_trajectories: every one needs a trajectory_id of its own")
        return self

    def document(self) -> dict[str, Any]:
        """Return the document, with the keys that were given."""
        return self.model_dump(mode="json", exclude_unset=True)


def check_atif(document: Any, source: str = "ATIF") -> AtifDocument:
    """Return a document of JSON as the format has it.

    Args:
        document: Text, bytes, or the value of JSON that they stand for.
        source: Stands before every fault.

    Raises:
        DataError: it is none; one line for each of the first faults.
    """
    try:
        raw = document if isinstance(document, str | bytes) else json.dumps(document, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: is no value of JSON ({error})") from None
    if len(raw) > MAX_BYTES:
        raise DataError(f"{source}: has more than {MAX_BYTES} bytes; split the trajectory")
    try:
        return AtifDocument.model_validate_json(raw)
    except ValidationError as error:
        raise DataError("\n".join(f"{source}: {fault}" for fault in _faults(error))) from None


def _faults(error: ValidationError) -> Iterator[str]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    for fault in found[:_MOST_FAULTS]:
        where = ".".join(map(str, fault["loc"])) or "(whole document)"
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "is no key of the format; put what is yours below extra"
        yield f"{where}: {message[0].lower()}{message[1:]}"
    if len(found) > _MOST_FAULTS:
        yield f"and {len(found) - _MOST_FAULTS} more faults"
