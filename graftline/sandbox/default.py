"""The four calls with the configuration of the checkout they are made in; see `sandbox.runner` for one of your own.

The root is the folder that `GRAFTLINE_ROOT` names, or the checkout around the current folder, or that folder itself.
"""

import atexit
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import ConfigError
from graftline.core.paths import find_root
from graftline.sandbox.base import Sandbox, SandboxResult
from graftline.sandbox.judge import TestResult
from graftline.sandbox.runner import SandboxRunner
from graftline.sandbox.test_spec import TestSpec


def prepare_workspace(task_id: str, files: Mapping[str, str | bytes]) -> Path:
    """Write `files` into a folder of their own and return it; see `SandboxRunner.prepare_workspace`."""
    return _runner().prepare_workspace(task_id, files)


def apply_action(
    workspace: Path, action: PatternAction | RuleAction | Mapping[str, Any] | str, only: Sequence[str] = ()
) -> SandboxResult:
    """Apply an action to the files of a workspace; see `SandboxRunner.apply_action`."""
    return _runner().apply_action(workspace, action, only)


def run_tests(workspace: Path, test_spec: TestSpec | Mapping[str, Any]) -> TestResult:
    """Run tests on a copy of the files of a workspace; see `SandboxRunner.run_tests`."""
    return _runner().run_tests(workspace, test_spec)


def default_sandbox() -> Sandbox:
    """Return the sandbox that the four calls apply actions in; it is closed when the process ends.

    Raises:
        SandboxError: it does not start, or does not reach the required level.
    """
    return _runner().sandbox()


def cleanup(workspace: Path) -> None:
    """Remove a workspace; see `SandboxRunner.cleanup`."""
    _runner().cleanup(workspace)


def _runner() -> SandboxRunner:
    try:
        root = find_root(os.environ)
    except ConfigError:
        if os.environ.get("GRAFTLINE_ROOT"):
            raise
        root = Path.cwd()
    # a forked process has jails of its own: two that spoke to one would read each other's answers
    return _opened(root, os.getpid())


@cache
def _opened(root: Path, process: int) -> SandboxRunner:
    runner = SandboxRunner.open(root)
    atexit.register(lambda: runner.close() if os.getpid() == process else None)
    return runner
