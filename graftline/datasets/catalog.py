"""Which datasets there are and how their rows become splits: the shape of `configs/datasets.yaml`."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from graftline.astgrep.binding import Language
from graftline.core.config import Config
from graftline.core.errors import ConfigError, DataError
from graftline.core.paths import portable
from graftline.core.tokens import TokenizerName
from graftline.datasets.readers import ReaderName
from graftline.datasets.repository_changes.settings import RepositoryChangesConfig

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]

NO_LICENSE = "NOASSERTION"
"""SPDX for a license that nobody stated."""


class DatasetFile(Config):
    """One file of a dataset, relative to its source, or all that fit a pattern."""

    path: str = Field(min_length=1)
    """`*` stands for any part of one name; a pattern cannot be pinned."""
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Where it is known, anything else is refused; where it is not, damaged rows are counted drops."""
    size_bytes: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _is_portable(self) -> Self:
        try:
            portable(self.path.replace("*", "x"))
        except DataError as error:
            raise ValueError(str(error)) from None
        if self.is_pattern and (self.sha256 or self.size_bytes is not None):
            raise ValueError(f"{self.path!r} may stand for several files, so it cannot have one sha256 or size_bytes")
        return self

    @property
    def is_pattern(self) -> bool:
        """Whether it may stand for several files."""
        return "*" in self.path


