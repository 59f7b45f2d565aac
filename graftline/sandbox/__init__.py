"""The jails in which actions are applied and tests run.

`prepare_workspace`, `apply_action`, `run_tests` and `cleanup` are the way in for files; `open_sandbox` for texts, many at
a time; `open_jail` for programs.
"""

from graftline.sandbox.base import Isolation, Match, Request, Sandbox, SandboxResult, Usage, Verdict
from graftline.sandbox.default import apply_action, cleanup, prepare_workspace, run_tests
from graftline.sandbox.jail import Case, CaseEnd, CaseLimits, Jail
from graftline.sandbox.judge import TestOutcome, TestResult, judged
from graftline.sandbox.open import (
    MemorySandboxConfig,
    ProcessSandboxConfig,
    SandboxConfig,
    WarmSandboxConfig,
    open_sandbox,
)
from graftline.sandbox.open_jail import JailConfig, open_jail
from graftline.sandbox.runner import SandboxRunner, SandboxSettings
from graftline.sandbox.test_spec import Call, CallsSpec, ProgramSpec, PytestSpec, TestSpec

__all__ = [
    "Call",
    "CallsSpec",
    "Case",
    "CaseEnd",
    "CaseLimits",
    "Isolation",
    "Jail",
    "JailConfig",
    "Match",
    "MemorySandboxConfig",
    "ProcessSandboxConfig",
    "ProgramSpec",
    "PytestSpec",
    "Request",
    "Sandbox",
    "SandboxConfig",
    "SandboxResult",
    "SandboxRunner",
    "SandboxSettings",
    "TestOutcome",
    "TestResult",
    "TestSpec",
    "Usage",
    "Verdict",
    "WarmSandboxConfig",
    "apply_action",
    "cleanup",
    "judged",
    "open_jail",
    "open_sandbox",
    "prepare_workspace",
    "run_tests",
]
