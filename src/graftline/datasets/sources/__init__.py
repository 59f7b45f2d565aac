"""The readers of the datasets, one module each; a reader turns one row of its dataset into an edit."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from graftline.datasets.edit import Drop, Edit
from graftline.datasets.sources import release_pairs

ReaderName = Literal["release_pairs"]
Reader = Callable[[Mapping[str, Any]], Edit | Drop]

READERS: Mapping[ReaderName, Reader] = {"release_pairs": release_pairs.edit_of}
