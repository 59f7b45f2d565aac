"""Workspaces, actions and tests under one configuration, with a line in a log for each.

    with SandboxRunner.open(root) as runner:
        workspace = runner.prepare_workspace("task-1", {"m.py": "total = sum([x for x in rows])\\n"})
        result = runner.apply_action(workspace, {"pattern": "sum([$X for $V in $L])", "rewrite": "sum($X for $V in $L)"})
        tests = runner.run_tests(workspace, {"kind": "pytest", "files": {...}, "expected": ["test_m.py::test_total"]})
        runner.cleanup(workspace)

What an action or a test does is a result; an error means that the sandbox itself failed, or was asked for what it does
not take. Code never runs in a workspace: tests get a copy of its files.
"""

import atexit
import hashlib
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Self, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from graftline.astgrep.action import ACTION, Action
from graftline.astgrep.binding import Language
from graftline.astgrep.rule_text import rule_action
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError, DataError, SandboxError
from graftline.core.paths import find_root
from graftline.core.secrets import local_secrets
from graftline.core.text_diff import unified_diff
from graftline.sandbox.action_log import ActionLog
from graftline.sandbox.actions import SandboxConfig, WarmSandboxConfig, open_sandbox
from graftline.sandbox.base import Request, Sandbox, SandboxResult, Usage, Verdict
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.jail import Jail
from graftline.sandbox.jail.judge import TestResult, judge_tests
from graftline.sandbox.jail.open import JailConfig, open_jail
from graftline.sandbox.jail.spec import CallsSpec, ProgramSpec, PytestSpec, TestSpec
from graftline.sandbox.workspaces import Workspaces

ResultT = TypeVar("ResultT", SandboxResult, TestResult)

LANGUAGE_OF: Mapping[str, Language] = {
    ".py": "python", ".pyi": "python", ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript",
    ".cjs": "javascript", ".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx",
    ".java": "java",
}  # fmt: skip
"""As ast-grep tells languages by the ends of names."""
_SPEC: TypeAdapter[TestSpec] = TypeAdapter(TestSpec)
_KINDS = ("pytest", "calls", "program")
_SHOWN, _MESSAGE = 40, 500


class WorkspacesConfig(Config):
    """Where workspaces are, and how large they may be."""

    folder: str = ".sandbox"
    """Below the root."""
    limits: WorkspaceLimits = WorkspaceLimits()


class LogsConfig(Config):
    """Where the log of every task is, and how much of it is kept."""

    folder: str = "logs/sandbox"
    """Below the root."""
    max_mb: int = Field(default=16, ge=1, le=4096)
    """Of one file; a longer one is put aside."""
    kept: int = Field(default=3, ge=0, le=100)
    """Files of a task that are put aside before the oldest one goes."""


class SandboxSettings(Config):
    """The file `configs/sandbox.yaml`."""

    actions: SandboxConfig = WarmSandboxConfig()
    tests: JailConfig = JailConfig()
    workspaces: WorkspacesConfig = WorkspacesConfig()
    logs: LogsConfig = LogsConfig()


def language_of(path: str) -> Language | None:
    """Return the language that the end of a path says."""
    return LANGUAGE_OF.get(PurePosixPath(path).suffix.lower())


def load_sandbox_settings(root: Path) -> SandboxSettings:
    """Return what `configs/sandbox.yaml` below `root` says, or the usual settings without that file.

    ConfigError if the file says something it cannot mean.
    """
    path = root / "configs" / "sandbox.yaml"
    return load_yaml(path, SandboxSettings) if path.exists() else SandboxSettings()


