"""The messages between the service and whoever asks it. `harbor.contract` has what task apps share.

What is sent is read strictly, so that a typing error is no silent default. Of an answer, keys that are not known are left
alone, and what later services may say otherwise is a text, so that a newer service can be asked.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import HarborError
from graftline.harbor.contract import (
    MAX_TASKS,
    MAX_TIMEOUT_S,
    DeploymentName,
    FailureCause,
    Finite,
    HarborLimits,
    NotTaken,
    RolloutRequest,
    Seed,
    SuccessStatus,
    TaskSeed,
    Text,
    Texts,
    VerifierSettings,
    Whole,
)

MAX_INSTANCES = 100_000
"""Of one batch."""
MAX_PAGE = 1000
Name = Annotated[Text, Field(min_length=1, max_length=128)]
LongText = Annotated[Text, Field(max_length=1 << 20)]
Key = Annotated[Text, Field(min_length=1, max_length=255)]


class Message(BaseModel):
    """What is sent."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


AnswerT = TypeVar("AnswerT", bound="Answer")


class Answer(BaseModel):
    """What is answered."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def from_row(cls: type[AnswerT], row: Any, **more: Any) -> AnswerT:
        """Return what a row of the database says by the names of its columns, and `more`."""
        columns = row._mapping
        return cls.model_validate({name: columns[name] for name in cls.model_fields if name in columns} | more)


def read(model: type[AnswerT], content: Any, title: str) -> AnswerT:
    """Return `content`, the answer to what `title` names, as `model`.

    Raises:
        HarborError: it is something else; whoever answers is no Harbor service.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, fault["loc"])) or "all of it"
        raise HarborError(
            f"{title}: the answer is not that of a Harbor service ({key}: {fault['msg'].lower()}); check backend_url"
        ) from None


class Status(StrEnum):
    """Of a deployment and of an instance."""

    PENDING = "pending"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


class BuildStatus(StrEnum):
    """Of a build."""

    PENDING = "pending"
    BUILDING = "building"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RolloutStatus(StrEnum):
    """Of a rollout: `completed` whatever came of it, `failed` where nothing is known of the attempt."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobStatus(StrEnum):
    """Of a job. `completed_with_errors`: too few seeds have a reward that counts."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether nothing changes any more."""
        return self not in OPEN_JOBS


OPEN_ROLLOUTS = (RolloutStatus.QUEUED, RolloutStatus.RUNNING)
OPEN_JOBS = (JobStatus.PENDING, JobStatus.RUNNING)


class Verifier(VerifierSettings):
    """A verifier with its context."""

    context_tar_base64: str = Field(min_length=1)


class DeploymentCreate(Message):
    """A context, and how to run it. What is the same as a version that is there is that version; else it is a new one."""

    name: DeploymentName
    description: LongText | None = None
    dockerfile: LongText | None = None
    """Text; without one, the file `Dockerfile` of the context."""
    context_tar_base64: str = Field(min_length=1)
    """A tar.gz."""
    context_url: None = None
    """The service fetches nothing: what clients may send here is refused."""
    entrypoint: Text = Field(
        default="run_rollout --input /tmp/rollout.json --output /tmp/result.json", min_length=1, max_length=4096
    )
    entrypoint_mode: Literal["file", "stdio", "command"] = "file"
    """`command` is another name of `stdio`."""
    limits: HarborLimits = HarborLimits()
    env_vars: Texts = Field(default={}, max_length=256)
    metadata: dict[str, Any] = {}
    tasks: list[TaskSeed] = Field(default=[], max_length=MAX_TASKS)
    """Which task every seed stands for. Without it every seed is its own task."""
    verifier: Verifier | None = None
    auto_build: bool = True


class BuildRequest(Message):
    """A build of a deployment, of its own context. Another context is another deployment: refused."""

    dockerfile: LongText | None = None
    context_tar_base64: str | None = None
    context_url: None = None
    force: bool = False


class HarborBuild(Answer):
    """One build of a deployment."""

    id: str = ""
    build_id: str = ""
    status: BuildStatus | str = ""
    snapshot_id: str | None = None
    error_message: str | None = None
    log_tail: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None


