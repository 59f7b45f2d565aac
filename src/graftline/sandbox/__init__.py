"""The jail in which actions are applied; `open_sandbox` is the way in."""

from graftline.sandbox.base import Isolation, Match, Request, Sandbox, SandboxResult, Verdict
from graftline.sandbox.open import (
    MemorySandboxConfig,
    ProcessSandboxConfig,
    SandboxConfig,
    WarmSandboxConfig,
    open_sandbox,
)

__all__ = [
    "Isolation",
    "Match",
    "MemorySandboxConfig",
    "ProcessSandboxConfig",
    "Request",
    "Sandbox",
    "SandboxConfig",
    "SandboxResult",
    "Verdict",
    "WarmSandboxConfig",
    "open_sandbox",
]
