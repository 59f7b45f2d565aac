"""Imports inside functions, and those from packages that load lazily, which no type checker follows, lead to something."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
FOLDERS = ("graftline", "orchestration", "sensors", "assets", "resources", "benchmarks", "examples", "tests")
OURS = ("graftline", "orchestration", "sensors", "assets", "resources", "benchmarks", "tests")


def source_of(module: str) -> Path | None:
    stem = CHECKOUT.joinpath(*module.split("."))
    return next((path for path in (stem / "__init__.py", Path(f"{stem}.py")) if path.is_file()), None)


@cache
def names_of(path: Path) -> frozenset[str]:
    """Return what a module binds, conditions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
    return frozenset(names)


def faults_of(path: Path) -> list[str]:
    faults = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.level or (node.module or "").partition(".")[0] not in OURS:
            continue
        module = node.module or ""
        source = source_of(module)
        for alias in node.names:
            is_there = source_of(f"{module}.{alias.name}") or (source and alias.name in names_of(source))
            if not is_there and source and "__getattr__" in names_of(source):
                is_there = hasattr(import_module(module), alias.name)
            is_folder = CHECKOUT.joinpath(*module.split("."), alias.name).is_dir()
            if not is_there and not is_folder:
                faults.append(f"{path.relative_to(CHECKOUT)}:{node.lineno}: from {module} import {alias.name}")
    return faults


def test_every_import_of_our_own_leads_to_something() -> None:
    files = [path for folder in FOLDERS for path in (CHECKOUT / folder).rglob("*.py")]
    assert [fault for path in files for fault in faults_of(path)] == []
