"""Databases of the service, one of each kind, for one test each; and proxies before models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres_server import new_database, postgres_server
from tests.unit.harbor.proxied import Open, proxies


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'harbor.sqlite'}"
    return new_database(request.getfixturevalue("postgres"))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'harbor.sqlite'}"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with proxies(tmp_path) as open_proxy:
        yield open_proxy
