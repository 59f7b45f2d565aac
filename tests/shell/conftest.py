"""What tests of the definitions share."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from tests.hub_server import HubServer
from tests.shell.watched_sources import WatchedSources


@pytest.fixture
def sources(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[WatchedSources]:
    """Sources on a loopback server, in a checkout that the definitions are made of."""
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    with HubServer() as server:
        yield WatchedSources(small_checkout, server, varied_pairs)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance
