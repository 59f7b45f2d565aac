"""The datasets of the catalog, each with its terms, and with what is stored of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError, GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import DatasetRecord, load_record
from graftline.core.secrets import open_secrets
from graftline.datasets.catalog import Catalog, Dataset
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.datasets.sources.mirror import is_mirrored
from graftline.datasets.splits import SPLITS, Split
from graftline.pipeline.settings import load_settings

Access = Literal["open", "token set", "token missing", "token unknown"]
"""Whether a home has terms to be accepted, and whether there is a token by which it knows that they were; a mirror asks
for none. `unknown`: Vault does not answer."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of a dataset, by its records alone."""

    version: str
    downloaded_at: str
    rows: int
    files: int
    size_bytes: int
    edits: int | None
    """None before it is normalized; so are the others."""
    labels: int | None
    dropped: int | None


@dataclass(frozen=True, slots=True)
class Entry:
    """One dataset."""

    name: str
    is_used: bool
    reader: str
    home: str | None
    is_mirrored: bool
    """Whether a mirror stands for its home now."""
    version: str
    is_followed: bool
    """Whether the newest revision is fetched, whatever `version` says."""
    licence: str
    access: Access
    size_bytes: int | None
    """Of its files, where all of them are pinned; None where it is only known once they are there."""
    stored: Stored | None
    fault: str
    """Why what is stored cannot be told; empty where it can, or where there is nothing."""


def entries(paths: Paths, environment: Mapping[str, str]) -> list[Entry]:
    """Return every dataset of the catalog, in the order of precedence.

    Raises:
        ConfigError: the catalog does not fit, or `environment` names an unknown dataset.
        DownloadError: the mirror cannot be read.
    """
    catalog = load_settings(paths, environment).catalog
    has_terms = any(dataset.terms for dataset in catalog.datasets.values())
    token = _token(paths, environment) if has_terms else "open"
    listing = []
    for name, dataset in catalog.datasets.items():
        stored, fault = _read_stored(paths, name)
        mirrored = bool(environment.get(MIRROR_VARIABLE)) and is_mirrored(dataset)
        listing.append(
            Entry(
                name=name,
                is_used=name in catalog.used,
                reader=dataset.reader,
                home=dataset.home,
                is_mirrored=mirrored,
                version=dataset.version,
                is_followed=dataset.follow,
                licence=dataset.license,
                access=token if dataset.terms and not mirrored else "open",
                size_bytes=_sum_pinned_bytes(dataset),
                stored=stored,
                fault=fault,
            )
        )
    return listing


def _token(paths: Paths, environment: Mapping[str, str]) -> Access:
    try:
        return "token missing" if open_secrets(environment, paths.root).get("HF_TOKEN") is None else "token set"
    except GraftlineError:  # a list of datasets does not hang on Vault; what needs the token says what is wrong
        return "token unknown"


def _sum_pinned_bytes(dataset: Dataset) -> int | None:
    sizes = [file.size_bytes for file in dataset.files if file.size_bytes is not None]
    return sum(sizes) if sizes and len(sizes) == len(dataset.files) and not dataset.follow else None


def _read_stored(paths: Paths, name: str) -> tuple[Stored | None, str]:
    if not paths.raw(name).exists():
        return None, ""
    try:
        raw = load_record(paths.raw(name))
        normalized = load_record(paths.normalized(name)) if paths.normalized(name).exists() else None
    except RecordError as error:
        return None, str(error)
    if not isinstance(raw, DatasetRecord):
        return None, f"{paths.raw(name)}: holds {raw.kind!r}, but 'raw' was asked for"
    counts = normalized.counts if normalized else {}
    stored = Stored(
        version=raw.version,
        downloaded_at=raw.downloaded_at.isoformat(),
        rows=raw.counts.get("rows", 0),
        files=len(raw.files),
        size_bytes=sum(file.size_bytes for file in raw.files.values()),
        edits=counts.get("rows", 0) if normalized else None,
        labels=counts.get("labels", 0) if normalized else None,
        dropped=sum(count for key, count in counts.items() if key.startswith("dropped.")) if normalized else None,
    )
    return stored, ""


def datasets_named(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Return `names`, each once; without any, the datasets in use.

    Raises:
        ConfigError: one is unknown.
    """
    for name in names:
        if name not in catalog.datasets:
            raise ConfigError(f"dataset {name!r} is unknown; known: {', '.join(sorted(catalog.datasets))}")
    return list(dict.fromkeys(names)) or list(catalog.used)


def sources_named(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Return `names`, each once; without any, the datasets in use that hold edits.

    Raises:
        ConfigError: one is unknown, or an evaluation.
    """
    if not names:
        return list(catalog.sources)
    chosen = datasets_named(catalog, names)
    for name in chosen:
        if catalog.datasets[name].is_evaluation:
            sources = ", ".join(sorted(name for name, dataset in catalog.datasets.items() if not dataset.is_evaluation))
            raise ConfigError(f"dataset {name!r} is an evaluation, no edit is made of it; known: {sources}")
    return chosen


def partitions_named(catalog: Catalog, language: str | None, split: str | None) -> list[tuple[Language, Split]]:
    """Return the partitions of `language` and `split`; None stands for each of them.

    Raises:
        ConfigError: one is unknown.
    """
    for field, named, choices in (("language", language, catalog.languages), ("split", split, SPLITS)):
        if named is not None and named not in choices:
            raise ConfigError(f"{field} {named!r} is unknown; known: {', '.join(choices)}")
    return [
        (code, part)
        for code in catalog.languages
        for part in SPLITS
        if language in (None, code) and split in (None, part)
    ]
