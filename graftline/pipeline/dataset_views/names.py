"""Which datasets, languages and splits a command means."""

from collections.abc import Sequence

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError
from graftline.datasets.catalog import Catalog
from graftline.datasets.division import SPLITS, Split


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
    found = datasets_named(catalog, names)
    for name in found:
        if catalog.datasets[name].is_evaluation:
            known = ", ".join(sorted(name for name, one in catalog.datasets.items() if not one.is_evaluation))
            raise ConfigError(f"dataset {name!r} is an evaluation, no edit is made of it; known: {known}")
    return found


def partitions_named(catalog: Catalog, language: str | None, split: str | None) -> list[tuple[Language, Split]]:
    """Return the partitions of `language` and `split`; None stands for each of them.

    Raises:
        ConfigError: one is unknown.
    """
    for what, named, known in (("language", language, catalog.languages), ("split", split, SPLITS)):
        if named is not None and named not in known:
            raise ConfigError(f"{what} {named!r} is unknown; known: {', '.join(known)}")
    return [
        (of, part) for of in catalog.languages for part in SPLITS if language in (None, of) and split in (None, part)
    ]
