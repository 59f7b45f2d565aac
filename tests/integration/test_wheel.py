"""The wheel: only the library is in it, and its command works in an environment without the shells."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from graftline import __version__


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = Path(__file__).resolve().parents[2]
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(checkout)]
    subprocess.run(command, check=True, capture_output=True)
    [path] = folder.glob("*.whl")
    return path


def test_only_the_library_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"graftline", f"graftline-{wheel.name.split('-')[1]}.dist-info"}


def test_the_command_of_the_wheel_runs_without_the_shells(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = next((environment / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # what the library depends on comes from the environment of the tests; the checkout does not
    (site / "dependencies.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")), "utf-8")
    program = (
        "import graftline, graftline.cli.main, sys; print(graftline.__file__); graftline.cli.main.main(['--version'])"
    )
    done = subprocess.run(
        [str(environment / "bin" / "python"), "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith(str(site))
    assert lines[1].endswith(f"version {__version__}")
