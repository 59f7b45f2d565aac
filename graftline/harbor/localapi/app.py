"""The task app: an environment behind the routes that evaluation and prompt optimization call.

Everything but `/` and the OpenAPI document needs a key (`localapi.answers.Keys`). How a rollout ends is always an answer of 200
(`localapi.rollouts`); 404 and 422 say that the request cannot be meant.
"""

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Security
from fastapi.middleware import Middleware
from fastapi.middleware.cors import CORSMiddleware
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import BaseModel

from graftline import __version__
from graftline.core.errors import ConfigError
from graftline.harbor.contract import MAX_SEED, MAX_TIMEOUT_S, RolloutRequest, RolloutResponse, TaskInfo
from graftline.harbor.localapi.answers import HANDLERS, MAX_BODY_BYTES, BodyLimit, Keys, rollout_request
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.rollouts import Rollouts, call
from graftline.harbor.refusal import ProblemAnswer, RequestError

_MOST_SEEDS = 1000
_SCHEMAS = "#/components/schemas/"
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
    rubrics: Any = None
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
    routes = _Routes(config, _rollouts(config))
    app = _TaskApp(
        title=config.name,
        description=config.description,
        version=__version__,
        lifespan=partial(_lifespan, config),
        middleware=[*_middleware(config), *config.middleware],
        exception_handlers=dict(HANDLERS),
        redoc_url=None,
    )
    state = {"dataset_registry": config.dataset_registry, "rubrics": config.rubrics, "proxy": config.proxy}
    for name, value in {**state, **config.app_state}.items():
        setattr(app.state, name, value)
    guard = [Depends(_guard(Keys(config.api_key, environment)))] if config.require_api_key else []
    app.include_router(routes.build_open())
    app.include_router(routes.build_guarded(), dependencies=guard, responses=_problems(401, 503) if guard else {})
    for router in config.routers:
        app.include_router(router, dependencies=guard)
    return app


class _TaskApp(FastAPI):
    """Describes the body of `/rollout` too, which its route reads itself: after the key, and within its bounds."""

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        schema = RolloutRequest.model_json_schema(ref_template=_SCHEMAS + "{model}")
        document["components"]["schemas"] |= {**schema.pop("$defs", {}), RolloutRequest.__name__: schema}
        return document


class _Routes:
    """The routes of one task app."""

    def __init__(self, config: LocalAPIConfig, rollouts: Rollouts) -> None:
        self._config, self._rollouts = config, rollouts
        self._health = Health(service=config.app_id)

    def build_open(self) -> APIRouter:
        """Return those that need no key."""
        router = APIRouter(tags=["about"])
        router.get("/", summary="Whether it answers")(self._root)
        router.head("/", summary="Whether it answers")(self._root)
        return router

    def build_guarded(self) -> APIRouter:
        """Return all others."""
        router = APIRouter()
        router.get("/health", tags=["about"], summary="Whether it answers, to who has the key")(self._root)
        router.get("/info", tags=["about"], summary="What all tasks have in common")(self._info)
        router.get(
            "/task_info",
            tags=["tasks"],
            summary="All tasks together, or those of seeds",
            description="Without a seed the taskset; of one seed its task; of several a list of theirs, in their order.",
            responses=_problems(404, 422),
        )(self._task_info)
        body = {"required": True, "content": {"application/json": {"schema": {"$ref": f"{_SCHEMAS}RolloutRequest"}}}}
        router.post(
            "/rollout",
            tags=["rollouts"],
            summary="One rollout, from beginning to end",
            description="Every ending is answered with 200. A reward that is null says that nothing is known of the"
            " attempt, and failure_cause why.",
            openapi_extra={"requestBody": body},
            responses=_problems(404, 413, 422),
        )(self._rollout)
        router.post("/done", tags=["rollouts"], summary="No more rollouts are wanted")(self._done)
        return router

    async def _root(self) -> Health:
        return self._health

    async def _done(self) -> Done:
        return Done(service=self._config.app_id)

    async def _info(self) -> Info:
        config = self._config
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
            rubrics=config.rubrics,
            **about.model_dump(mode="json", include={"dataset", "inference", "limits", "task_metadata"}),
        )

    async def _task_info(self, seed: Seeds, seeds: Seeds) -> Taskset | TaskInfo | list[TaskInfo]:
        requested = [*seed, *seeds]
        if not requested:
            return Taskset(taskset=await self._description())
        infos = await self._instances(requested)
        if len(infos) != len(requested):
            raise RequestError(
                "unknown_seed",
                f"of {len(requested)} seeds, {len(infos)} stand for a task; ask for seeds of the taskset",
            )
        return infos[0] if len(requested) == 1 else infos

    async def _description(self) -> dict[str, Any]:
        config = self._config
        if config.provide_taskset_description is not None:
            return dict(await call(config.provide_taskset_description))
        return {"id": config.app_id, "name": config.name, "description": config.description}

    async def _instances(self, seeds: Sequence[int]) -> list[TaskInfo]:
        provider = self._config.provide_task_instances or self._config.instance_provider
        if provider is None:
            raise RequestError("no_tasks", "this task app does not say what its seeds stand for")
        infos: list[TaskInfo] = await call(partial(_list_tasks, provider), seeds)
        return infos

    async def _rollout(self, request: Request) -> RolloutResponse:
        return await self._rollouts.response(await rollout_request(request), request)


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


def _middleware(config: LocalAPIConfig) -> list[Middleware]:
    limit = Middleware(BodyLimit)
    if not config.cors_origins:
        return [limit]
    headers = ["authorization", "content-type", "x-api-key", "x-api-keys"]
    origins = [*config.cors_origins]
    # outermost, so that pages may read refusals too
    return [
        Middleware(CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=headers),
        limit,
    ]


def _guard(keys: Keys) -> Callable[..., Any]:
    described = Security(APIKeyHeader(name="X-API-Key", auto_error=False))
    bearer = Security(HTTPBearer(auto_error=False))

    # the two are for the OpenAPI document
    async def guard(request: Request, _key: Any = described, _bearer: Any = bearer) -> None:
        keys.check(request.headers)

    return guard


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemAnswer, "description": _PROBLEMS[status]} for status in statuses}


@asynccontextmanager
async def _lifespan(config: LocalAPIConfig, app: FastAPI) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for hook in reversed(config.shutdown_hooks):
            stack.push_async_callback(call, hook)
        for hook in config.startup_hooks:
            await call(hook)
        yield
