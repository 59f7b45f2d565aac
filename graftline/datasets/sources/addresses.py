"""Every home by what it is: a folder of the checkout, an address, a registry."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from graftline.core.download import Advance, Download
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import DatasetHub, Observation
from graftline.datasets.sources.local import local_hub


class HomesHub:
    """The hub of every home, each asked in its own way."""

    def __init__(self, root: Path, patience: RetryPolicy, secrets: Secrets, huggingface: str | None) -> None:
        self._root, self._patience, self._secrets, self._huggingface = root, patience, secrets, huggingface
        self._opened: dict[str, DatasetHub] = {}

    def revision(self, name: str, dataset: Dataset) -> str:
        return self._of(dataset).revision(name, dataset)

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        return self._of(dataset).observe(name, dataset, known)

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return self._of(dataset).is_home(name, dataset)

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        return self._of(dataset).files(name, dataset)

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return self._of(dataset).fetch(name, dataset, file, target, advance)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return self._of(dataset).stream(name, dataset, file)

    def _of(self, dataset: Dataset) -> DatasetHub:
        kind = _kind(dataset)
        if kind not in self._opened:
            self._opened[kind] = self._open(kind)
        return self._opened[kind]

    def _open(self, kind: str) -> DatasetHub:
        # each imports the library of its homes
        match kind:
            case "registry":
                from graftline.datasets.sources.registry import RegistryHub

                return RegistryHub(self._patience)
            case "huggingface":
                from graftline.datasets.sources.huggingface import HuggingFaceHub

                return HuggingFaceHub(self._patience, self._secrets, self._huggingface)
            case "http":
                from graftline.datasets.sources.http import HttpHub

                return HttpHub(self._patience)
            case "filesystem":
                from graftline.datasets.sources.filesystem import filesystem_hub

                return filesystem_hub(self._patience)
            case _:
                return local_hub(self._root)


def _kind(dataset: Dataset) -> str:
    if dataset.reader == "package_releases":
        return "registry"
    scheme, separator, _ = (dataset.home or "").partition("://")
    if not separator:
        return "local"
    return {"hf": "huggingface", "https": "http", "http": "http"}.get(scheme.lower(), "filesystem")
