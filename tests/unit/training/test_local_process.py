"""A backend of this machine as a child: why it does not start, and that it never outlives who started it.

What it answers is in the contract of training services, which it is started for.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path

import psutil
import pytest

from graftline.core.errors import ConfigError, TrainingError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.training.local.process import LocalBackendConfig, local_backend
from graftline.training.open import TinkerServiceConfig, open_training_client
from tests.processes import children_with, command_line
from tests.unit.training.conftest import EXTRA

PARENT = """
import sys
from pathlib import Path
from graftline.training.local.process import LocalBackendConfig, local_backend

root = Path(sys.argv[1])
with local_backend(LocalBackendConfig(store="store", folder="model"), root, "model"):
    pass
"""


STORE = LocalBackendConfig(store="store")


def tiny(folder: Path) -> LocalBackendConfig:
    return LocalBackendConfig(store="store", folder=str(folder), threads=1)


def backends(process: psutil.Process, root: Path) -> list[psutil.Process]:
    """Return the children of a process that are, or are to be, backends in a folder (other tests' have their own)."""
    return [child for child in children_with(str(root / "store"), process) if " tinker " in command_line(child)]


def is_past_its_start(process: psutil.Process) -> bool:
    """Return whether a backend has loaded what its command needs, and so has asked to be told of its parent's end."""
    return "/torch/" in Path(f"/proc/{process.pid}/maps").read_text("utf-8", "replace")


def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(TrainingError) as error, local_backend(STORE, tmp_path / "missing", "model"):
        pass
    assert str(error.value).startswith("the backend of this machine does not start: ")
    assert f"{tmp_path / 'missing'}' does not exist" in " ".join(str(error.value).split())
    assert backends(psutil.Process(), tmp_path) == []


def test_one_that_is_killed_is_told_as_that_and_not_as_an_address_where_nothing_answers(
    tiny_model: Path, tmp_path: Path
) -> None:
    def use_one_that_dies() -> None:
        with local_backend(tiny(tiny_model), tmp_path, "tiny") as (url, _):
            [backend] = backends(psutil.Process(), tmp_path)
            backend.kill()
            raise TrainingError(f"{url}: cannot be reached")

    with pytest.raises(TrainingError, match="the backend of this machine was ended by SIGKILL: ") as error:
        use_one_that_dies()
    assert "cannot be reached" in str(error.value.__cause__)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    with (
        pytest.raises(TrainingError, match=r"does not answer after 0\.05 s \(it said nothing\); give it longer"),
        local_backend(LocalBackendConfig(store="store", starts_within_s=0.05), tmp_path, "model"),
    ):
        pass
    assert backends(psutil.Process(), tmp_path) == []


@contextmanager
def suspended(root: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Yield a process that has started a backend, and the backend, before it finds that its model is an empty folder."""
    (root / "model").mkdir()
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(root)], env={**os.environ, **variables})
    child = None
    try:
        deadline = time.monotonic() + 240
        while child is None and time.monotonic() < deadline:
            time.sleep(0.02)
            child = next((one for one in backends(psutil.Process(parent.pid), root) if is_past_its_start(one)), None)
        assert child is not None
        child.suspend()
        yield parent, child
    finally:
        parent.kill()
        parent.wait()
        if child is not None and child.is_running():
            child.kill()


def test_it_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    with suspended(tmp_path) as (parent, child):
        os.kill(parent.pid, signal.SIGKILL)
        assert psutil.wait_procs([child], timeout=240)[1] == []


@pytest.mark.skipif(
    find_library("tcmalloc_minimal") is None, reason="needs tcmalloc: apt-get install libtcmalloc-minimal4"
)
def test_it_has_tcmalloc_where_there_is_one(tmp_path: Path) -> None:
    with suspended(tmp_path) as (_, child):
        assert "libtcmalloc_minimal" in Path(f"/proc/{child.pid}/maps").read_text("utf-8", "replace")


def test_what_the_environment_preloads_stays(tmp_path: Path) -> None:
    with suspended(tmp_path, LD_PRELOAD="libm.so.6") as (_, child):
        assert child.environ()["LD_PRELOAD"] == "libm.so.6"


def test_a_service_is_asked_with_the_key_that_is_configured(tmp_path: Path) -> None:
    pytest.importorskip("tinker", reason=EXTRA)
    secrets = Secrets([EnvironmentSecrets({"MY_KEY": "tml-mine"})])
    config = TinkerServiceConfig(base_url="http://127.0.0.1:1/", api_key="MY_KEY")
    with open_training_client(config, tmp_path, secrets) as service:
        assert service.base_url == "http://127.0.0.1:1"
    with (
        pytest.raises(ConfigError, match="TINKER_API_KEY: is not set, but training_client 'tinker' needs it"),
        open_training_client(TinkerServiceConfig(), tmp_path, secrets),
    ):
        pass
