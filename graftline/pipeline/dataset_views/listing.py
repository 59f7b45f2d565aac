"""The datasets of the catalog, each with its terms, and with what is stored of it; and which of them a command is about."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.filesize import decimal

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError, GraftlineError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, DatasetRecord, load_record, load_verified
from graftline.core.secrets import open_secrets
from graftline.datasets.catalog import Catalog, Dataset
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.datasets.sources.mirror import is_mirrored
from graftline.datasets.splits import SPLITS, Split
from graftline.pipeline.dataset_views import Table
from graftline.pipeline.settings import load_settings

_SHORT = 12  # digits of a commit that are enough to tell it from another


def entries(paths: Paths, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return every dataset of the catalog, in the order of precedence.

    `access` is `open` where the source has no terms to be accepted, or a mirror, which asks for none, stands for it; else
    whether there is a token by which the source knows that they were. `size_bytes` is None where it is only known once the
    files are there. `stored` is None where nothing is; `fault` says why what is stored cannot be told.
    """
    catalog = load_settings(paths, environment).catalog
    has_terms = any(dataset.terms for dataset in catalog.datasets.values())
    access = _access(paths, environment) if has_terms else "open"
    listing = []
    for name, dataset in catalog.datasets.items():
        stored, fault = _read_stored(paths, name)
        is_from_mirror = bool(environment.get(MIRROR_VARIABLE)) and is_mirrored(dataset)
        listing.append(
            {
                "name": name,
                "is_used": name in catalog.used,
                "reader": dataset.reader,
                "url": dataset.url,
                "is_mirrored": is_from_mirror,
                "version": dataset.version,
                "is_followed": dataset.follow,
                "license": dataset.license,
                "access": access if dataset.terms and not is_from_mirror else "open",
                "size_bytes": _sum_pinned_bytes(dataset),
                "stored": stored,
                "fault": fault,
            }
        )
    return listing


def listing_table(datasets: Sequence[Mapping[str, Any]]) -> Table:
    """Return one row per dataset, of at most 120 characters; `--json` has the rest."""
    columns = ["dataset", "in use", "source", "version", "license", "access", "size", "rows", "edits"]
    return "Datasets", columns, [_listing_row(dataset) for dataset in datasets]


def _listing_row(dataset: Mapping[str, Any]) -> tuple[str, ...]:
    stored = dataset["stored"] or dict.fromkeys(("rows", "edits"))
    size = stored.get("size_bytes", dataset["size_bytes"])
    source = (dataset["url"] or "unknown").removeprefix("hf://datasets/")
    return (
        dataset["name"],
        "yes" if dataset["is_used"] else "no",
        "(mirrored)" if dataset["is_mirrored"] else _clip(source, 22),
        "newest" if dataset["is_followed"] else _clip(short_version(dataset["version"]), 8),
        _clip(dataset["license"], 12),
        dataset["access"].removeprefix("token "),
        "damaged" if dataset["fault"] else "" if size is None else decimal(size),
        *("" if count is None else f"{count:,}" for count in (stored["rows"], stored["edits"])),
    )


def _clip(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def short_version(version: str) -> str:
    """Return a version with as much of a commit as is enough to tell it from another."""
    head, separator, suffix = version.partition("+")
    return f"{head[:_SHORT]}{separator}{suffix}" if len(head) == 40 else version


def _access(paths: Paths, environment: Mapping[str, str]) -> str:
    try:
        return "token missing" if open_secrets(environment, paths.root).get("HF_TOKEN") is None else "token set"
    except GraftlineError:  # a list of datasets does not hang on Vault; what needs the token says what is wrong
        return "token unknown"


def _sum_pinned_bytes(dataset: Dataset) -> int | None:
    sizes = [file.size_bytes for file in dataset.files if file.size_bytes is not None]
    return sum(sizes) if sizes and len(sizes) == len(dataset.files) and not dataset.follow else None


def _read_stored(paths: Paths, name: str) -> tuple[dict[str, Any] | None, str]:
    """Return what the records say of a dataset, and why they cannot be read; counts are None before it is normalized."""
    if not paths.raw(name).exists():
        return None, ""
    try:
        raw = load_record(paths.raw(name))
        counts = load_record(paths.normalized(name)).counts if paths.normalized(name).exists() else None
    except RecordError as error:
        return None, str(error)
    if not isinstance(raw, DatasetRecord):
        return None, f"{paths.raw(name)}: holds {raw.kind!r}, but 'raw' was asked for"
    rejected = None if counts is None else sum(n for key, n in counts.items() if key.startswith("dropped."))
    return {
        "version": raw.version,
        "downloaded_at": raw.downloaded_at.isoformat(),
        "rows": raw.counts.get("rows", 0),
        "files": len(raw.files),
        "size_bytes": sum(file.size_bytes for file in raw.files.values()),
        "edits": None if counts is None else counts.get("rows", 0),
        "labels": None if counts is None else counts.get("labels", 0),
        "dropped": rejected,
    }, ""


def datasets_named(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Return `names`, each once; without any, the datasets in use."""
    for name in names:
        if name not in catalog.datasets:
            raise ConfigError(f"dataset {name!r} is unknown; known: {', '.join(sorted(catalog.datasets))}")
    return list(dict.fromkeys(names)) or list(catalog.used)


def sources_named(catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Return `names`, each once, none of them an evaluation; without any, the datasets in use that hold edits."""
    if not names:
        return list(catalog.sources)
    chosen = datasets_named(catalog, names)
    for name in chosen:
        if catalog.datasets[name].is_evaluation:
            sources = ", ".join(sorted(name for name, dataset in catalog.datasets.items() if not dataset.is_evaluation))
            raise ConfigError(f"dataset {name!r} is an evaluation, no edit is made of it; known: {sources}")
    return chosen


def find_normalized(paths: Paths, catalog: Catalog, names: Sequence[str]) -> list[str]:
    """Return which of the datasets called `names`, or of those in use, are normalized, their files verified.

    Those that are named have to be, and one at least.
    """
    chosen = sources_named(catalog, names)
    present = [name for name in chosen if (paths.normalized(name) / RECORD_NAME).exists()]
    missing = [name for name in chosen if name not in present]
    if missing and (names or not present):
        raise RecordError(
            f"dataset {missing[0]!r}: is not normalized yet; run 'graftline data build {missing[0]}' first"
        )
    for name in present:
        load_verified(paths.normalized(name), "normalized")
    return present


def partitions_named(catalog: Catalog, language: str | None, split: str | None) -> list[tuple[Language, Split]]:
    """Return the partitions of `language` and `split`; None stands for each of them."""
    for field, named, choices in (("language", language, catalog.languages), ("split", split, SPLITS)):
        if named is not None and named not in choices:
            raise ConfigError(f"{field} {named!r} is unknown; known: {', '.join(choices)}")
    return [
        (code, part)
        for code in catalog.languages
        for part in SPLITS
        if language in (None, code) and split in (None, part)
    ]