class DeploymentState(Answer):
    """What a version of a deployment is at."""

    id: str
    name: str
    version: int = 1
    status: Status | str
    snapshot_id: str | None = None
    error: str | None = None


class Deployment(DeploymentState):
    """One version of a deployment."""

    digest: str = ""
    """SHA-256 over all that decides what a rollout does: contexts, entrypoint, limits, variables, tasks, verifier."""
    latest_build: HarborBuild | None = None
    build_id: str | None = None
    description: str | None = None
    entrypoint: str = ""
    entrypoint_mode: str = ""
    limits: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    created_at: datetime | None = None


class HarborDeploymentStatus(DeploymentState):
    """What a deployment waits for."""

    builds: tuple[HarborBuild, ...] = ()
    """The newest first."""


class DeploymentPage(Answer):
    """Deployments, newest first."""

    deployments: tuple[Deployment, ...]
    total: int = 0
    next_cursor: str | None = None


class InstanceBatch(Message):
    """Seeds to have instances of: `count` of them from `start_seed`, or `seeds`."""

    count: Annotated[int, Field(ge=1, le=MAX_INSTANCES, strict=True), Whole] | None = None
    start_seed: Seed = 0
    seeds: list[Seed] | None = Field(default=None, min_length=1, max_length=MAX_INSTANCES)


class HarborInstance(Answer):
    """One seed of a deployment."""

    id: str
    seed: int
    status: Status | str
    task_id: str = ""
    deployment_id: str = ""
    error: str | None = None


class InstancePage(Answer):
    """Instances by seed, with counts of all of the deployment."""

    total: int = 0
    ready_count: int = 0
    building_count: int = 0
    failed_count: int = 0
    instances: tuple[HarborInstance, ...] = ()
    """Of a batch left out where there are more than a page of them."""
    next_cursor: str | None = None


class InstanceBatchAnswer(InstancePage):
    """What a batch came to."""

    created: int = 0
    """Of its instances, those that were not there before."""


class HarborBuiltInstances(Answer):
    """What `build-all` came to."""

    total_instances: int
    ready_count: int


class DeploymentRollout(RolloutRequest):
    """The body of `/{deployment}/rollout`."""

    run_id: Text | None = Field(default=None, max_length=255)
    override_bundle_id: NotTaken = None


class RolloutCreate(DeploymentRollout):
    """A rollout as a resource of its own."""

    deployment_id: Name


class LegacyRollout(Message):
    """The body of `POST /api/harbor/rollout`, as the first clients send it."""

    model_config = ConfigDict(extra="allow")

    deployment_id: Name
    trace_correlation_id: Key
    seed: Seed = 0
    prompt_template: dict[str, Any] = {}
    inference_url: Text | None = None
    limits: dict[str, Any] = {}
    params: dict[str, Any] = {}


class Outcome(Answer):
    """What came of an attempt, of a rollout, or of a seed."""

    success_status: SuccessStatus | str | None = None
    failure_cause: FailureCause | str | None = None
    error: str | None = None
    reward: Finite | None = None
    cost_usd: float | None = None
    tokens: int | None = None


class AttemptAnswer(Outcome):
    """One attempt at a rollout; all of them are kept."""

    number: int
    executor: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    agent_s: float | None = None
    verify_s: float | None = None
    log_tail: str = ""


class RolloutOutcome(Outcome):
    """What came of a rollout."""

    rollout_id: str = ""
    trace_correlation_id: str = ""
    status: RolloutStatus | str
    reward_valid: bool = False


class RolloutAnswer(RolloutOutcome):
    """A rollout as a resource."""

    deployment_id: str = ""
    instance_id: str | None = None
    job_id: str | None = None
    seed: int = 0
    task_id: str = ""
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: tuple[AttemptAnswer, ...] = ()
    lock: dict[str, Any] = {}
    """What it ran with: snapshot, digests, limits as requested and as enforced, executor, host."""
    response: dict[str, Any] | None = None
    """The synchronous shape, a `RolloutResponse`, once it has ended."""

    @property
    def seconds(self) -> float | None:
        """From the first attempt to the end, without the time in the queue."""
        if self.started_at is None or self.finished_at is None:
            return None
        return (self.finished_at - self.started_at).total_seconds()


