"""Addresses that a browser opens, of what records name: sources of datasets, licenses, models, services.

Files have none: the UI is shown over http, and no browser opens a file from there. They are shown as paths.
"""

import re
from collections.abc import Mapping

import dagster as dg

from graftline.datasets.catalog import NO_LICENSE

_HUB = "https://huggingface.co/"
_FILES_OF_GITHUB = re.compile(r"https://raw\.githubusercontent\.com/([^/]+/[^/]+)/([^/]+)")
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")
_NO_LICENSES = ("AND", "OR", "WITH", NO_LICENSE)


def source_page(source: str) -> str:
    """Return where people read about the source of a dataset; empty where there is no such page.

    hf://datasets/nuprl/CanItEdit        -> https://huggingface.co/datasets/nuprl/CanItEdit
    https://raw.githubusercontent.com/a/b/1f3c -> https://github.com/a/b/tree/1f3c
    """
    if source.startswith("hf://"):
        return _HUB + source.removeprefix("hf://").partition("@")[0]
    if files := _FILES_OF_GITHUB.match(source):
        return f"https://github.com/{files[1]}/tree/{files[2]}"
    return source if source.startswith("https://") else ""


def model_page(card: str) -> str:
    """Return the card of a model of the hub, `<owner>/<name>`; empty for any other name."""
    return _HUB + card if re.fullmatch(r"[\w.-]+/[\w.-]+", card) else ""


def shown_at(page: str, otherwise: str = "") -> dg.MetadataValue[str | None]:
    """Return a link to `page`; where that is no address of the web, a text: `otherwise`, or what it is."""
    if page.startswith(("https://", "http://")):
        return dg.MetadataValue.url(page)
    return dg.MetadataValue.text(otherwise or page)


def with_licenses(expression: str) -> str:
    """Return an SPDX expression as Markdown, in which every license leads to its text."""
    return _NAME.sub(lambda match: _license(match[0]), expression)


def license_rows(counts: Mapping[str, int]) -> list[dict[str, str | int]]:
    """Return how many rows there are of each license, as rows of a table."""
    return [{"license": with_licenses(name), "rows": number} for name, number in counts.items()]


def _license(name: str) -> str:
    if name in _NO_LICENSES or name.startswith("LicenseRef-"):
        return name
    return f"[{name}](https://spdx.org/licenses/{name}.html)"
