"""What the suite is run against: the jail and the sandbox of a configuration, or every one that is here."""

from collections.abc import Callable, Mapping
from functools import partial

from graftline.hostile.cases import ACTION_LIMITS, CASE_LIMITS
from graftline.sandbox.base import Sandbox
from graftline.sandbox.jail import Jail, Program
from graftline.sandbox.jail_config import JailConfig, open_jail
from graftline.sandbox.open import ProcessSandboxConfig, SandboxConfig, WarmSandboxConfig, open_sandbox
from graftline.sandbox.probe import JAILS
from graftline.sandbox.runner import SandboxSettings
from graftline.sandbox.served import ServedJail
from graftline.sandbox.wrappers import WRAPPERS

_PROGRAMS: tuple[Program, ...] = ("python", "pytest", "calls")


def jails(settings: SandboxSettings, is_all: bool) -> Mapping[str, Callable[[], Jail]]:
    """Return what opens the jail of `settings`, or each that is installed, at whatever level it reaches."""
    if not is_all:
        chosen = settings.tests
        config = JailConfig(
            kind=chosen.kind, required_level=chosen.required_level, programs=_PROGRAMS, limits=CASE_LIMITS
        )
        return {chosen.kind: partial(open_jail, config)}
    found: dict[str, Callable[[], Jail]] = {}
    for kind in JAILS:
        if kind not in WRAPPERS or WRAPPERS[kind].path is not None:
            config = JailConfig(kind=kind, required_level="none", programs=_PROGRAMS, limits=CASE_LIMITS)
            found[kind] = partial(open_jail, config)
        if kind == "namespaces":
            found["confined"] = partial(ServedJail, "confined", "confined", CASE_LIMITS, _PROGRAMS)
    return found


def sandboxes(settings: SandboxSettings, is_all: bool) -> Mapping[str, Callable[[], Sandbox]]:
    """Return what opens the sandbox of `settings`, or each that isolates."""
    configs: dict[str, SandboxConfig] = {
        "warm": WarmSandboxConfig(limits=ACTION_LIMITS),
        "process": ProcessSandboxConfig(limits=ACTION_LIMITS),
    }
    kinds = configs if is_all else {settings.actions.kind} & configs.keys()
    return {kind: partial(open_sandbox, configs[kind]) for kind in kinds}
