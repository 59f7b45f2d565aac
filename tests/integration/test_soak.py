"""The short soak: the whole platform in processes of its own, with one fault of most kinds, and nothing wrong in the end."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import soak

WITHIN_S = 540.0
"""On a machine that does much else at the same time; on one that does not, it takes about two minutes."""
pytestmark = [pytest.mark.timeout(WITHIN_S + 60), pytest.mark.soak]


@pytest.fixture(autouse=True)
def _has_its_servers() -> None:
    if lacking := soak.missing():
        pytest.skip(lacking)


@pytest.fixture
def folder() -> Iterator[Path]:
    # not below that of the tests, which only its owner may enter: databases and cases run as users of their own
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def started(checkout: Path, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "benchmarks.soak", "--quick", "--folder", str(folder / "report")]
    return subprocess.Popen(
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def left(folder: Path) -> list[str]:
    """Return what a soak in `folder` has not removed."""
    mounts = Path("/proc/mounts").read_text("utf-8").splitlines()
    return [*(path.name for path in folder.glob("graftline-*")), *(line for line in mounts if str(folder) in line)]


def test_nothing_is_lost_or_twice_or_wrong_whatever_is_killed(checkout: Path, folder: Path) -> None:
    with started(checkout, folder) as process:
        said, told = process.communicate(timeout=WITHIN_S)
    assert said, told
    figures = json.loads(said)["figures"]
    assert (process.returncode, figures["wrong"]) == (0, []), told
    kills = [kind for kind in figures["faults"] if kind.startswith("kill ")]
    assert len(kills) >= 3
    # what a machine does not allow, such as a full disk of who is not root, is left out and says why
    assert {"redis", "postgresql", "disk", "clock"} <= figures["faults"].keys() | figures["skipped"].keys()
    counted = (figures["rollouts"]["accepted"], figures["attempts"]["stored"], figures["versions"]["published"])
    assert min(counted) >= 1, told
    assert figures["rollouts"]["rewarded_twice"] == figures["versions"]["requested_twice"] == 0
    page = (folder / "report" / "soak.md").read_text("utf-8")
    assert all((folder / "report" / name).stat().st_size for name in ("timeline.png", "memory.png", "rates.png"))
    assert "Nothing was wrong." in page
    assert left(folder) == []


def test_an_interruption_leaves_nothing(checkout: Path, folder: Path) -> None:
    with started(checkout, folder) as process:
        assert process.stderr is not None
        while "starting" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        said, told = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, said, left(folder)) == (130, "", []), told
    assert "nothing is left running" in told
