"""The task app: an environment behind the routes that evaluation and prompt optimization call.

Everything but `/` and the OpenAPI document needs a key (`accepted_keys`). How a rollout ends is always an answer of 200
(`localapi.rollouts`); 404 and 422 say that the request cannot be meant.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import from_json

from graftline import __version__
from graftline.core.errors import ConfigError
from graftline.harbor.contract import MAX_SEED, MAX_TIMEOUT_S, RolloutRequest, RolloutResponse, TaskInfo
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.rollouts import Rollouts, call
from graftline.harbor.refusal import ProblemAnswer, RequestError
from graftline.harbor.web import ERRORS, SCHEMAS, RequestGate, answer_error, describe, invalid_request

KEY_VARIABLE = "ENVIRONMENT_API_KEY"
ALIASES_VARIABLE = "ENVIRONMENT_API_KEY_ALIASES"
"""Further keys, commas between them: while a key is changed, the old and the new one count."""
MAX_BODY_BYTES = 8 << 20
_MOST_SEEDS = 1000
_PUBLIC = frozenset({"/", "/openapi.json", "/docs"})
_PROBLEMS = {
    401: "The key is missing or wrong.",
    404: "No task stands for a seed.",
    413: f"The body has more than {MAX_BODY_BYTES} bytes.",
    422: "The request does not fit.",
    503: "The task app needs a key and has none.",
}
Seeds = Annotated[
    list[Annotated[int, Query(ge=0, le=MAX_SEED)]],
    Query(default_factory=list, max_length=_MOST_SEEDS, description="Repeated for several."),
]


class Health(BaseModel):
    """Of a task app that answers."""

    status: str = "ok"
    healthy: bool = True
    service: str
    """Its `app_id`."""


class Done(BaseModel):
    """Of a caller that is done: nothing is held between rollouts, so that there is nothing to let go of."""

    ok: bool = True
    service: str


class Service(BaseModel):
    """Which task app answers."""

    app_id: str
    name: str
    description: str
    execution_backend: str
    task: dict[str, Any]
    version: str = __version__


class Info(BaseModel):
    """What all tasks have in common."""

    service: Service
    dataset: dict[str, Any] = {}
    inference: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    task_metadata: dict[str, Any] = {}


class Taskset(BaseModel):
    """All tasks together."""

    taskset: dict[str, Any]


def create_local_api(config: LocalAPIConfig, environment: Mapping[str, str] = os.environ) -> FastAPI:
    """Return the app of `config`; its keys are looked up in `environment` whenever a request comes.

    Raises:
        ConfigError: it has no way to do rollouts.
    """
    keys = partial(accepted_keys, config.api_key, environment) if config.require_api_key else None
    app = FastAPI(
        title=config.name,
        description=config.description,
        version=__version__,
        exception_handlers=dict.fromkeys(ERRORS, answer_error),
        redoc_url=None,
    )
    app.add_middleware(RequestGate, keys=keys, most_bytes=MAX_BODY_BYTES, public=_PUBLIC)
    app.include_router(_routes(config, _rollouts(config)))
    describe(app, _PUBLIC, RolloutRequest)
    return app


def accepted_keys(own: SecretStr | None, environment: Mapping[str, str]) -> list[str]:
    """Return the keys of one task app: its own, and those of the environment.

    Raises:
        RequestError: there is none.
    """
    aliases = environment.get(ALIASES_VARIABLE, "").split(",")
    texts = [own.get_secret_value() if own else "", environment.get(KEY_VARIABLE, ""), *aliases]
    if not (keys := [text.strip() for text in texts if text.strip()]):
        raise RequestError(
            "no_key",
            f"this task app needs a key and has none; set {KEY_VARIABLE} where it runs, give LocalAPIConfig an"
            " api_key, or, where nobody else can reach it, require_api_key=False",
        )
    return keys


def _routes(config: LocalAPIConfig, rollouts: Rollouts) -> APIRouter:
    router = APIRouter()
    guarded = _problems(401, 503) if config.require_api_key else {}

    @router.get("/", tags=["about"], summary="Whether it answers")
    @router.head("/", tags=["about"], summary="Whether it answers")
    @router.get("/health", tags=["about"], summary="Whether it answers, to who has the key", responses=guarded)
    async def health() -> Health:
        return Health(service=config.app_id)

    @router.post("/done", tags=["rollouts"], summary="No more rollouts are wanted", responses=guarded)
    async def done() -> Done:
        return Done(service=config.app_id)

    @router.get("/info", tags=["about"], summary="What all tasks have in common", responses=guarded)
    async def info() -> Info:
        about = TaskInfo.model_validate(
            config.base_task_info
            or {"task": {"id": config.app_id, "name": config.name, "description": config.description}}
        )
        return Info(
            service=Service(
                app_id=config.app_id,
                name=config.name,
                description=config.description,
                execution_backend=config.execution_backend,
                task=about.task.model_dump(mode="json"),
            ),
            **about.model_dump(mode="json", include={"dataset", "inference", "limits", "task_metadata"}),
        )

    @router.get(
        "/task_info",
        tags=["tasks"],
        summary="All tasks together, or those of seeds",
        description="Without a seed the taskset; of one seed its task; of several a list of theirs, in their order.",
        responses={**guarded, **_problems(404, 422)},
    )
    async def task_info(seed: Seeds, seeds: Seeds) -> Taskset | TaskInfo | list[TaskInfo]:
        requested = [*seed, *seeds]
        if not requested:
            own = {"id": config.app_id, "name": config.name, "description": config.description}
            provide = config.provide_taskset_description
            return Taskset(taskset=own if provide is None else dict(await call(provide)))
        provider = config.provide_task_instances or config.instance_provider
        if provider is None:
            raise RequestError("no_tasks", "this task app does not say what its seeds stand for")
        infos: list[TaskInfo] = await call(partial(_list_tasks, provider), requested)
        if len(infos) != len(requested):
            raise RequestError(
                "unknown_seed",
                f"of {len(requested)} seeds, {len(infos)} stand for a task; ask for seeds of the taskset",
            )
        return infos[0] if len(requested) == 1 else infos

    body = {"required": True, "content": {"application/json": {"schema": {"$ref": f"{SCHEMAS}RolloutRequest"}}}}

    @router.post(
        "/rollout",
        tags=["rollouts"],
        summary="One rollout, from beginning to end",
        description="Every ending is answered with 200. A reward that is null says that nothing is known of the"
        " attempt, and failure_cause why.",
        openapi_extra={"requestBody": body},
        responses={**guarded, **_problems(404, 413, 422)},
    )
    async def rollout(request: Request) -> RolloutResponse:
        return await rollouts.response(await _rollout_request(request), request)

    return router


async def _rollout_request(request: Request) -> RolloutRequest:
    try:
        # refuses what is deeper than 200 levels, and numbers that are none
        body = from_json(await request.body(), allow_inf_nan=False)
    except ValueError:
        raise RequestError("invalid_json", "the body is not JSON; send a RolloutRequest") from None
    try:
        rollout = RolloutRequest.model_validate(body)
    except ValidationError as error:
        raise invalid_request(error.errors(include_url=False, include_input=False)) from None
    if any(override.preflight_script for override in rollout.context_overrides):
        raise RequestError(
            "preflight_refused",
            "context_overrides: a preflight_script is not run; put what it does into the environment",
        )
    return rollout


def _list_tasks(provider: Callable[[Sequence[int]], Any], seeds: Sequence[int]) -> Any:
    """Return the tasks of `seeds`; what `provider` yields is made here, in the thread that this is called in."""
    infos = provider(seeds)
    if hasattr(infos, "__await__"):
        return _await_tasks(infos)
    return [TaskInfo.model_validate(info) for info in infos]


async def _await_tasks(infos: Any) -> list[TaskInfo]:
    return [TaskInfo.model_validate(info) for info in await infos]


def _rollouts(config: LocalAPIConfig) -> Rollouts:
    if config.execution_backend == "harbor":
        from graftline.harbor.execution import HarborExecutionBackend

        assert config.harbor is not None  # the configuration saw to it
        # its deployment has limits of its own, and waiting in its queue is not work
        return Rollouts(HarborExecutionBackend(config.harbor, timeout=MAX_TIMEOUT_S), is_timed=False)
    if config.rollout is None:
        raise ConfigError(
            f"task app {config.app_id!r}: has no way to do rollouts; give it rollout=… or execution_backend='harbor'"
        )
    return Rollouts(config.rollout)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemAnswer, "description": _PROBLEMS[status]} for status in statuses}
