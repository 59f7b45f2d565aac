"""The jail in which code under test is judged, and workspaces beside a folder that is none of theirs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox.file_names import WorkspaceLimits
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.workspaces import Workspaces
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


@pytest.fixture
def workspaces(tmp_path: Path) -> Iterator[Workspaces]:
    with Workspaces(tmp_path / "workspaces", WorkspaceLimits()) as opened:
        yield opened


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder that nothing in a workspace may reach."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'harbor.sqlite'}"
