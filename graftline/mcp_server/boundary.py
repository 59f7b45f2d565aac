"""The root that the server never leaves, and what is taken out of its results.

Covered: absolute paths, `..`, symbolic links at any place of a path, the folder of git. Not covered: somebody who can change
folders of the root while a call runs; and git's own objects, which may lie elsewhere, as those of a worktree do.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from graftline.core.errors import DataError
from graftline.core.secret_finds import redact
from graftline.core.secrets import Secrets, local_secrets

_MAX_DOTENV_BYTES = 1 << 20
ModelT = TypeVar("ModelT", bound=BaseModel)


def resolve_path(root: Path, name: str) -> Path:
    """Return where `name`, absolute or from `root`, leads to; `root` is resolved.

    DataError if that is outside of `root`, or in the folder of git.
    """
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise DataError(f"{name[:200]!r}: is no path that can be followed ({error})") from None
    if not path.is_relative_to(root):
        raise DataError(f"{name[:200]!r}: leads out of the root {root}; name a file or folder below it")
    if ".git" in path.relative_to(root).parts:
        raise DataError(f"{name[:200]!r}: is in the folder of git, which no rule changes; name source files")
    return path


def check_inside(root: Path, path: Path) -> None:
    """Raise DataError if `path` leads out of `root` now, whatever it was when it was read."""
    if not path.resolve().is_relative_to(root):
        raise DataError(f"{path}: leads out of the root {root} since it was read; nothing was changed")


def find_secrets(environment: Mapping[str, str], root: Path) -> Secrets:
    """Return the secrets of the environment, and of the `.env` file of `root` if that is a plain file of it."""
    dotenv = root / ".env"
    is_plain = dotenv.is_file() and not dotenv.is_symlink() and dotenv.stat().st_size <= _MAX_DOTENV_BYTES
    return local_secrets(environment, root if is_plain else Path(os.devnull))


def redact_result(result: ModelT, secrets: Secrets) -> ModelT:
    """Return `result` with every secret in its texts replaced: known values, and what has the shape of one."""
    return type(result).model_validate(_redact(result.model_dump(), secrets))


def redact_text(text: str, secrets: Secrets) -> str:
    """Return `text` without secrets."""
    return redact(secrets.redact(text))


def _redact(value: object, secrets: Secrets) -> object:
    if isinstance(value, str):
        return redact_text(value, secrets)
    if isinstance(value, list | tuple):
        return [_redact(item, secrets) for item in value]
    if isinstance(value, dict):
        return {key: _redact(item, secrets) for key, item in value.items()}
    return value
