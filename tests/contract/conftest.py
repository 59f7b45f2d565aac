"""The jails that the contract of the port is tried on."""

import os
from collections.abc import Callable, Iterator

import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox import CaseLimits
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.jail.visible import interpreter
from graftline.sandbox.jail.wrappers import WRAPPERS
from tests.jails import SERVED, SHORT, WRAPPED, has_user_namespaces, new_jail


@pytest.fixture(scope="module", params=[*SERVED, *WRAPPED])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name in WRAPPERS and WRAPPERS[name].path is None:
        pytest.skip(f"{WRAPPERS[name].program} is not installed: {WRAPPERS[name].package}")
    if name == "namespaces" and not has_user_namespaces():
        pytest.skip("this machine gives no user namespaces; see the message of `graftline sandbox probe`")
    if name == "confined" and os.getuid() == 0:
        try:
            interpreter(is_other_user=True)
        except SandboxError as error:
            pytest.skip(str(error))
    return name


@pytest.fixture(scope="module")
def jail(kind: str) -> Iterator[ServedJail]:
    opened = new_jail(kind)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def short_jail(kind: str) -> Iterator[ServedJail]:
    opened = new_jail(kind, SHORT)
    yield opened
    opened.close()


@pytest.fixture
def open_another(kind: str) -> Iterator[Callable[..., ServedJail]]:
    opened = []

    def another(*args: CaseLimits) -> ServedJail:
        opened.append(new_jail(kind, *args))
        return opened[-1]

    yield another
    for one in opened:
        one.close()
