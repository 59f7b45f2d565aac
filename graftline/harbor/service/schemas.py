"""The messages of the service, but for those of jobs. `harbor.contract` has what task apps share."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row

from graftline.harbor.build_spec import MAX_TASKS, TaskSeed
from graftline.harbor.contract import (
    FailureCause,
    Finite,
    HarborLimits,
    NotTaken,
    RolloutRequest,
    RolloutResponse,
    Seed,
    SuccessStatus,
    Text,
    Texts,
    VerifierSettings,
    Whole,
)

MAX_INSTANCES = 100_000
"""Of one batch."""
MAX_PAGE = 1000
Name = Annotated[Text, Field(min_length=1, max_length=128)]
DeploymentName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._:@+-]{0,127}$")]
"""A name that can stand in an address."""
LongText = Annotated[Text, Field(max_length=1 << 20)]
Key = Annotated[Text, Field(min_length=1, max_length=255)]

MessageT = TypeVar("MessageT", bound="Message")


class Message(BaseModel):
    """What is sent or answered; unknown keys are refused, so that a typing error is not a silent default."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def from_row(cls: type[MessageT], row: Row[Any], **more: Any) -> MessageT:
        """Return what a row says by the names of the columns, and `more`."""
        columns = row._mapping
        return cls.model_validate({name: columns[name] for name in cls.model_fields if name in columns} | more)


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
    """Of a job."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


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


class BuildView(Message):
    """One build."""

    id: str
    build_id: str
    status: BuildStatus
    snapshot_id: str | None = None
    error_message: str | None = None
    log_tail: str = ""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class DeploymentState(Message):
    """What a version of a deployment is at."""

    id: str
    name: str
    version: int
    status: Status
    snapshot_id: str | None = None
    error: str | None = None


class DeploymentView(DeploymentState):
    """One version of a deployment."""

    digest: str
    """SHA-256 over all that decides what a rollout does: contexts, entrypoint, limits, variables, tasks, verifier."""
    latest_build: BuildView | None = None
    build_id: str | None = None
    description: str | None = None
    entrypoint: str
    entrypoint_mode: str
    limits: HarborLimits
    metadata: dict[str, Any] = {}
    created_at: datetime


class DeploymentStatusView(DeploymentState):
    """What a deployment waits for."""

    builds: list[BuildView] = []


class DeploymentPage(Message):
    """Deployments, newest first."""

    deployments: list[DeploymentView]
    total: int
    next_cursor: str | None = None


class InstanceBatch(Message):
    """Seeds to have instances of: `count` of them from `start_seed`, or `seeds`."""

    count: Annotated[int, Field(ge=1, le=MAX_INSTANCES, strict=True), Whole] | None = None
    start_seed: Seed = 0
    seeds: list[Seed] | None = Field(default=None, min_length=1, max_length=MAX_INSTANCES)


class InstanceView(Message):
    """One seed of a deployment."""

    id: str
    deployment_id: str
    seed: int
    task_id: str
    status: Status
    error: str | None = None


class InstanceCounts(Message):
    """Of all instances of a deployment."""

    total: int
    ready_count: int
    building_count: int
    failed_count: int


class BatchView(InstanceCounts):
    """What a batch came to."""

    created: int
    """Of these instances, those that were not there before."""
    instances: list[InstanceView] = []
    """Those of the batch; left out where there are more than a page of them."""


class InstancePage(InstanceCounts):
    """Instances, by seed."""

    instances: list[InstanceView]
    next_cursor: str | None = None


class BuildAllView(Message):
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


class OutcomeView(Message):
    """What came of an attempt, of a rollout, or of a seed."""

    success_status: SuccessStatus | None = None
    failure_cause: FailureCause | None = None
    error: str | None = None
    reward: Finite | None = None
    cost_usd: float | None = None
    tokens: int | None = None


class AttemptView(OutcomeView):
    """One attempt at a rollout; all of them are kept."""

    number: int
    executor: str
    started_at: datetime
    finished_at: datetime | None = None
    agent_s: float | None = None
    verify_s: float | None = None
    log_tail: str = ""


class RolloutOutcome(OutcomeView):
    """What came of a rollout."""

    rollout_id: str
    trace_correlation_id: str
    seed: int
    status: RolloutStatus
    reward_valid: bool = False


class RolloutView(RolloutOutcome):
    """A rollout."""

    deployment_id: str
    instance_id: str | None = None
    job_id: str | None = None
    task_id: str
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    attempts: list[AttemptView] = []
    lock: dict[str, Any] = {}
    """What it ran with: snapshot, digests, limits as requested and as enforced, executor, host."""
    response: RolloutResponse | None = None
    """The synchronous shape, once it has ended."""


class RolloutPage(Message):
    """Rollouts, newest first."""

    rollouts: list[RolloutView]
    next_cursor: str | None = None


class JobView(Message):
    """A job."""

    job_id: str
    status: JobStatus
    created_at: datetime
    finished_at: datetime | None = None
    error: str | None = None
