"""The lineage of a root folder, opened as a test wants it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graftline.core.paths import Paths
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import load_manifest

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
Opened = Callable[[], AbstractContextManager[Lineage]]
"""Opens one lineage as often as it is called."""
Run = Callable[..., dict[str, str]]
"""Brings everything below a root up to date; returns by `stage name` why it was made, empty if it was not."""


class Quiet:
    """A `Progress` that shows nothing."""

    def start(self, stage: str, name: str) -> None:
        pass

    def advance(self, done: int, total: int) -> None:
        pass

    def finish(self, reason: str) -> None:
        pass

    def fail(self) -> None:
        pass


@contextmanager
def opened_at(root: Path, ports: Mapping[str, Any] | None = None, manifest: str = "local") -> Iterator[Lineage]:
    """Open the lineage of a root with the ports of a manifest, some of them replaced."""
    paths = Paths(root)
    with open_lineage(paths, load_manifest(paths, manifest, ports), "test", lambda: NOON) as lineage:
        yield lineage
