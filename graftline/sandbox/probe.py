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
class Finding:
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


def probe() -> list[Finding]:
    """Return what every implementation achieves."""
    found = []
    for config in (WarmSandboxConfig(required_level="none"), ProcessSandboxConfig(required_level="none")):
        try:
            sandbox = open_sandbox(config)
        except SandboxError as error:
            found.append(Finding("actions", config.kind, None, missing=(str(error),)))
            continue
        isolation = sandbox.isolation
        sandbox.close()
        found.append(Finding("actions", config.kind, isolation.level, isolation.features))
    for kind in JAILS:
        found += _of_jail(kind)
    return found


def _of_jail(kind: JailKind) -> list[Finding]:
    wrapper = WRAPPERS.get(kind)
    if wrapper is not None and wrapper.path is None:
        return [Finding("tests", kind, None, missing=(f"{wrapper.program} is not installed: {wrapper.package}",))]
    try:
        jail = open_jail(JailConfig(kind=kind, required_level="none"))
    except SandboxError as error:
        return [Finding("tests", kind, None, missing=(str(error),))]
    isolation = jail.isolation
    jail.close()
    lacks: tuple[str, ...] = ()
    if kind != "subprocess" and isolation.level != LEVELS[-1]:
        above = LEVELS[LEVELS.index(isolation.level) + 1]
        lacks = tuple(f"{name}: {remedy}" for name, remedy in missing(isolation.features, above).items())
    return [Finding("tests", isolation.implementation, isolation.level, isolation.features, lacks)]


def tiers(settings: SandboxSettings, found: Sequence[Finding]) -> list[Tier]:
    """Return whether what the configuration requires can be had."""
    actions, tests = settings.actions, settings.tests
    asked: list[tuple[str, str, IsolationLevel]] = [
        ("actions", actions.kind, "none" if actions.kind == "memory" else actions.required_level),
        ("tests", tests.kind, tests.required_level),
    ]
    answers = []
    for name, kind, required in asked:
        # the pure Python jail has another name where it does without namespaces
        names = {kind, "confined"} if kind == "namespaces" else {kind}
        reached = [finding for finding in found if finding.tier == name and finding.implementation in names]
        levels = [finding.level for finding in reached if finding.level is not None]
        is_met = kind == "memory" or any(is_at_least(level, required) for level in levels)
        reason = "" if is_met else "; ".join(text for finding in reached for text in finding.missing)
        answers.append(Tier(name, kind, required, is_met, reason))
    return answers
