"""What isolation this machine gives, found by trying: every jail and sandbox is opened and asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from graftline.core.errors import SandboxError
from graftline.sandbox.actions import ProcessSandboxConfig, WarmSandboxConfig, open_sandbox
from graftline.sandbox.base import LEVELS, IsolationLevel, is_at_least, missing
from graftline.sandbox.jail.open import JailConfig, JailKind, open_jail
from graftline.sandbox.jail.wrappers import WRAPPERS
from graftline.sandbox.runner import SandboxSettings

JAILS: Sequence[JailKind] = get_args(JailKind)


@dataclass(frozen=True, slots=True)
class BackendProbe:
    """What one implementation achieves here."""

    tier: str
    """`actions` or `tests`."""
    implementation: str
    level: IsolationLevel | None
    """None where it does not start."""
    features: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """What the next level up needs, or what it needs to start, and how to get it."""


@dataclass(frozen=True, slots=True)
class Tier:
    """What the configuration asks for, and whether it can be had."""

    name: str
    implementation: str
    required: IsolationLevel
    is_met: bool
    reason: str = ""


def probe() -> list[BackendProbe]:
    """Return what every implementation achieves."""
    probes = []
    for config in (WarmSandboxConfig(required_level="none"), ProcessSandboxConfig(required_level="none")):
        try:
            sandbox = open_sandbox(config)
        except SandboxError as error:
            probes.append(BackendProbe("actions", config.kind, None, missing=(str(error),)))
            continue
        isolation = sandbox.isolation
        sandbox.close()
        probes.append(BackendProbe("actions", config.kind, isolation.level, isolation.features))
    for kind in JAILS:
        probes += _probe_jail(kind)
    return probes


def _probe_jail(kind: JailKind) -> list[BackendProbe]:
    wrapper = WRAPPERS.get(kind)
    if wrapper is not None and wrapper.path is None:
        return [BackendProbe("tests", kind, None, missing=(f"{wrapper.program} is not installed: {wrapper.package}",))]
    try:
        jail = open_jail(JailConfig(kind=kind, required_level="none"))
    except SandboxError as error:
        return [BackendProbe("tests", kind, None, missing=(str(error),))]
    isolation = jail.isolation
    jail.close()
    lacks: tuple[str, ...] = ()
    if kind != "subprocess" and isolation.level != LEVELS[-1]:
        above = LEVELS[LEVELS.index(isolation.level) + 1]
        lacks = tuple(f"{name}: {remedy}" for name, remedy in missing(isolation.features, above).items())
    return [BackendProbe("tests", isolation.implementation, isolation.level, isolation.features, lacks)]


def tiers(settings: SandboxSettings, probes: Sequence[BackendProbe]) -> list[Tier]:
    """Return whether what the configuration requires can be had."""
    actions, tests = settings.actions, settings.tests
    requirements: list[tuple[str, str, IsolationLevel]] = [
        ("actions", actions.kind, "none" if actions.kind == "memory" else actions.required_level),
        ("tests", tests.kind, tests.required_level),
    ]
    answers = []
    for name, kind, required in requirements:
        # the pure Python jail has another name where it does without namespaces
        names = {kind, "confined"} if kind == "namespaces" else {kind}
        matching = [probe for probe in probes if probe.tier == name and probe.implementation in names]
        levels = [probe.level for probe in matching if probe.level is not None]
        is_met = kind == "memory" or any(is_at_least(level, required) for level in levels)
        reason = "" if is_met else "; ".join(text for probe in matching for text in probe.missing)
        answers.append(Tier(name, kind, required, is_met, reason))
    return answers
