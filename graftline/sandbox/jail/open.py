"""From configuration to a jail; refuses one that is weaker than required."""

from typing import Literal

from pydantic import Field

from graftline.core.config import Config
from graftline.core.errors import ConfigError, SandboxError
from graftline.sandbox.base import REMEDIES, IsolationLevel, describe_lack, is_at_least
from graftline.sandbox.jail import CaseLimits, Jail, Program, Snapshot
from graftline.sandbox.jail.served import Mode, ServedJail
from graftline.sandbox.jail.wrappers import WRAPPERS

JailKind = Literal["namespaces", "bubblewrap", "nsjail", "firejail", "subprocess"]


class JailConfig(Config):
    """Where foreign code runs."""

    kind: JailKind = "namespaces"
    """`namespaces` needs nothing but the kernel; `subprocess` isolates nothing."""
    required_level: IsolationLevel = "namespaces"
    """Opening fails when this cannot be had. `confined` accepts a container that allows no namespaces."""
    programs: tuple[Program, ...] = Field(default=("python", "pytest", "calls", "ast-grep"), strict=False)
    """What may be started; what is listed and not installed is refused on use."""
    limits: CaseLimits = CaseLimits()


def open_jail(config: JailConfig, snapshot: Snapshot | None = None, runs_own: bool = False) -> Jail:
    """Return the jail of `config`, started; with `runs_own`, cases may run what lies in their working folder.

    Raises:
        ConfigError: this kind of jail takes no snapshot.
        SandboxError: it does not start, or does not reach the required level; the message says what is missing.
    """
    if snapshot is not None and config.kind in WRAPPERS:
        raise ConfigError(f"{config.kind} jail: takes no snapshot; take kind 'namespaces'")
    faults = []
    for mode in _modes(config):
        name = "confined" if config.kind == "namespaces" and mode == "confined" else config.kind
        wrapper = WRAPPERS.get(config.kind)
        jail = ServedJail(name, mode, config.limits, config.programs, wrapper, snapshot, runs_own)
        try:
            isolation = jail.isolation
        except SandboxError as error:
            needs = f"; it needs {REMEDIES['namespaces']}" if jail.mode == "namespaces" else ""
            faults.append(f"{error}{needs}")
            continue
        if is_at_least(isolation.level, config.required_level):
            return jail
        jail.close()
        if config.kind == "subprocess":
            faults.append("subprocess jail: isolates nothing; take kind 'namespaces', or say required_level 'none'")
        else:
            faults.append(f"{isolation.implementation} jail: {describe_lack(isolation, config.required_level)}")
    raise SandboxError("; ".join(faults) + f"; {config.required_level!r} is required")


def _modes(config: JailConfig) -> list[Mode]:
    if config.kind == "namespaces":
        # without namespaces only if the configuration accepts that
        return ["namespaces"] if is_at_least(config.required_level, "namespaces") else ["namespaces", "confined"]
    return ["bare"] if config.kind == "subprocess" else ["confined"]
