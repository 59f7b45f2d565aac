"""Which datasets there are and how their rows become splits: the shape of `configs/datasets.yaml`."""

from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, model_validator

from graftline.actions.astgrep import Language
from graftline.config import Config
from graftline.datasets.sources import ReaderName

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]


class DatasetFile(Config):
    """One file of a dataset, relative to its home."""

    path: str = Field(pattern=r"^(.*/)?[^./][^/]*\.jsonl(\.gz)?$")
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Where it is known, anything else is refused; where it is not, damaged rows are counted drops."""
    size_bytes: int | None = Field(default=None, ge=0)


class Dataset(Config):
    """Where a dataset lives and on what terms."""

    reader: ReaderName
    home: str
    """Folder, relative to the root of the checkout."""
    version: str
    license: str
    """SPDX expression; rows that carry their own are judged by that."""
    files: tuple[DatasetFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        # they are fetched into one folder, where the last of two would replace the first
        names = [PurePosixPath(file.path).name for file in self.files]
        if len(set(names)) < len(names):
            raise ValueError(f"files must differ in their last part, not only in their folder: {', '.join(names)}")
        return self


class Cleaning(Config):
    """What a row must be to become an edit."""

    licences: tuple[str, ...] = ("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC")
    """Allow-list of SPDX identifiers, judged row by row."""
    max_line_bytes: int = Field(default=2 << 20, ge=1024)
    max_pre_tokens: int = Field(default=2000, ge=1)


class Splitting(Config):
    """How edits are divided; see `datasets.split`."""

    seed: int = 0
    train: float = Field(default=0.8, gt=0, lt=1)
    dev: float = Field(default=0.1, gt=0, lt=1)
    test: float = Field(default=0.1, gt=0, lt=1)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(f"train, dev and test must add up to 1, not {self.train + self.dev + self.test:g}")
        return self


class Synthesis(Config):
    """How many synthetic edits are made, from which seed."""

    seed: int = 0
    per_partition: int = Field(default=40, ge=0)
    """At most, for each language and split."""


class Catalogue(Config):
    """`configs/datasets.yaml`."""

    languages: tuple[Language, ...] = Field(min_length=1)
    """Of the splits; edits in another language are normalised and counted, but not split."""
    datasets: dict[Name, Dataset] = Field(min_length=1)
    cleaning: Cleaning = Cleaning()
    splitting: Splitting = Splitting()
    synthesis: Synthesis = Synthesis()
