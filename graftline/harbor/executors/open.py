"""From configuration to an executor."""

from pathlib import Path
from typing import assert_never

from graftline.core.secrets import Secrets
from graftline.harbor.executors.base import Executor
from graftline.harbor.executors.daytona import API_KEY, DaytonaExecutor, DaytonaExecutorConfig
from graftline.harbor.executors.docker import DockerExecutor, DockerExecutorConfig
from graftline.harbor.executors.local import LocalExecutor, LocalExecutorConfig
from graftline.harbor.executors.memory import MemoryExecutor, MemoryExecutorConfig

ExecutorConfig = LocalExecutorConfig | MemoryExecutorConfig | DockerExecutorConfig | DaytonaExecutorConfig
"""Told apart by `kind`."""


def open_executor(config: ExecutorConfig, folder: Path, secrets: Secrets) -> Executor:
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
            return DaytonaExecutor(config, secrets.require(API_KEY, "executor 'daytona'"))
        case _:
            assert_never(config)
