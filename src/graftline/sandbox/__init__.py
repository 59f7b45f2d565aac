"""The jail in which actions are applied; `open_sandbox` is the way in."""

from graftline.sandbox.base import Isolation, Match, Sandbox, SandboxResult, Verdict
from graftline.sandbox.open import MemorySandboxConfig, ProcessSandboxConfig, SandboxConfig, open_sandbox

__all__ = [
    "Isolation",
    "Match",
    "MemorySandboxConfig",
    "ProcessSandboxConfig",
    "Sandbox",
    "SandboxConfig",
    "SandboxResult",
    "Verdict",
    "open_sandbox",
]
