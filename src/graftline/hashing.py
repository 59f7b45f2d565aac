"""Digests: of files, of JSON-like values, and of the code that produces an artefact."""

import ast
import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20


def sha256_text(text: str) -> str:
    """Return the hex digest of `text`; lone surrogates are kept apart rather than refused."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_file(path: Path) -> str:
    """Return the hex digest of the bytes of `path`."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def canonical_json(value: Any) -> str:
    """Return the one JSON text of `value`: sorted keys, no blanks, no NaN.

    Raises:
        TypeError, ValueError: `value` holds something JSON cannot say; a digest over its `repr` would change
            from run to run.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """Return the hex digest of a JSON-like value."""
    return sha256_text(canonical_json(value))


@cache
def code_version(*modules: str) -> str:
    """Return a digest of the source of `modules` and of all they import inside this package.

    The imports are read from the source, not from `sys.modules`, so the answer is the same whatever else the
    process has loaded.
    """
    root = __name__.partition(".")[0]
    pending, sources = list(modules), dict[str, str]()
    while pending:
        name = pending.pop()
        if name in sources:
            continue
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ValueError(f"{name!r}: no such module")
        text = Path(spec.origin).read_text("utf-8")
        sources[name] = sha256_text(text)
        pending += [found for found in _imports(text) if found.partition(".")[0] == root]
    return digest(sources)[:16]


def _imports(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.append(node.module)
            names += [name for alias in node.names if _is_module(name := f"{node.module}.{alias.name}")]
    return names


def _is_module(name: str) -> bool:
    if not name.startswith(__name__.partition(".")[0] + "."):
        return False
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
