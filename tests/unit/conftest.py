"""A Harbor service on loopback, for the tests of whatever asks one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from graftline.harbor.address import HarborDeploymentRef
    from tests.harbor_server import HarborServer


@pytest.fixture(scope="module")
def running_server() -> Iterator["HarborServer"]:
    """A server, for all tests of a module."""
    from tests.harbor_server import HarborServer

    with HarborServer() as server:
        yield server


@pytest.fixture
def server(running_server: "HarborServer") -> "HarborServer":
    """A server with one deployment, as it was when it was started."""
    running_server.renew()
    running_server.deployments["dep-1"] = {
        "id": "dep-1",
        "name": "tests",
        "version": 1,
        "body": {},
        "a_key_of_later": 1,
    }
    return running_server


@pytest.fixture
def ref(server: "HarborServer") -> "HarborDeploymentRef":
    """The deployment of the server."""
    from graftline.harbor.address import HarborDeploymentRef

    return HarborDeploymentRef("dep-1", server.url, server.key)
