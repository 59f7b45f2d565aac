"""The port `harbor`: the service that keeps deployments and runs their rollouts, of this process or somewhere else.

A service of this process has its database and its snapshots below `data/harbor/service`; it starts when it is first needed, on a
free port of loopback, and ends with whoever opened it. What it had queued then goes on when it starts again.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SecretStr, TypeAdapter, ValidationError, field_validator

from graftline.core.config import Config
from graftline.core.errors import ConfigError, install_command
from graftline.core.secrets import Secrets
from graftline.harbor.address import HarborDeploymentRef, backend_url_of, check_url

if TYPE_CHECKING:
    from graftline.harbor.client import RetryPolicy
    from graftline.harbor.uploader import HarborDeploymentUploader

FOLDER = Path("data/harbor/service")
"""Below the root."""
_LOCAL: dict[str, Any] = {"kind": "local"}


class LocalHarborConfig(Config):
    """A service of this process, started when it is needed."""

    kind: Literal["local"] = "local"
    executor: dict[str, Any] = Field(default=_LOCAL)
    """What runs rollouts, and its settings, as `graftline env serve` has them."""
    pass_on: tuple[str, ...] = ()
    """Names of secrets that boxes get as variables."""

    @field_validator("executor")
    @classmethod
    def _is_an_executor(cls, executor: dict[str, Any]) -> dict[str, Any]:
        # executors bring what jails are made of: nobody waits for that who only reads a manifest
        if executor == _LOCAL:
            return executor
        from graftline.harbor.service.serve import ExecutorConfig

        executors = Annotated[ExecutorConfig, Field(discriminator="kind")]
        adapter: TypeAdapter[Any] = TypeAdapter(executors)
        try:
            adapter.validate_json(json.dumps(executor))
        except ValidationError as error:
            fault = error.errors(include_url=False)[0]
            raise ValueError(": ".join((*map(str, fault["loc"]), fault["msg"]))) from None
        return executor


class ServiceHarborConfig(Config):
    """A service that runs already (`graftline env serve`)."""

    kind: Literal["service"] = "service"
    url: str | None = None
    """Its address; unset: what `GRAFTLINE_HARBOR_URL` names."""
    api_key: str = "GRAFTLINE_HARBOR_KEY"
    """Name of the secret that holds the key."""


class MemoryHarborConfig(Config):
    """As `local`, with rewards that are worked out from context and seed: for tests, and to try what comes after."""

    kind: Literal["memory"] = "memory"


HarborPortConfig = Annotated[LocalHarborConfig | ServiceHarborConfig | MemoryHarborConfig, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class HarborService:
    """A service that answers."""

    url: str
    key: SecretStr = field(repr=False)

    @property
    def plain_key(self) -> str:
        """The key, as the SDK takes it."""
        return self.key.get_secret_value()

    def uploader(self, patience: "RetryPolicy | None" = None) -> "HarborDeploymentUploader":
        """Return what uploads deployments to it."""
        from graftline.harbor.uploader import HarborDeploymentUploader

        return HarborDeploymentUploader(self.url, self.plain_key, patience=patience)

    def ref(self, deployment_id: str) -> HarborDeploymentRef:
        """Return one of its deployments as rollouts name it."""
        return HarborDeploymentRef(deployment_id, self.url, self.plain_key)


def place_of(config: HarborPortConfig) -> str:
    """Return what records call the service: its executor where it is of this process, else its address."""
    match config:
        case LocalHarborConfig():
            return str(config.executor.get("kind", "local"))
        case MemoryHarborConfig():
            return config.kind
        case ServiceHarborConfig():
            return backend_url_of(config.url)


@contextmanager
def open_harbor(config: HarborPortConfig, root: Path, secrets: Secrets) -> Iterator[HarborService]:
    """Give the service of `config`, and end it at the end of the block if it is of this process."""
    if isinstance(config, ServiceHarborConfig):
        key = secrets.require(config.api_key, "harbor 'service'")
        yield HarborService(check_url(backend_url_of(config.url)), key)
        return
    executor, pass_on = ({"kind": "memory"}, ()) if config.kind == "memory" else (config.executor, config.pass_on)
    try:
        from graftline.harbor.service.serve import HarborSettings, serve_in_thread
        from graftline.prompts.service_optimizer import ServiceOptimizer
    except ImportError as error:
        raise ConfigError(f"harbor: {error.name} is missing; {install_command('harbor')}") from None
    settings = HarborSettings.model_validate_json(
        json.dumps({"port": 0, "executor": executor, "service": {"pass_on": pass_on}})
    )
    kind = settings.executor.kind
    # what one executor built another does not find
    folder = root / FOLDER / kind
    folder.mkdir(parents=True, exist_ok=True)
    database, optimizer = f"sqlite:///{folder / 'harbor.sqlite'}", ServiceOptimizer(secrets)
    with serve_in_thread(settings, folder, secrets, database, optimizer) as (url, key):
        yield HarborService(url, key)
