"""The datasets as they are: one module each, which knows the files of its dataset and makes edits of their rows."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from graftline.datasets.readers.base import Source

ReaderName = Literal[
    "agentpack",
    "commitpackft",
    "editpackft",
    "edits",
    "evaluation",
    "marv",
    "oce_dataft",
    "package_releases",
    "recorded",
    "release_pairs",
    "smellycode",
]


def source_of(reader: ReaderName) -> "Source[Any]":
    """Return how the datasets of `reader` are read; not for `evaluation`, whose rows are looked at by nothing but
    `datasets.decontaminate`."""
    # by name, so that the code version of one dataset does not hang on the readers of the others
    source: Source[Any] = import_module(f"{__name__}.{reader}").SOURCE
    return source