class SandboxRunner:
    """Opens what it needs on first use; safe to use from several threads, one call at a time."""

    def __init__(self, settings: SandboxSettings, root: Path) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._workspaces = Workspaces(root / settings.workspaces.folder, settings.workspaces.limits)
        self._log = ActionLog(
            root / settings.logs.folder,
            local_secrets(os.environ, root).redact,
            settings.logs.max_mb << 20,
            settings.logs.kept,
        )
        self._tasks: dict[Path, str] = {}
        self._sandbox: Sandbox | None = None
        self._jail: Jail | None = None

    @classmethod
    def open(cls, root: Path) -> Self:
        """Return a runner with the settings below `root`; see `load_sandbox_settings`."""
        return cls(load_sandbox_settings(root), root)

    def prepare_workspace(self, task_id: str, files: Mapping[str, str | bytes]) -> Path:
        """Write `files` into a folder of their own and return it; DataError if a name or a size is refused."""
        workspace = self._workspaces.prepare(task_id, files)
        self._tasks[workspace] = task_id
        return workspace

    def apply_action(
        self, workspace: Path, action: Action | Mapping[str, Any] | str, only: Sequence[str] = ()
    ) -> SandboxResult:
        """Apply an action to the files of a workspace, or to those whose paths are in `only`.

        `action` is one, or what one is made of, or the text of an ast-grep rule (YAML). It goes to the files in whose
        language it may be. Either all files that it changes are written, or none. DataError if the action has no valid
        form, or the workspace has no file it could go to.
        """
        parsed, language = _parse_action(action)
        with self._lock:
            requests = _requests(self._workspaces.read(workspace), parsed, language, only)
            return self._answer(workspace, "action", parsed.model_dump(), lambda: self._apply(workspace, requests))

    def run_tests(self, workspace: Path, test_spec: TestSpec | Mapping[str, Any]) -> TestResult:
        """Run tests on a copy of the files of a workspace, and say whether they passed.

        DataError if the specification has no valid form, or asks for a program that is not to be had.
        """
        spec = parse_test_spec(test_spec)
        with self._lock:
            files = self._workspaces.read(workspace)
            if self._jail is None:
                self._jail = open_jail(self._settings.tests)
            jail = self._jail
            return self._answer(workspace, "tests", spec.model_dump(), lambda: judge_tests(jail, files, spec))

    def cleanup(self, workspace: Path) -> None:
        """Remove a workspace. A second call does nothing."""
        self._workspaces.cleanup(workspace)
        self._tasks.pop(workspace, None)

    def close(self) -> None:
        """Remove what is left of workspaces, and let go of processes. A second call does nothing."""
        with self._lock:
            for resource in (self._sandbox, self._jail):
                if resource is not None:
                    resource.close()
            self._sandbox = self._jail = None
            self._workspaces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sandbox(self) -> Sandbox:
        """Return the sandbox that actions are applied in, which is opened when it is asked for.

        SandboxError if it does not start, or does not reach the required level.
        """
        if self._sandbox is None:
            self._sandbox = open_sandbox(self._settings.actions)
        return self._sandbox

    def _apply(self, workspace: Path, requests: Mapping[str, Request]) -> SandboxResult:
        answers = self.sandbox().apply_each([*requests.values()])
        results = {path: result for path, [result] in zip(requests, answers, strict=True)}
        combined = _combine(results, {path: request.source for path, request in requests.items()})
        changed = {path: results[path].after for path in combined.changed_files}
        self._workspaces.write(workspace, {path: text.encode() for path, text in changed.items() if text is not None})
        return combined

    def _answer(self, workspace: Path, kind: str, request: Mapping[str, Any], work: Callable[[], ResultT]) -> ResultT:
        """Return what `work` returns, with a line in the log whatever that is."""
        text = json.dumps(request, sort_keys=True, default=str)
        settings: Any = self._settings.tests if kind == "tests" else self._settings.actions
        limits = getattr(settings, "limits", None)
        entry: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "kind": kind,
            "task_id": self._tasks.get(workspace, workspace.name),
            "workspace": workspace.name,
            "asked": request,
            "asked_sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(),
            "limits": limits.model_dump() if limits else {},
        }
        try:
            result = work()
        except SandboxError as error:
            self._log.write(entry["task_id"], {**entry, "verdict": Verdict.RUNNER_ERROR, "error": str(error)})
            raise
        self._log.write(entry["task_id"], {**entry, **_describe(result)})
        return result


def parse_test_spec(spec: TestSpec | Mapping[str, Any]) -> TestSpec:
    """Return `spec` as one of the specifications.

    DataError if it has another form; the message names the first fault.
    """
    if isinstance(spec, PytestSpec | CallsSpec | ProgramSpec):
        return spec
    kind = spec.get("kind") if isinstance(spec, Mapping) else None
    if kind not in _KINDS:
        raise DataError(
            f"test specification: kind: expected one of {', '.join(map(repr, _KINDS))} (got {str(kind)[:_SHOWN]!r})"
        )
    try:
        return _SPEC.validate_python(spec)
    except ValidationError as error:
        raise DataError(f"test specification: {_first_fault(error)[:_MESSAGE]}") from None


