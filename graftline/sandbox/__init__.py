"""The jails in which actions are applied and tests run.

`prepare_workspace`, `apply_action`, `run_tests` and `cleanup` are the way in for files; `open_sandbox` for texts, many at
a time; `open_jail` for programs. A name is loaded on first use: programs in a jail import `inside` alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graftline.sandbox.actions import (
        MemorySandboxConfig,
        ProcessSandboxConfig,
        SandboxConfig,
        WarmSandboxConfig,
        open_sandbox,
    )
    from graftline.sandbox.base import Isolation, Match, Request, Sandbox, SandboxResult, Usage, Verdict
    from graftline.sandbox.jail import Case, CaseEnd, CaseLimits, Jail
    from graftline.sandbox.jail.judge import TestOutcome, TestResult, judge_tests
    from graftline.sandbox.jail.open import JailConfig, open_jail
    from graftline.sandbox.jail.spec import Call, CallsSpec, ProgramSpec, PytestSpec, TestSpec
    from graftline.sandbox.runner import (
        SandboxRunner,
        SandboxSettings,
        apply_action,
        cleanup,
        prepare_workspace,
        run_tests,
    )

__all__ = [
    "Call", "CallsSpec", "Case", "CaseEnd", "CaseLimits", "Isolation", "Jail", "JailConfig", "Match",
    "MemorySandboxConfig", "ProcessSandboxConfig", "ProgramSpec", "PytestSpec", "Request", "Sandbox",
    "SandboxConfig", "SandboxResult", "SandboxRunner", "SandboxSettings", "TestOutcome", "TestResult", "TestSpec",
    "Usage", "Verdict", "WarmSandboxConfig", "apply_action", "cleanup", "judge_tests", "open_jail", "open_sandbox",
    "prepare_workspace", "run_tests",
]  # fmt: skip

_MODULES = {
    "actions": "MemorySandboxConfig ProcessSandboxConfig SandboxConfig WarmSandboxConfig open_sandbox",
    "base": "Isolation Match Request Sandbox SandboxResult Usage Verdict",
    "jail": "Case CaseEnd CaseLimits Jail",
    "jail.judge": "TestOutcome TestResult judge_tests",
    "jail.open": "JailConfig open_jail",
    "jail.spec": "Call CallsSpec ProgramSpec PytestSpec TestSpec",
    "runner": "SandboxRunner SandboxSettings apply_action cleanup prepare_workspace run_tests",
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names.split():
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