class PackageRelease(Config):
    """Two releases of one package, for `package_releases`."""

    registry: Literal["pypi", "npm"]
    name: str = Field(pattern=r"^(@[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*$")
    old: str = Field(pattern=r"^[0-9A-Za-z][\w.+!-]*$")
    new: str = Field(pattern=r"^[0-9A-Za-z][\w.+!-]*$")
    old_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Of the archive of the old release, as `_meta.json` of the raw dataset has it; where stated, anything else is
    refused."""
    new_sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")


RowField = Literal["before", "after", "instruction", "language", "path", "group", "commit", "license"]
"""What a row of the reader `edits` may hold."""


class Dataset(Config):
    """Where a dataset lives and on what terms."""

    reader: ReaderName
    url: str | None = Field(default=None, validation_alias=AliasChoices("url", "home"))
    """A folder below the root of the checkout, or a URL: `hf://datasets/<owner>/<name>`, `https://…`, or another that
    fsspec knows. Unset: nobody knows it, and it has to be stated before the dataset can be used."""
    version: str
    """The revision that is fetched: a commit where the source has commits."""
    license: str
    """SPDX expression of the whole. Rows that carry their own are judged by that, others by `licenses`, then by this."""
    licenses: dict[str, str] = Field(default_factory=dict, validation_alias=AliasChoices("licenses", "licences"))
    """SPDX identifier by repository (`owner/name`, or `owner/*`), where rows carry none."""
    files: tuple[DatasetFile, ...] = ()
    columns: tuple[str, ...] = ()
    """What every row must have; a table without one of them is refused."""
    fields: dict[RowField, str] = Field(default_factory=dict)
    """Of the reader `edits`: the column that each part of a row is in."""
    language: Language | None = None
    """Of the reader `edits`: that of rows that do not say theirs, neither in a column nor by the ending of a path."""
    terms: str | None = None
    """Page on which the terms are accepted; the source then wants `HF_TOKEN`."""
    follow: bool = False
    """Whether the newest revision of the source is fetched instead of `version`; checksums then hold no longer."""
    keep: Literal["all", "wanted"] = "all"
    """Whether raw files are kept whole, or read as they come and only rows the reader can use are kept."""
    packages: tuple[PackageRelease, ...] = ()
    """What `package_releases` compares."""

    @model_validator(mode="after")
    def _has_files(self) -> Self:
        if (self.reader == "package_releases") == (not self.packages):
            raise ValueError("`packages` belong to the reader package_releases, and to it alone")
        if self.reader != "edits" and (self.fields or self.language):
            raise ValueError("`fields` and `language` belong to the reader edits alone")
        if self.reader == "edits" and not {"before", "after"} <= self.fields.keys():
            raise ValueError("expected in `fields` which columns are `before` and `after`")
        if not self.files and not self.packages:
            raise ValueError("expected at least one entry in `files`")
        return self

    @property
    def is_evaluation(self) -> bool:
        """Whether no row of it may be trained on: edits are kept away from it."""
        return self.reader == "evaluation"

    @property
    def holds_releases(self) -> bool:
        """Whether its edits are functions of two releases of a package."""
        return self.reader in ("package_releases", "release_pairs")

    def license_of(self, repository: str) -> str:
        """Return the license of a row of `repository` that carries none itself."""
        return license_by_pattern(self.licenses, repository, self.license)


def license_by_pattern(licenses: Mapping[str, str], repository: str, default: str) -> str:
    """Return the license of the first pattern (`owner/name`, `owner/*`) that `repository` fits, in any case of letters."""
    for pattern, license in licenses.items():
        if fnmatchcase(repository.lower(), pattern.lower()):
            return license
    return default


class Cleaning(Config):
    """What a row must be to become an edit."""

    licenses: tuple[str, ...] = Field(
        default=("MIT", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC"),
        validation_alias=AliasChoices("licenses", "licences"),
    )
    """Allow-list of SPDX identifiers, judged row by row."""
    max_line_bytes: int = Field(default=2 << 20, ge=1024)
    max_pre_tokens: int = Field(default=2000, ge=1)
    tokenizer: TokenizerName = "characters/4"
    check_syntax: bool = True
    """Whether both sides must parse; without it a language is what the row says it is."""


class Splitting(Config):
    """How edits that were never assigned are divided; see `datasets.splits`."""

    seed: int = 0
    train: float = Field(default=0.8, gt=0, lt=1)
    dev: float = Field(default=0.1, gt=0, lt=1)
    test: float = Field(default=0.1, gt=0, lt=1)
    near_duplicate: float = Field(default=0.7, gt=0, le=1)
    """Least similarity (Jaccard, of 16-byte shingles) of two texts before that must not straddle two splits."""

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(f"train, dev and test must add up to 1, not {self.train + self.dev + self.test:g}")
        return self


class Decontamination(Config):
    """Which edits are too near to an evaluation; see `datasets.decontaminate`."""

    shared: float = Field(default=0.5, gt=0, le=1)
    """Share of the 32-byte shingles of an evaluation text, or of the edit, that both hold."""


class Synthesis(Config):
    """How many synthetic edits are made, from which seed."""

    seed: int = 0
    per_partition: int = Field(default=40, ge=0)
    """At most, for each language and split."""
    per_snippet: int = Field(default=8, ge=1)
    """At most, of one text."""


class Catalog(Config):
    """`configs/datasets.yaml`."""

    languages: tuple[Language, ...] = Field(min_length=1)
    """Of the splits; edits in another language are normalized and counted, but not split."""
    datasets: dict[Name, Dataset] = Field(min_length=1)
    """In the order of precedence: of two equal edits, that of the earlier dataset is kept."""
    use: tuple[Name, ...] = Field(min_length=1)
    """The datasets that runs use, unless `GRAFTLINE_DATASETS` or a mirror says otherwise."""
    cleaning: Cleaning = Cleaning()
    splitting: Splitting = Splitting()
    decontamination: Decontamination = Decontamination()
    synthesis: Synthesis = Synthesis()
    repository_changes: RepositoryChangesConfig = RepositoryChangesConfig()
    """Changes that span a repository; see `datasets.repository_changes`."""

    @model_validator(mode="after")
    def _uses_require_known(self) -> Self:
        _require_known(self.use, self.datasets, "use")
        return self

    @property
    def used(self) -> dict[str, Dataset]:
        """The datasets that runs use, in the order of precedence."""
        return {name: dataset for name, dataset in self.datasets.items() if name in self.use}

    @property
    def sources(self) -> dict[str, Dataset]:
        """The datasets in use that hold edits."""
        return {name: dataset for name, dataset in self.used.items() if not dataset.is_evaluation}

    def snippets_of(self, language: Language) -> tuple[Language, ...]:
        """Return the languages whose edits synthetic ones of `language` are made on: JavaScript is TypeScript too."""
        also = "javascript" in self.languages and language == "typescript"
        return (language, "javascript") if also else (language,)

    def using(self, names: tuple[str, ...], source: str) -> Self:
        """Return the catalog with other datasets in use; `source` says who names them.

        Raises:
            ConfigError: one of them is unknown.
        """
        try:
            _require_known(names, self.datasets, source)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        return self.model_copy(update={"use": names})


def _require_known(names: tuple[str, ...], datasets: Mapping[str, Dataset], source: str) -> None:
    unknown = [name for name in names if name not in datasets]
    if unknown or not names:
        fault = f"dataset {unknown[0]!r} is unknown" if unknown else "no dataset is named"
        raise ValueError(f"{source}: {fault}; known: {', '.join(sorted(datasets))}")
