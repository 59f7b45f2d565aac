"""What the tests of the hostile suite watch from outside."""

from collections.abc import Iterator

import pytest

from tests.security.hostile.facts import Host, watch_host


@pytest.fixture
def host() -> Iterator[Host]:
    with watch_host() as watched:
        yield watched
