"""Servers that the tests of the pool share; each test finds them as if just started. And a fleet that is kept running."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kept_fleet import KeptFleet
from tests.protocol_server import ProtocolServer


@pytest.fixture(scope="session")
def _two_servers() -> Iterator[tuple[ProtocolServer, ProtocolServer]]:
    with ProtocolServer() as first, ProtocolServer() as second:
        yield first, second


@pytest.fixture
def server(_two_servers: tuple[ProtocolServer, ProtocolServer]) -> ProtocolServer:
    _two_servers[0].renew()
    return _two_servers[0]


@pytest.fixture
def other(_two_servers: tuple[ProtocolServer, ProtocolServer]) -> ProtocolServer:
    _two_servers[1].renew()
    return _two_servers[1]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptFleet]:
    fleet = KeptFleet(tmp_path)
    yield fleet
    fleet.down()
