"""A task app, asked the same way wherever it runs: as a deployment, in this process, or at a URL."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import SecretStr, ValidationError

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.address import HarborDeploymentRef, check_url, sendable_key
from graftline.harbor.client import HarborAPIError, HttpClient, RetryPolicy
from graftline.harbor.contract import RolloutRequest, RolloutResponse, SuccessStatus, TaskInfo
from graftline.harbor.execution import HarborExecutionBackend, is_refusal
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.localapi.rollouts import Rollouts, call, response_of
from graftline.harbor.refusal import RequestError

_GRACE_S = 60.0
_MOST_SEEDS_IN_URL = 200
_SHORT_POLICY = RetryPolicy(timeout_s=60.0)


class TaskAppClient(Protocol):
    """Asks one task app."""

    @property
    def url(self) -> str:
        """Where it is; empty where it is in this process alone."""

    async def rollout(self, request: RolloutRequest) -> RolloutResponse:
        """Return how a rollout ended. Raises HarborError where the task app refuses the request."""

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the task of every seed, in their order.

        Raises:
            HarborError: it does not say, or a seed stands for none.
        """

    async def health(self) -> Mapping[str, Any]:
        """Return what it says of itself if it can be asked for rollouts. Raises HarborError where it cannot."""


def create_task_app_client(
    config: LocalAPIConfig | str, api_key: str | None = None, timeout: float = 600.0, allow_http: bool = False
) -> TaskAppClient:
    """Return a client of a task app.

    Args:
        config: The task app, or its URL.
        api_key: Of a URL: the key of the task app, or that of the service where the URL is of a deployment.
        timeout: Seconds that one rollout may take.
        allow_http: Whether the key may go to another machine unencrypted.

    Raises:
        ConfigError: there is nothing that could run a rollout, or the URL is none.
        ValueError: a deployment has no key.
    """
    if isinstance(config, str):
        if ref := HarborDeploymentRef.of_url(config, api_key):
            return HarborExecutionBackend(ref, timeout, allow_http=allow_http)
        return RemoteTaskApp(config, api_key, timeout, allow_http)
    if config.execution_backend == "harbor" and config.harbor is not None:
        return HarborExecutionBackend(
            config.harbor, timeout, allow_http=allow_http, instance_provider=config.instance_provider
        )
    if config.rollout is None and config.task_app_url:
        own = config.api_key.get_secret_value() if isinstance(config.api_key, SecretStr) else None
        return RemoteTaskApp(config.task_app_url, api_key or own, timeout, allow_http)
    return LocalTaskApp(config)


class LocalTaskApp:
    """The functions of a config, called in this process; without a web framework, they get None for its request."""

    def __init__(self, config: LocalAPIConfig) -> None:
        if config.rollout is None:
            raise ConfigError(
                f"task app {config.app_id!r}: has nothing that runs a rollout; give it rollout=, task_app_url=, or "
                "execution_backend='harbor' with harbor="
            )
        self._config, self._rollouts = config, Rollouts(config.rollout)

    @property
    def url(self) -> str:
        return (self._config.task_app_url or "").rstrip("/")

    async def rollout(self, request: RolloutRequest) -> RolloutResponse:
        try:
            return await self._rollouts.response(request, None)
        except RequestError as refusal:
            raise HarborAPIError(refusal.status, str(refusal), refusal.details, refusal.code) from None

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        provide = self._config.provide_task_instances or self._config.instance_provider
        app_id = self._config.app_id
        if provide is None:
            raise HarborError(f"task app {app_id!r}: knows no tasks; give it provide_task_instances")
        return _task_infos(list(await call(provide, list(seeds))), seeds, f"task app {app_id!r}")

    async def health(self) -> Mapping[str, Any]:
        return {"status": "ok"}


class RemoteTaskApp:
    """A task app at a URL."""

    def __init__(self, url: str, api_key: str | None = None, timeout: float = 600.0, allow_http: bool = False) -> None:
        # the task app ends a rollout by itself; the client waits for longer, and through its silence
        patience = RetryPolicy(timeout_s=timeout + _GRACE_S, read_s=timeout + _GRACE_S)
        key = sendable_key(api_key) if api_key else None
        # without a key there is nothing to be overheard
        self._client = HttpClient(check_url(url, allow_http or key is None), key, "x-api-key", patience)
        self._timeout_s = timeout

    @property
    def url(self) -> str:
        return self._client.url

    async def rollout(self, request: RolloutRequest) -> RolloutResponse:
        body = request.model_dump(mode="json")
        body["safety"]["max_time_s"] = min(request.safety.max_time_s, self._timeout_s)
        try:
            # not every task app knows a request again, so one that may have run is not asked for twice
            content = await self._client.request_async("POST", "/rollout", body)
        except HarborError as error:
            if isinstance(error, HarborAPIError) and is_refusal(error):
                raise
            status = SuccessStatus.TIMEOUT if isinstance(error, TimeoutError) else SuccessStatus.NETWORK_ERROR
            return RolloutResponse.without_reward(request.trace_correlation_id, status, str(error))
        # a number beside a status that is no success says nothing of the agent
        return response_of(content, request.trace_correlation_id)

    async def task_info(self, seeds: Sequence[int]) -> list[TaskInfo]:
        infos: list[TaskInfo] = []
        async with self._client.session():
            # a URL has an end
            for start in range(0, len(seeds), _MOST_SEEDS_IN_URL):
                batch = seeds[start : start + _MOST_SEEDS_IN_URL]
                content = await self._client.request_async(
                    "GET", "/task_info", query={"seeds": batch}, patience=_SHORT_POLICY
                )
                infos += _task_infos(content if isinstance(content, list) else [content], batch, self.url)
        return infos

    async def health(self) -> Mapping[str, Any]:
        content = await self._client.request_async("GET", "/health", patience=_SHORT_POLICY)
        return content if isinstance(content, dict) else {"status": "ok"}


def _task_infos(answers: Sequence[Any], seeds: Sequence[int], title: str) -> list[TaskInfo]:
    try:
        infos = [answer if isinstance(answer, TaskInfo) else TaskInfo.model_validate(answer) for answer in answers]
    except ValidationError as error:
        key = ".".join(map(str, error.errors(include_url=False)[0]["loc"])) or "all of it"
        raise HarborError(f"{title}: what it says of its tasks is no TaskInfo ({key})") from None
    if len(infos) != len(seeds):
        raise HarborError(f"{title}: was asked for the tasks of {len(seeds)} seeds and has {len(infos)} of them")
    return infos
