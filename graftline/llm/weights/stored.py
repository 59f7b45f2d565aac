"""The folder of models: what lies there, and whether it is what the catalog pins.

Reading weights takes its time, so a file that was found right is remembered beside it, in `.<file>.verified`, with its
size and time; one that was written to since is read again.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graftline.core.download import partial_bytes, pin_fault
from graftline.core.errors import ModelError, RecordError
from graftline.core.hashing import sha256_file
from graftline.core.paths import Paths
from graftline.core.record import load_verified, write_atomically
from graftline.llm.weights.catalog import Weights, load_models

FOLDER_VARIABLE = "GRAFTLINE_MODELS"
"""Names the folder, in the environment, so that checkouts and machines can share one."""
CONVERTED_KIND = "safetensors"
"""Of the record of converted weights."""

State = Literal["verified", "not verified", "altered", "in part", "missing"]


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model of the catalog, and what is stored of it."""

    name: str
    card: str
    licence: str
    size_bytes: int
    path: Path
    state: State
    """`not verified`: it was not read since it was written; `altered`: it has another size."""
    converted: Path | None
    """Where its safetensors are, if there are any."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was read of a model."""

    name: str
    path: Path
    fault: str
    """What is wrong with it, and what to do; empty where it is right."""


def models_folder(paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return the folder that `GRAFTLINE_MODELS` names, else the one of this root."""
    named = environment.get(FOLDER_VARIABLE)
    return Path(named).expanduser().absolute() if named else paths.data / "models"


def model_file(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return where the weights called `name` lie, once they are known to be the pinned ones.

    Raises:
        ConfigError: there are none of that name.
        ModelError: they are not there, or are something else.
    """
    weights = load_models(paths).weights(name)
    path = models_folder(paths, environment) / weights.file
    if not is_right(path, weights):
        fault = "is not the pinned file" if path.exists() else "is not there"
        raise ModelError(f"model {name!r}: {path} {fault}; run `graftline models fetch {name}`")
    return path


def converted_folder(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return where the safetensors made of the weights called `name` lie, once they are known to be right.

    Raises:
        ConfigError: there are no weights of that name.
        ModelError: they are not there, were altered, or were made of other weights.
    """
    weights = load_models(paths).weights(name)
    folder = converted_path(name, paths, environment)
    if fault := _converted_fault(folder, weights):
        raise ModelError(f"model {name!r}: {fault}; run `graftline models convert {name} --python PYTHON`")
    return folder


def converted_path(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return where the safetensors made of the weights called `name` belong."""
    return models_folder(paths, environment) / f"{name}-safetensors"


def stored_models(paths: Paths, environment: Mapping[str, str]) -> list[StoredModel]:
    """Return every model of the catalog, without reading weights.

    Raises:
        ConfigError: the catalog cannot be read.
    """
    found = []
    for name, weights in load_models(paths).models.items():
        path = models_folder(paths, environment) / weights.file
        folder = converted_path(name, paths, environment)
        converted = folder if folder.is_dir() else None
        found.append(
            StoredModel(name, weights.card, weights.licence, weights.size_bytes, path, _state(path, weights), converted)
        )
    return found


def verify_models(names: Sequence[str], paths: Paths, environment: Mapping[str, str]) -> list[Verified]:
    """Read the weights called `names`, those that are there if none is named, and what was made of them.

    Raises:
        ConfigError: a name is unknown.
    """
    catalog = load_models(paths)
    found = []
    for name in names or catalog.models:
        weights = catalog.weights(name)
        path = models_folder(paths, environment) / weights.file
        if names or path.exists():
            fault = _read(path, weights)
            found.append(Verified(name, path, f"{fault}; run `graftline models fetch {name}`" if fault else ""))
        folder = converted_path(name, paths, environment)
        if folder.exists():
            fault = _converted_fault(folder, weights)
            found.append(
                Verified(
                    name, folder, f"{fault}; run `graftline models convert {name} --python PYTHON`" if fault else ""
                )
            )
    return found


def is_right(path: Path, weights: Weights) -> bool:
    """Return whether `path` holds `weights`; it is read only where nobody remembers that it does."""
    return _state(path, weights) == "verified" or not _read(path, weights)


def remember(path: Path, weights: Weights) -> None:
    """Remember that `path` was checked to be `weights` as it was written."""
    _remember(path, weights, path.stat())


def _state(path: Path, weights: Weights) -> State:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "in part" if partial_bytes(path) else "missing"
    if found.st_size != weights.size_bytes:
        return "altered"
    try:
        noted = json.loads(_note(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return "not verified"
    return "verified" if noted == _facts(weights.sha256, found.st_size, found.st_mtime_ns) else "not verified"


def _read(path: Path, weights: Weights) -> str:
    """Read `path`, remember it if it is right, and return what is wrong with it otherwise."""
    try:
        found = path.stat()
        fault = pin_fault(weights, found.st_size, weights.sha256) or pin_fault(
            weights, found.st_size, sha256_file(path)
        )
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is not there"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    if fault:
        _note(path).unlink(missing_ok=True)
        return f"{path} is not the pinned file"
    _remember(path, weights, found)
    return ""


def _remember(path: Path, weights: Weights, found: os.stat_result) -> None:
    # a shared folder may be one that we may only read
    with suppress(OSError):
        write_atomically(_note(path), json.dumps(_facts(weights.sha256, found.st_size, found.st_mtime_ns)))


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _facts(sha256: str, size_bytes: int, mtime_ns: int) -> dict[str, str | int]:
    return {"sha256": sha256, "size_bytes": size_bytes, "mtime_ns": mtime_ns}


def _converted_fault(folder: Path, weights: Weights) -> str:
    try:
        record = load_verified(folder, CONVERTED_KIND)
    except RecordError as error:
        return str(error).partition(";")[0]
    made_of = record.inputs.get("weights")
    return "" if made_of == weights.sha256 else f"{folder} was made of other weights ({made_of})"