class RolloutPage(Answer):
    """Rollouts, newest first."""

    rollouts: tuple[RolloutAnswer, ...]
    next_cursor: str | None = None


class ModelCalls(Answer):
    """What an attempt asked of its model, a row for each call: `model_proxy.calls` makes whole calls of them."""

    calls: tuple[dict[str, Any], ...] = ()


class JobAnswer(Answer):
    """A job."""

    job_id: str
    status: JobStatus
    created_at: datetime | None = None
    finished_at: datetime | None = None
    error: str | None = None
    num_completed: int = 0
    num_total: int = 0


class Budget(Message):
    """What a job may use; what is reserved counts until it is known."""

    max_rollouts: int | None = Field(default=None, ge=1, le=10_000_000)
    max_usd: Finite | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1, le=2**53)


class EvalJobCreate(Message):
    """An evaluation: every seed once, at a deployment of this service."""

    task_app_url: Text | None = Field(default=None, max_length=2048)
    """`…/api/harbor/deployments/<id>`; other task apps are evaluated by the SDK itself, without the service."""
    task_app_api_key: Text | None = Field(default=None, max_length=4096, repr=False)
    """Not used and not kept: some clients send it."""
    deployment_id: Name | None = None
    app_id: Name | None = None
    env_name: Name | None = None
    seeds: list[Seed] = Field(min_length=1, max_length=MAX_INSTANCES)
    policy: dict[str, Any] = Field(default={})
    env_config: dict[str, Any] = Field(default={})
    verifier_config: dict[str, Any] = Field(default={})
    max_concurrent: int = Field(default=20, ge=1, le=1000)
    timeout: float = Field(default=600.0, gt=0, le=MAX_TIMEOUT_S)
    """Seconds, of each rollout."""
    budget: Budget = Budget()
    min_coverage: float = Field(default=0.95, ge=0, le=1)
    """Share of seeds with a valid reward below which the job is `completed_with_errors`."""
    idempotency_key: Key | None = None


class SeedResult(RolloutOutcome):
    """What came of one seed."""

    seed: int
    latency_s: float | None = None


class Summary(Answer):
    """What the results of an evaluation come to."""

    mean_reward: Finite | None = None
    """Over rewards that count; None where there is none."""
    interval: tuple[Finite, Finite] | None = None
    """95 % of the mean, by bootstrap over seeds; None for fewer than two."""
    n_valid: int = 0
    n_infra: int = 0
    """Ended, without a reward that counts."""
    n_total: int = 0
    coverage: float = 0.0
    """Share of all seeds, ended or not, with a reward that counts."""
    total_cost_usd: float | None = None
    """None where one did not say: what is not known is not 0."""
    total_tokens: int | None = None


class EvalJobAnswer(JobAnswer):
    """An evaluation."""

    summary: Summary = Summary()


class EvalResultsAnswer(EvalJobAnswer):
    """An evaluation with what came of every seed."""

    results: tuple[SeedResult, ...] = ()


class PromptConfig(Message):
    """The configuration of an optimization; the SDK has checked it."""

    prompt_learning: dict[str, Any]


class PromptJobCreate(Message):
    """A prompt optimization, as `PromptLearningJob` sends it."""

    algorithm: Literal["gepa"] = "gepa"
    auto_start: bool = True
    config_body: PromptConfig
    idempotency_key: Key | None = None


class PromptJobAnswer(JobAnswer):
    """A prompt optimization; what is completed are rollouts, and their total is 0 where nothing bounds them."""

    algorithm: str = ""
    mean_reward: Finite | None = None
    """Of the best prompt, over the seeds that it was judged on."""
    best_score: Finite | None = None
    """Of the same, over the seeds that all prompts are compared on."""
    best_prompt: dict[str, Any] | None = None
    """Text by part."""


class PromptResultsAnswer(PromptJobAnswer):
    """A prompt optimization with all prompts that it came to."""

    outcome: dict[str, Any] | None = None
