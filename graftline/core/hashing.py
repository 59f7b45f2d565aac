"""Digests: of files, of JSON-like values, and of the code that produces an artifact."""

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

_CHUNK_BYTES = 1 << 20
_IMPORT = re.compile(r"^[ \t]*(?:from +([\w.]+) +import +(\([^)]*\)|.*)|import +(.*))", re.MULTILINE)


def sha256_text(text: str) -> str:
    """Return the hex digest of `text`; lone surrogates are kept apart rather than refused."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sha256_bytes(data: bytes) -> str:
    """Return the hex digest of `data`."""
    return hashlib.sha256(data).hexdigest()


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
    pending, sources = list(modules), dict[str, str]()
    while pending:
        name = pending.pop()
        if name not in sources:
            sources[name], imported = _source(name)
            pending += imported
    return digest(sources)[:16]


@cache
def _source(module: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of the source of `module`, and what it imports of this package; stages share most of them."""
    path = _path(module)
    if path is None:
        raise ValueError(f"{module!r}: no such module")
    text, data = path.read_text("utf-8"), path.with_suffix(".yaml")
    # what a module reads beside itself decides as its text does
    content = text + data.read_text("utf-8") if data.is_file() else text
    return sha256_text(content), tuple(name for name in _imports(text) if _path(name) is not None)


def _imports(source: str) -> list[str]:
    """Return what `source`, laid out as a formatter does, imports: parsing all modules takes most of a second."""
    names = []
    for origin, members, modules in _IMPORT.findall(source):
        named = [words.split()[0] for words in (members or modules).strip("()").split(",") if words.split()]
        names += [origin, *(f"{origin}.{name}" for name in named)] if origin else named
    return names


@cache
def _path(module: str) -> Path | None:
    """Return the source of a module of this package, found by its name: a look by import would load its parents."""
    root, *parts = module.split(".")
    if root != __name__.partition(".")[0]:
        return None
    stem = Path(__file__).parents[1].joinpath(*parts)
    return next((path for path in (stem / "__init__.py", Path(f"{stem}.py")) if path.is_file()), None)
