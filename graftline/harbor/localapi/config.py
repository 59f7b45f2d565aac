"""What a task app is made of: `LocalAPIConfig`. `create_local_api` makes the app, here or in front of a Harbor deployment."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import SecretStr

from graftline.core.errors import ConfigError
from graftline.harbor.contract import RolloutResponse, TaskInfo

if TYPE_CHECKING:
    from graftline.harbor.address import HarborDeploymentRef
    from graftline.harbor.instances import HarborInstanceProvider

ExecutionBackend = Literal["local", "harbor"]
Instances = Iterable[TaskInfo | Mapping[str, Any]]
Returned = RolloutResponse | Mapping[str, Any]
_LONGEST_NAME = 128


@dataclass(kw_only=True)
class LocalAPIConfig:
    """A task app. Every callable may be plain, and is then run in a thread, or `async`.

    What else a web application may have (routes, middleware, state) is added to the one that `create_local_api` returns;
    all of its routes need the key.
    """

    app_id: str
    name: str = ""
    """For people; `app_id` where it is not given."""
    description: str = ""
    provide_taskset_description: Callable[[], Mapping[str, Any] | Awaitable[Mapping[str, Any]]] | None = None
    provide_task_instances: Callable[[Sequence[int]], Instances | Awaitable[Instances]] | None = None
    """From seeds to their tasks, one for each, in this order; a seed that stands for none is left out."""
    rollout: Callable[..., Returned | Awaitable[Returned]] | None = None
    """Takes a `RolloutRequest` and, if it has a second parameter, FastAPI's request."""
    base_task_info: TaskInfo | Mapping[str, Any] | None = None
    """What `/info` shows of all tasks alike."""
    require_api_key: bool = True
    api_key: SecretStr | None = None
    """Counts beside those of the environment (`localapi.app.accepted_keys`)."""
    execution_backend: ExecutionBackend = "local"
    """Where rollouts run: `rollout` in the app itself, or the deployment `harbor`."""
    harbor: "HarborDeploymentRef | None" = None
    instance_provider: "HarborInstanceProvider | None" = None
    """Answers for the tasks of a deployment where `provide_task_instances` does not."""
    task_app_url: str | None = None
    """Where the app runs, for `get_task_app_url` of one that is not behind Harbor."""

    def __post_init__(self) -> None:
        if not isinstance(self.app_id, str) or not 0 < len(self.app_id.strip()) <= _LONGEST_NAME:
            raise ConfigError(f"app_id: {self.app_id!r} is no name of 1 to {_LONGEST_NAME} characters; give it one")
        self.name = self.name or self.app_id
        if isinstance(self.api_key, str):
            self.api_key = SecretStr(self.api_key)
        backends = get_args(ExecutionBackend)
        if self.execution_backend not in backends:
            raise ConfigError(
                f"task app {self.app_id!r}: execution_backend {self.execution_backend!r} is unknown; known:"
                f" {', '.join(backends)}"
            )
        if self.execution_backend == "harbor" and self.harbor is None:
            raise ConfigError(
                f"task app {self.app_id!r}: execution_backend 'harbor' needs the deployment to run on; give it"
                " harbor=HarborDeploymentRef(deployment_id=…)"
            )

    def get_task_app_url(self) -> str:
        """Return the address that evaluation and optimization send their rollouts to.

        Raises:
            ConfigError: nobody said where a local app runs.
        """
        if self.execution_backend == "harbor" and self.harbor is not None:
            return self.harbor.task_app_url
        url = (self.task_app_url or "").rstrip("/")
        if not url:
            raise ConfigError(
                f"task app {self.app_id!r}: runs locally, and nobody said where; start it with serve_task_app and set"
                " task_app_url to the address that this gives"
            )
        if urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"task app {self.app_id!r}: task_app_url {url!r} does not begin with http:// or https://")
        return url
