"""The jail in which code under test is judged."""

from collections.abc import Iterator

import pytest

from graftline.errors import SandboxError
from graftline.sandbox.served import ServedJail
from tests.code_under_test import LIMITS


@pytest.fixture(scope="module", params=["namespaces"])
def jail(request: pytest.FixtureRequest) -> Iterator[ServedJail]:
    """One for the tests of a module, which may name its kind."""
    opened = ServedJail(request.param, request.param, LIMITS, ("python", "pytest", "calls"))
    try:
        assert opened.isolation
    except SandboxError as error:
        pytest.skip(str(error))
    yield opened
    opened.close()
