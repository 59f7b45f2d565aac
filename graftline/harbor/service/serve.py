"""A service that runs until it is told to end (`graftline env serve`), or for as long as a block of code."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import assert_never

from pydantic import Field, SecretStr

from graftline.core.config import Config
from graftline.core.errors import ConfigError
from graftline.core.listener import LOOPBACK, open_listener
from graftline.core.secrets import Secrets, secret_in
from graftline.harbor.executors.base import Executor, MemoryExecutor, MemoryExecutorConfig
from graftline.harbor.executors.daytona import API_KEY, DaytonaExecutor, DaytonaExecutorConfig
from graftline.harbor.executors.docker import DockerExecutor, DockerExecutorConfig
from graftline.harbor.executors.local import LocalExecutor, LocalExecutorConfig
from graftline.harbor.localapi.served import serve_app
from graftline.harbor.model_proxy.proxy import ModelProxy, ModelProxyConfig, serve_model_proxy
from graftline.harbor.service.app import create_service
from graftline.harbor.service.database import Database
from graftline.harbor.service.prompt_jobs import Optimizer
from graftline.harbor.service.state import ServiceSettings
from graftline.llm.fleet import load_fleet

KEY_VARIABLE = "GRAFTLINE_HARBOR_KEY"
DATABASE_VARIABLE = "GRAFTLINE_HARBOR_DATABASE"
DEFAULT_PORT = 8020
_SHORTEST_KEY = 16


ExecutorConfig = LocalExecutorConfig | MemoryExecutorConfig | DockerExecutorConfig | DaytonaExecutorConfig
"""`kind` says which."""


class HarborSettings(Config):
    """What is served, and where."""

    host: str = "127.0.0.1"
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """0 for a free one."""
    behind_proxy: bool = False
    """Says that something in front of it encrypts: only then other addresses than loopback are taken."""
    executor: ExecutorConfig = Field(default_factory=LocalExecutorConfig, discriminator="kind")
    service: ServiceSettings = ServiceSettings()
    proxy: ModelProxyConfig | None = None
    """By which agents ask their model; without one they ask it themselves."""


def open_executor(config: ExecutorConfig, folder: Path, secrets_: Secrets) -> Executor:
    """Return the executor of `config`, whose files are below `folder`.

    Raises:
        ConfigError: it needs a package that is not installed, or a secret that is not set.
        HarborError: it is not to be had.
    """
    match config:
        case LocalExecutorConfig():
            return LocalExecutor(folder / "snapshots", config)
        case MemoryExecutorConfig():
            return MemoryExecutor()
        case DockerExecutorConfig():
            return DockerExecutor(config)
        case DaytonaExecutorConfig():
            return DaytonaExecutor(config, secrets_.require(API_KEY, "executor 'daytona'"))
        case _:
            assert_never(config)


def migrate(root: Path, secrets_: Secrets, database: str = "") -> str:
    """Bring the schema of a service's database up to date, and return its URL without the password."""
    with Database(_database_url(root, secrets_, database)) as base:
        return base.url.set(drivername=base.url.get_backend_name()).render_as_string(hide_password=True)


def harbor_key(root: Path, secrets_: Secrets) -> SecretStr:
    """Return the key of the service: the one that is configured, or that in `<root>/api_key`, made if there is none.

    Raises:
        ConfigError: the configured one is too short to be secret.
    """
    if configured := _secret_of(secrets_, KEY_VARIABLE):
        if len(configured) < _SHORTEST_KEY:
            raise ConfigError(f"{KEY_VARIABLE}: is shorter than {_SHORTEST_KEY} characters; take a longer one")
        return SecretStr(configured)
    return SecretStr(secret_in(root / "api_key"))


def serve(
    settings: HarborSettings,
    root: Path,
    secrets_: Secrets,
    database: str = "",
    started: Callable[[str], None] = lambda url: None,
    optimizer: Optimizer | None = None,
    configs: Path | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; `started` gets the address. For the main thread of a process.

    Raises:
        ConfigError: as `serve_in_thread`.
    """
    with serve_in_thread(settings, root, secrets_, database, optimizer, configs) as (url, _):
        end = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: end.set())
        started(url)
        end.wait()


@contextmanager
def serve_in_thread(
    settings: HarborSettings,
    root: Path,
    secrets_: Secrets,
    database: str = "",
    optimizer: Optimizer | None = None,
    configs: Path | None = None,
) -> Iterator[tuple[str, SecretStr]]:
    """Serve in a thread of this process for as long as the block runs, and yield the address and the key.

    Files are below `root`. `optimizer` carries out prompt optimizations; without one they are kept. `configs` has the fleets, of
    which a proxy asks one.

    Raises:
        ConfigError: the address is not one of this machine, or taken; or a secret is missing.
    """
    key, variables = harbor_key(root, secrets_), {}
    for name in settings.service.pass_on:
        if (value := secrets_.get(name)) is None:
            raise ConfigError(f"pass_on: secret {name} is not set; set it, or take it out")
        variables[name] = value.get_secret_value()
    with (
        closing(listen(settings)) as listener,
        Database(_database_url(root, secrets_, database)) as base,
        closing(open_executor(settings.executor, root, secrets_)) as executor,
        _serve_proxy(settings.proxy, root, secrets_, configs) as proxy,
        serve_app(
            create_service(base, executor, [key], settings.service, variables, optimizer, proxy), listener
        ) as url,
    ):
        yield url, key


def listen(settings: HarborSettings) -> socket.socket:
    """Return a socket that has the address of the service already.

    Raises:
        ConfigError: it is not one of this machine, or taken.
    """
    if settings.host not in LOOPBACK and not settings.behind_proxy:
        raise ConfigError(
            f"host {settings.host!r} would offer the service to other machines, without encryption; use 127.0.0.1, or"
            " say behind_proxy where something in front of it encrypts"
        )
    # before all is opened: until then others could have the port as well
    return open_listener(settings.host, settings.port)


@contextmanager
def _serve_proxy(
    config: ModelProxyConfig | None, root: Path, secrets_: Secrets, configs: Path | None
) -> Iterator[ModelProxy | None]:
    if config is None:
        yield None
        return
    if configs is None:
        raise ConfigError("proxy: there is no configs/vllm_actors.yaml here that its fleet could be of; leave it out")
    fleet = load_fleet(configs, config.fleet)
    key = secrets_.require(fleet.api_key, f"proxy, fleet {config.fleet}") if fleet.api_key else None
    with serve_model_proxy(config, fleet, key, root / "model_calls") as proxy:
        yield proxy


def _database_url(root: Path, secrets_: Secrets, url: str) -> str:
    return url or _secret_of(secrets_, DATABASE_VARIABLE) or f"sqlite:///{root / 'harbor.sqlite'}"


def _secret_of(secrets_: Secrets, name: str) -> str:
    secret = secrets_.get(name)
    return "" if secret is None else secret.get_secret_value()
