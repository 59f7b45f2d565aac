"""What the SDK reads of the service's answers. Keys it does not know are left alone, so that a newer service can be asked."""

import json
import os
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.core.errors import HarborError
from graftline.harbor.contract import Finite

_MOST_QUOTED = 2000
"""Characters of a refusal."""
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


def decode_answer(content: bytes, title: str) -> Any:
    """Return the JSON of an answer, None where it is empty.

    Raises:
        HarborError: it is not JSON; `title` stands before that.
    """
    if not content:
        return None
    try:
        # NaN and its like are no JSON, and no reward
        return json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        raise HarborError(f"{title}: the answer is not JSON; check backend_url") from None


def parse_refusal(content: bytes) -> tuple[str, str, dict[str, Any]]:
    """Return the code, the sentence and the details of a refusal, whoever wrote it."""
    try:
        refusal = json.loads(content)
    except (ValueError, RecursionError):
        refusal = content.decode("utf-8", "replace").strip()
    if isinstance(refusal, dict):
        refusal = refusal.get("error", refusal.get("detail", refusal))
    if not isinstance(refusal, dict):
        text = refusal if isinstance(refusal, str) else json.dumps(refusal)
        return "", text[:_MOST_QUOTED] or "nothing", {}
    details, message = refusal.get("details"), refusal.get("message")
    text = message if isinstance(message, str) else json.dumps(refusal)
    return str(refusal.get("code", "")), text[:_MOST_QUOTED], details if isinstance(details, dict) else {}


def status_line(status: int) -> str:
    """Return a status with its phrase."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def system_reason(error: BaseException | None) -> str:
    """Return what the system says of a connection that failed; httpx says that it failed."""
    reason = str(error) or type(error).__name__
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
        error = error.__cause__ or error.__context__
    return reason
