"""The command that installs an extra: one that works, for Graftline is on no package index."""

import re
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from graftline.core.errors import install_command

WHEEL = "file:///tmp/graftline-0.1.0-py3-none-any.whl"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installation that is found before the one of the tests."""
    folder = tmp_path / "graftline-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: graftline\nVersion: 0.1.0\n", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_in_a_checkout_it_is_installed_from_the_checkout() -> None:
    assert install_command("redis") == ".venv/bin/pip install -c constraints.txt -e '.[redis]'"


def test_from_a_wheel_it_is_installed_from_that_wheel(installed: Path) -> None:
    (installed / "direct_url.json").write_text(f'{{"archive_info": {{}}, "url": "{WHEEL}"}}', "utf-8")
    assert install_command("redis") == f"pip install 'graftline[redis] @ {WHEEL}'"


def test_where_nobody_knows_where_it_came_from_a_wheel_is_to_be_named(installed: Path) -> None:
    assert install_command("redis") == "pip install 'graftline[redis] @ file:///path/of/the/wheel'"


def test_no_message_and_no_page_advises_a_package_that_is_not_published(checkout: Path) -> None:
    pages = [checkout / "README.md", *(checkout / "docs").glob("*.md"), *(checkout / "graftline").rglob("*.py")]
    advice = re.compile(r"pip install '?graftline\[[^]]*\](?! @)")
    assert [page.name for page in pages if advice.search(page.read_text("utf-8"))] == []


def test_every_extra_that_is_advised_is_there(checkout: Path) -> None:
    named = {
        name
        for path in (checkout / "graftline").rglob("*.py")
        for name in re.findall(r"""install_command\(['"](\w+)['"]\)""", path.read_text("utf-8"))
    }
    extras = {*Distribution.from_name("graftline").metadata.get_all("Provides-Extra", [])}
    assert (len(named) > 5, named - extras) == (True, set())
