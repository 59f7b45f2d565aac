"""What the SDK reads of the service's answers. Keys it does not know are left alone, so that a newer service can be asked."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.core.errors import HarborError
from graftline.harbor.contract import Finite

AnswerT = TypeVar("AnswerT", bound="Answer")


class Answer(BaseModel):
    """The base of what is read."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


class HarborBuild(Answer):
    """One build of a deployment."""

    id: str = ""
    build_id: str = ""
    status: str = ""
    snapshot_id: str | None = None
    error_message: str | None = None
    log_tail: str = ""


class HarborDeploymentStatus(Answer):
    """What a deployment waits for: `pending`, `building`, `ready`, `failed`."""

    id: str
    name: str
    status: str
    version: int = 1
    snapshot_id: str | None = None
    error: str | None = None
    builds: tuple[HarborBuild, ...] = ()
    """The newest first."""


class Deployment(HarborDeploymentStatus):
    """One version of a deployment."""

    build_id: str | None = None
    latest_build: HarborBuild | None = None


class DeploymentPage(Answer):
    """Deployments, newest first."""

    deployments: tuple[Deployment, ...]


class HarborInstance(Answer):
    """One seed of a deployment."""

    id: str
    seed: int
    status: str
    task_id: str = ""
    deployment_id: str = ""
    error: str | None = None


class InstancePage(Answer):
    """Instances by seed, or what a batch of them came to."""

    instances: tuple[HarborInstance, ...] = ()
    total: int = 0
    ready_count: int = 0
    building_count: int = 0
    failed_count: int = 0
    next_cursor: str | None = None


class HarborBuiltInstances(Answer):
    """What `build-all` came to."""

    total_instances: int
    ready_count: int


class RolloutAnswer(Answer):
    """A rollout as a resource."""

    rollout_id: str
    status: str
    deployment_id: str = ""
    instance_id: str | None = None
    reward: Finite | None = None
    success_status: str | None = None
    failure_cause: str | None = None
    error: str | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    attempts: tuple[dict[str, Any], ...] = ()
    response: dict[str, Any] | None = None


def read(model: type[AnswerT], content: Any, title: str) -> AnswerT:
    """Return `content`, the answer to `what`, as `model`.

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