def _parse_action(action: Action | Mapping[str, Any] | str) -> tuple[Action, Any]:
    if isinstance(action, str):
        return rule_action(action, "action")
    if not isinstance(action, Mapping):
        return action, None
    try:
        return ACTION.validate_python(dict(action)), None
    except ValidationError as error:
        raise DataError(f"action: {_first_fault(error)[:_MESSAGE]}") from None


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, fault["loc"]))
    return f"{place}: {fault['msg']}" if place else str(fault["msg"])


def _requests(
    files: Mapping[str, bytes], action: Action, language: Language | None, only: Sequence[str]
) -> dict[str, Request]:
    """Return one request per file that the action goes to."""
    for path in only:
        if path not in files:
            raise DataError(
                f"only: the workspace has no file {path!r}; it has {', '.join(sorted(files)[:20]) or 'none'}"
            )
    requests = {}
    for path in only or sorted(files):
        own_language = language_of(path)
        if own_language is None or language not in (None, own_language):
            continue
        try:
            source = files[path].decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start} is not UTF-8; actions go to texts only") from None
        requests[path] = Request(source, own_language, (action,))
    if not requests:
        which = f"language {language}" if language else "a language that is known"
        raise DataError(f"the workspace has no file of {which}; names have to end in one of {', '.join(LANGUAGE_OF)}")
    return requests


def _combine(results: Mapping[str, SandboxResult], sources: Mapping[str, str]) -> SandboxResult:
    """Return one result for all files: that of the first that failed, or what was changed."""
    first = next(iter(results.values()))
    usages = [result.usage for result in results.values() if result.usage]
    sums = sum(usage.cpu_s for usage in usages), sum(usage.wall_s for usage in usages)
    usage = Usage(*sums, max(usage.peak_memory_mb for usage in usages)) if usages else None
    for path, result in results.items():
        if result.verdict not in (Verdict.OK, Verdict.NO_MATCH):
            return replace(result, error=f"{path}: {result.error}" if result.error else "", usage=usage)
    changed = {path: result for path, result in results.items() if result.verdict is Verdict.OK}
    if not changed:
        return SandboxResult(Verdict.NO_MATCH, None, first.isolation, usage=usage)
    only = next(iter(changed.values())) if len(changed) == 1 else None
    return SandboxResult(
        Verdict.OK,
        only.after if only else None,
        first.isolation,
        only.matches if only else (),
        usage=usage,
        diff="".join(
            line
            for path, result in changed.items()
            for line in unified_diff(sources[path], result.after or "", f"a/{path}", f"b/{path}")
        ),
        changed_files=tuple(path for path, result in changed.items() if result.after != sources[path]),
    )


def _describe(result: SandboxResult | TestResult) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "verdict": result.verdict,
        "error": result.error,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
        "usage": asdict(result.usage) if result.usage else None,
        "isolation": asdict(result.isolation),
        "tools": dict(result.tools),
    }
    if isinstance(result, TestResult):
        return {**fields, "passed": result.passed, "tests": [asdict(test) for test in result.tests]}
    return {**fields, "diff": result.diff, "changed_files": result.changed_files}


def prepare_workspace(task_id: str, files: Mapping[str, str | bytes]) -> Path:
    """Write `files` into a folder of their own and return it; see `SandboxRunner.prepare_workspace`."""
    return _runner().prepare_workspace(task_id, files)


def apply_action(workspace: Path, action: Action | Mapping[str, Any] | str, only: Sequence[str] = ()) -> SandboxResult:
    """Apply an action to the files of a workspace; see `SandboxRunner.apply_action`."""
    return _runner().apply_action(workspace, action, only)


def run_tests(workspace: Path, test_spec: TestSpec | Mapping[str, Any]) -> TestResult:
    """Run tests on a copy of the files of a workspace; see `SandboxRunner.run_tests`."""
    return _runner().run_tests(workspace, test_spec)


def default_sandbox() -> Sandbox:
    """Return the sandbox that the four calls apply actions in; it is closed when the process ends.

    SandboxError if it does not start, or does not reach the required level.
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
    return _open_runner(root, os.getpid())


@cache
def _open_runner(root: Path, process: int) -> SandboxRunner:
    runner = SandboxRunner.open(root)
    atexit.register(lambda: runner.close() if os.getpid() == process else None)
    return runner
