"""What we export as ATIF fits the format, as it is written down here and in the published package.

The models follow release 0.25.0 of https://github.com/harbor-framework/harbor (`src/harbor/models/trajectories`), as far as our
exports use the format: no pictures, no sounds, no subagents.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Annotated, Any, Literal, Self

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from graftline.astgrep.action import PatternAction
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.task import Task
from graftline.sandbox.actions.memory import MemorySandbox
from tests.unit.harbor.published import needs_harbor, published

Extra = dict[str, Any]
Count = Annotated[int, Field(ge=0)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())


class ToolCall(Part):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class ObservationResult(Part):
    source_call_id: str | None = None
    content: str


class Observation(Part):
    results: list[ObservationResult]


class Metrics(Part):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cost_usd: float | None = None
    extra: Extra


class Step(Part):
    step_id: int = Field(ge=1)
    source: Literal["system", "user", "agent"]
    message: str
    model_name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    llm_call_count: Count | None = None
    extra: Extra | None = None

    @model_validator(mode="after")
    def has_what_its_source_allows(self) -> Self:
        of_agents = {"model_name", "reasoning_content", "tool_calls", "metrics"}
        banned = of_agents if self.source != "agent" else {"metrics", "reasoning_content"}
        if (self.source != "agent" or self.llm_call_count == 0) and banned & self.model_fields_set:
            raise ValueError("says what only an agent, or a language model, can say")
        calls = {call.tool_call_id for call in self.tool_calls or ()}
        answers = self.observation.results if self.observation else []
        if any(answer.source_call_id not in {None, *calls} for answer in answers):
            raise ValueError("answers a tool call of another step")
        return self


class Agent(Part):
    name: str
    version: str
    model_name: str | None = None


class FinalMetrics(Part):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: Count


class Document(Part):
    schema_version: Literal["ATIF-v1.8"]
    session_id: str
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    final_metrics: FinalMetrics
    extra: Extra

    @model_validator(mode="after")
    def is_numbered(self) -> Self:
        if [step.step_id for step in self.steps] != [*range(1, len(self.steps) + 1)]:
            raise ValueError("steps count from 1")
        return self


@pytest.fixture
def exported(task_of: Callable[..., Task], reading: Callable[..., Any]) -> dict[str, Any]:
    """A document exported from an attempt of two steps, the first of them wrong."""
    actions = [PatternAction(pattern="none($A)", rewrite="x($A)"), PatternAction(pattern="old($A)", rewrite="x($A)")]
    return atif(collect(task_of("old('é')\n", "x('é')\n"), reading(actions), MemorySandbox(), RolloutConfig()))


def broken(document: dict[str, Any]) -> list[dict[str, Any]]:
    changes: list[tuple[str, Any]] = [
        ("reward", 1.0),
        ("llm_call_count", -1),
        ("step_id", 7),
        ("reasoning_content", "x"),
    ]
    documents = [deepcopy(document) for _ in changes]
    for copy, (key, value) in zip(documents, changes, strict=True):
        copy["steps"][1][key] = value
    return documents


def test_what_we_export_is_a_document(exported: dict[str, Any]) -> None:
    assert Document.model_validate(exported).model_dump(exclude_unset=True) == exported
    for document in broken(exported):
        with pytest.raises(ValidationError):
            Document.model_validate(document)


@needs_harbor
def test_the_published_models_agree(exported: dict[str, Any]) -> None:
    program = """
from pydantic import ValidationError
from harbor.models.trajectories import Trajectory
def is_valid(document):
    try:
        Trajectory.model_validate(document)
    except ValidationError:
        return False
    return True
print(json.dumps([is_valid(document) for document in given]))
"""
    assert published(program, [exported, *broken(exported)]) == [True, False, False, False, False]
