"""A root with several datasets, as it is and with everything made."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.shop import Shop

SETTINGS = (
    *("GRAFTLINE_ROOT", "SYNTH_API_KEY", "SYNTH_BACKEND_URL", "VAULT_ADDR", "VAULT_TOKEN"),
    *("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"),
)


@pytest.fixture(autouse=True)
def _environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No command is told by this environment where anything is, or how to print."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shop(small_checkout: Any) -> Shop:
    """A root of its own, with nothing made."""
    return Shop(small_checkout.root)


@pytest.fixture(scope="session")
def _made(new_checkout: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    built_shop = Shop(new_checkout(tmp_path_factory.mktemp("shop") / "checkout").root)
    built_shop.make()
    return built_shop.root


@pytest.fixture
def built_shop(_made: Path, shop: Shop) -> Shop:
    """A root of its own, where `pairs` and `twins` are fetched, normalized and split."""
    shutil.copytree(_made / "data", shop.root / "data", dirs_exist_ok=True)
    return shop
