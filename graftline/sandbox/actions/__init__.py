"""From configuration to a sandbox; refuses one that is weaker than required."""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import SandboxError
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.actions.process import ProcessSandbox
from graftline.sandbox.actions.warm import WarmSandbox
from graftline.sandbox.actions.with_tests import SandboxWithTests
from graftline.sandbox.base import IsolationLevel, Limits, Sandbox, describe_lack, is_at_least
from graftline.sandbox.jail.open import JailConfig


class ProcessSandboxConfig(Config):
    """ast-grep in confined child processes."""

    kind: Literal["process"] = "process"
    limits: Limits = Limits()
    required_level: IsolationLevel = "compute"
    """Opening fails when this cannot be had; `none` accepts a machine without seccomp."""


class WarmSandboxConfig(Config):
    """ast-grep's binding in confined processes that are started once."""

    kind: Literal["warm"] = "warm"
    limits: Limits = Limits()
    workers: int = Field(default=1, ge=1, le=256)
    """Processes that work at the same time on what one call asks for."""
    required_level: IsolationLevel = "compute"
    """Opening fails when this cannot be had; `none` accepts a machine without seccomp."""


class MemorySandboxConfig(Config):
    """ast-grep's binding in this process: for tests and trusted text, no isolation."""

    kind: Literal["memory"] = "memory"


SandboxConfig = Annotated[WarmSandboxConfig | ProcessSandboxConfig | MemorySandboxConfig, Field(discriminator="kind")]


def open_sandbox(config: SandboxConfig, tests: JailConfig | None = None) -> Sandbox:
    """Return the sandbox of `config`, started and probed; the tests of tasks run in jails of `tests`, opened on first use.

    SandboxError if it does not start, or does not reach the required level.
    """
    jail = JailConfig() if tests is None else tests
    match config:
        case MemorySandboxConfig():
            return SandboxWithTests(MemorySandbox(), jail)
        case WarmSandboxConfig():
            sandbox = _require(WarmSandbox(config.limits, config.workers), config, "compute")
            return SandboxWithTests(sandbox, jail)
        case ProcessSandboxConfig():
            return SandboxWithTests(_require(ProcessSandbox(config.limits), config, "confined"), jail)
        case _:
            assert_never(config)


def _require(sandbox: Sandbox, config: WarmSandboxConfig | ProcessSandboxConfig, highest: IsolationLevel) -> Sandbox:
    """Return `sandbox`, which reaches `highest` on the best of machines, if it reaches the required level on this one."""
    level, isolation = config.required_level, sandbox.isolation
    if is_at_least(isolation.level, level):
        return sandbox
    sandbox.close()
    lack = f"reaches {highest!r} at most, on any machine; say required_level {highest!r}"
    if is_at_least(highest, level):
        lack = describe_lack(isolation, level)
    raise SandboxError(f"{config.kind} sandbox: {lack}; {level!r} is required")
