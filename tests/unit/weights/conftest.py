"""A root with a catalog of models, and a server for their places."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hub_server import HubServer
from tests.unit.weights.places import CONTENT, Places


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """A root with nothing fetched, and a server that has nothing."""
    with HubServer() as server:
        yield Places(tmp_path / "root", server)


@pytest.fixture
def stored(places: Places) -> Places:
    """A root with the weights in its folder, which nobody has read."""
    places.configure(places.hub())
    places.folder.mkdir(parents=True)
    places.target.write_bytes(CONTENT)
    return places


@pytest.fixture(autouse=True)
def _a_root(tmp_path: Path) -> None:
    (tmp_path / "root" / "configs" / "manifests").mkdir(parents=True)
