"""The contract between whoever wants a rollout and whatever runs one: a task app, the Harbor service, an executor.

A reward is a number or nothing. Nothing, with a cause, is what every failure of a machine comes to; it is never 0. Whether
a number counts is `reward_valid`: it does not where the cause of an early end is the machine's (`counts`).
"""

import math
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

MAX_SEED = 2**31 - 1
MAX_TIMEOUT_S = 86_400
MAX_TASKS = 100_000


class SuccessStatus(StrEnum):
    """How a rollout ended; it says nothing of the reward, and is never worked out from it."""

    SUCCESS = "success"
    TIMEOUT = "timeout"
    NETWORK_ERROR = "network_error"
    APPLY_FAILED = "apply_failed"
    RUNTIME_ERROR = "runtime_error"
    FAILURE = "failure"


class FailureCause(StrEnum):
    """Whose failure it is; the names are those of Harbor 0.25.0 (`harbor/models/trial/error_policy.py`)."""

    SANDBOX_FAILED = "sandbox_failed"
    """The box, its build, its memory: the machine's."""
    MODEL_PROVIDER_FAILED = "model_provider_failed"
    """The language model was not to be had, or refused for its limits."""
    HARBOR_FAILED = "harbor_failed"
    """The service: a worker that was lost, a result that was not kept."""
    UNCLASSIFIED = "unclassified"
    """The entrypoint failed, and nobody knows why."""
    AGENT_EXHAUSTED_BUDGET = "agent_exhausted_budget"
    """The agent used up its time or its turns: what it left is graded."""
    AGENT_REFUSED_TASK = "agent_refused_task"
    VERIFIER_FAILED = "verifier_failed"
    """What came of the attempt could not be graded."""
    CANCELLED = "cancelled"


OF_THE_AGENT = frozenset({FailureCause.AGENT_EXHAUSTED_BUDGET, FailureCause.AGENT_REFUSED_TASK})
TRIED_AGAIN = frozenset({FailureCause.SANDBOX_FAILED, FailureCause.MODEL_PROVIDER_FAILED, FailureCause.HARBOR_FAILED})
"""Causes after which another attempt may end otherwise."""


def counts(reward: float | None, cause: FailureCause | None) -> bool:
    """Return whether a reward says something of the agent."""
    return reward is not None and (cause is None or cause in OF_THE_AGENT)


_NO_ZERO = r"^[^\x00]*$"
Text = Annotated[str, Field(pattern=_NO_ZERO)]
"""A text that every database takes."""


def _with_text_names(values: dict[str, str]) -> dict[str, str]:
    if any("\0" in name for name in values):
        raise ValueError("one of its names holds a zero byte")
    return values


Texts = Annotated[
    dict[str, Text],
    AfterValidator(_with_text_names),
    # pydantic says of a pattern of names that others are as good
    Field(json_schema_extra={"propertyNames": {"pattern": _NO_ZERO}}),
]
"""Texts by name."""
NotTaken = Annotated[Text | None, WithJsonSchema({"type": "null"})]
"""Says in the document that there may be none; one that is sent is refused with the reason."""


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = BeforeValidator(_whole)
"""Takes 3.0 for 3, as JSON Schema does, where neither texts nor truth values are numbers."""
Seed = Annotated[int, Field(ge=0, le=MAX_SEED, strict=True), Whole]
Finite = Annotated[float, Field(allow_inf_nan=False)]
DeploymentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@+-]{0,127}$")]
"""A name that can stand in an address."""


class Open(BaseModel):
    """A message that may hold more than is named here; the rest is kept and passed on."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


class RolloutEnv(Open):
    """Which environment, and which of its tasks."""

    env_id: Text | None = None
    env_name: Text | None = None
    config: dict[str, Any] = {}
    seed: Seed | None = None


class RolloutPolicy(Open):
    """Who acts: a model, an agent, its prompt."""

    policy_id: Text | None = None
    policy_name: Text | None = None
    config: dict[str, Any] = {}


class RolloutSafety(Open):
    """Bounds of one rollout."""

    max_time_s: float = Field(default=float(MAX_TIMEOUT_S), gt=0, le=MAX_TIMEOUT_S)


class ContextOverride(BaseModel):
    """Files and variables that take the place of those of the deployment, for one rollout."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)

    file_artifacts: Texts = {}
    """Text by path, relative to the working folder."""
    env_vars: Texts = {}
    preflight_script: NotTaken = None
    """Refused: nothing runs before the entrypoint but what is in the deployment."""
    mutation_type: Text | None = None
    override_id: Text | None = None


class RolloutRequest(Open):
    """What a rollout is asked for, of a task app and of a deployment alike."""

    trace_correlation_id: Text = Field(min_length=1, max_length=255)
    """Names this rollout: the same one asked for again, with the same body, is the same rollout."""
    env: RolloutEnv = RolloutEnv()
    policy: RolloutPolicy = RolloutPolicy()
    on_done: Literal["reset", "terminate"] = "reset"
    safety: RolloutSafety = RolloutSafety()
    training_session_id: Text | None = None
    context_overrides: list[ContextOverride] = Field(default=[], max_length=64)
    override_bundle_id: Text | None = None

    @property
    def seed(self) -> int:
        """The seed that is asked for; 0 where none is named."""
        return 0 if self.env.seed is None else self.env.seed


