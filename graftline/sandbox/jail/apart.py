"""Which tests can run apart from the code under test, as far as their text tells.

What tests do to their own process does not reach the code: a clock that is replaced, a seed, a handler of log records.
Such a test would fail right code. It is found here, by its text alone, so that code cannot bring about that nothing is
known of it; what only shows when tests run is found by `inside.remote_objects`.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

_OF_PYTEST = frozenset(
    ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup", "tomli", "graftline")
)
"""Packages that the process of the tests has loaded, or may load, for itself."""
_FIXTURES = {
    "caplog": "log records of the code",
    "recwarn": "warnings of the code",
    "capfd": "what the code writes to descriptors",
    "capfdbinary": "what the code writes to descriptors",
}
_CALLS = {
    "warns": "warnings of the code",
    "deprecated_call": "warnings of the code",
    "catch_warnings": "warnings of the code",
    "assertLogs": "log records of the code",
    "assertWarns": "warnings of the code",
    "freeze_time": "the clock of the code",
    "seed": "random numbers of the code",
}
_PATCHING = ("setattr", "patch", "object")


def modules_of(files: Iterable[str], tests: Iterable[str]) -> tuple[str, ...]:
    """Return the names that tests import the code by: of modules and packages at the top of the workspace.

    Those of the standard library and of pytest itself are none: tests get what they are usually.
    """
    own = {PurePosixPath(name).stem for name in tests if "/" not in name and name.endswith(".py")}
    names = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files if name.endswith(".py")}
    return tuple(sorted(name for name in names - own - sys.stdlib_module_names - _OF_PYTEST if name.isidentifier()))


def cause_against_apart(tests: Mapping[str, str], modules: Iterable[str]) -> str:
    """Return why the tests cannot judge code that is in another process; empty where nothing speaks against it."""
    for name, text in tests.items():
        if not name.endswith(".py"):
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            continue
        if reason := _reason(tree, frozenset(modules)):
            return f"{name}: needs {reason}; the code has a process of its own, unless `trusts` is `report`"
    return ""


def _reason(tree: ast.Module, modules: frozenset[str]) -> str:
    imported = {
        (alias.asname or alias.name).partition(".")[0]: alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg in _FIXTURES:
            return _FIXTURES[node.arg]
        if (
            isinstance(node, ast.ImportFrom)
            and node.names[0].name == "*"
            and (node.module or "").split(".")[0] in modules
        ):
            return "`import *`, by which the code could replace names of the tests"
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in _CALLS:
            return _CALLS[called]
        if called in _PATCHING and node.args and (target := _patched(node.args[0], imported, modules)):
            return f"a replacement in {target!r} that reaches the code"
    return ""


def _patched(target: ast.expr, imported: Mapping[str, str], modules: frozenset[str]) -> str:
    """Return the module of somebody else that is replaced in; empty for one of the code or of the tests."""
    if isinstance(target, ast.Constant) and isinstance(target.value, str) and "." in target.value:
        top = target.value.partition(".")[0]
        return "" if top in modules else top
    while isinstance(target, ast.Attribute):
        target = target.value
    top = imported.get(target.id, "") if isinstance(target, ast.Name) else ""
    return "" if top in modules else top