class RewardInfo(Open):
    """What the verifier said."""

    outcome_reward: Finite | None
    """None where nothing is known of the attempt."""
    outcome_objectives: dict[str, Finite] = {}
    event_rewards: list[Finite] | None = None
    details: dict[str, Any] = {}

    @model_validator(mode="after")
    def _names_the_reward(self) -> Self:
        if self.outcome_reward is not None and not self.outcome_objectives:
            self.outcome_objectives = {"reward": self.outcome_reward}
        return self


class Artifact(Open):
    """Something a rollout left."""

    content: str | dict[str, Any]
    content_type: str = "text/plain"
    metadata: dict[str, Any] = {}


class RolloutResponse(Open):
    """How a rollout ended."""

    trace_correlation_id: str
    reward_info: RewardInfo
    success_status: SuccessStatus = SuccessStatus.SUCCESS
    status_detail: str | None = None
    failure_cause: FailureCause | None = None
    reward_valid: bool = False
    """Whether the reward counts; worked out, whatever is sent."""
    trace: dict[str, Any] | None = None
    inference_url: str | None = None
    artifact: list[Artifact] | None = None
    metadata: dict[str, Any] = {}

    @model_validator(mode="after")
    def _judges_the_reward(self) -> Self:
        self.reward_valid = counts(self.reward_info.outcome_reward, self.failure_cause)
        return self

    @classmethod
    def without_reward(
        cls,
        correlation_id: str,
        status: SuccessStatus,
        detail: str,
        cause: FailureCause = FailureCause.HARBOR_FAILED,
        rollout_id: str = "",
    ) -> Self:
        """Return the response to a rollout that says nothing of the agent."""
        return cls(
            trace_correlation_id=correlation_id,
            reward_info=RewardInfo(outcome_reward=None),
            success_status=status,
            failure_cause=cause,
            status_detail=detail,
            metadata={"rollout_id": rollout_id} if rollout_id else {},
        )

    @property
    def usage(self) -> dict[str, Any]:
        """What the task app says of the execution, in either of the two places where it may."""
        extra = (self.model_extra or {}).get("execution_metadata")
        return {**(extra if isinstance(extra, dict) else {}), **self.metadata}

    @property
    def cost_and_tokens(self) -> tuple[float | None, int | None]:
        """US dollars and tokens that it used; None where it does not say."""
        tokens = self.usage.get("tokens", self.usage.get("total_tokens"))
        is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
        return reward_of(self.usage.get("cost_usd")), tokens if is_count else None


class TaskDescription(Open):
    """What a task is called."""

    id: str
    name: str
    description: str | None = None
    version: str | None = None


class TaskInfo(Open):
    """One task, or all of them, as `/task_info` shows them."""

    task: TaskDescription
    dataset: dict[str, Any] = {}
    inference: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    task_metadata: dict[str, Any] = {}


def reward_of(value: Any) -> float | None:
    """Return `value` as a reward: a finite number (no text, no truth value), else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


RelativePath = Annotated[Text, Field(min_length=1, max_length=1024)]


class HarborLimits(BaseModel):
    """What one rollout may use. Both sides keep the ranges, the SDK and the service."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    timeout_s: Annotated[int, Whole] = Field(default=300, ge=30, le=MAX_TIMEOUT_S)
    cpu_cores: Annotated[int, Whole] = Field(default=2, ge=1, le=8)
    memory_mb: Annotated[int, Whole] = Field(default=4096, ge=512, le=32768)
    disk_mb: Annotated[int, Whole] = Field(default=10240, ge=1024, le=102400)


class TaskSeed(BaseModel):
    """Which task a seed stands for; a spec that gains tasks renumbers none."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True)

    seed: Seed
    task_id: Text = Field(min_length=1, max_length=256)
    agent_files: tuple[Text, ...] = Field(default=(), max_length=64)
    """Folders of the context whose content the first box starts with; all of the context where none is named."""
    verifier_files: tuple[Text, ...] = Field(default=(), max_length=64)
    """The same of the verifier's context."""
    metadata: dict[str, Any] = {}


class VerifierSettings(BaseModel):
    """How a second box, which the agent never saw, grades what the first one left."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    entrypoint: Text = Field(min_length=1, max_length=4096)
    """Run in the verifier's context, with the artifacts laid over it. Its result is `/logs/verifier/reward.json` (an object
    of finite numbers, which wins) or `/logs/verifier/reward.txt` (one number)."""
    artifacts: tuple[RelativePath, ...] = Field(default=(), max_length=256)
    """Files and folders of the first box's working folder that travel; nothing else does."""
    reward_key: Text = Field(default="reward", min_length=1, max_length=128)
    """Which number of the object is the reward; the others are objectives."""
    timeout_s: int = Field(default=300, ge=1, le=MAX_TIMEOUT_S)

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.artifacts)) < len(self.artifacts):
            raise ValueError("artifacts: names one of them twice")
        return self
