"""A small model, and a server of it that the SDK can talk to: a process of its own, as a user would start it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

EXTRA = "pip install 'graftline[training]'"
SDK_ENVIRONMENT = {"TINKER_TELEMETRY": "0"}
"""What the SDK and the cookbook need where there is nothing but loopback."""
_KEY = "tml-of-the-tests"
_ENDS_WITHIN_S = 240


@dataclass(frozen=True)
class StartedServer:
    """A server that answers."""

    url: str
    api_key: str
    model: str
    root: Path
    process: subprocess.Popen[str]

    @property
    def log(self) -> str:
        """What it said on its standard error."""
        return _log_of(self.root).read_text("utf-8", "replace")


@contextmanager
def started_server(
    root: Path, model_folder: Path, model: str = "tiny-qwen3", api_key: str = _KEY, **options: str | int
) -> Iterator[StartedServer]:
    """Serve the model in `model_folder` with checkpoints below `root` until the end of the block, however it ends.

    `options` are those of `graftline tinker serve`; `port` is a free one and `threads` is 1 if not given.
    """
    given = {"folder": model_folder, "model": model, "store": root, "port": 0, "threads": 1, **options}
    root.mkdir(parents=True, exist_ok=True)
    with _log_of(root).open("a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                *(Path(sys.executable).with_name("graftline"), "tinker", "serve", "--json"),
                *(word for name, value in given.items() for word in (f"--{name}", str(value))),
            ],
            env={**os.environ, **SDK_ENVIRONMENT, "HF_HUB_OFFLINE": "1", "TINKER_API_KEY": api_key},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    try:
        if not (said := process.stdout.readline()):
            raise AssertionError(f"the server does not start: {_log_of(root).read_text('utf-8', 'replace')[-2000:]}")
        yield StartedServer(json.loads(said)["url"], api_key, model, root, process)
    finally:
        process.kill()
        process.wait(_ENDS_WITHIN_S)
        process.stdout.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a random Qwen3 of two layers with its tokenizer, not to be written to."""
    for library in ("torch", "tokenizers", "transformers"):
        pytest.importorskip(library, reason=EXTRA)
    from tests.unit.training.tiny_model import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("models") / "tiny-qwen3")


@pytest.fixture(scope="module")
def memory_service() -> Iterator[Any]:
    """The tiny random model that is served in this process, shared by the tests of a module."""
    for library in ("tinker", "tinker_cookbook", "torch", "peft", "uvicorn"):
        pytest.importorskip(library, reason=EXTRA)
    from graftline.training.memory import MemoryTrainingService

    with MemoryTrainingService(seed=1) as service:
        yield service


@pytest.fixture(scope="session")
def tinker_server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedServer]:
    """A server of the tiny model, shared by all tests; clients make sessions, runs and checkpoints of their own."""
    for library in ("tinker", "torch", "peft", "uvicorn"):
        pytest.importorskip(library, reason=EXTRA)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SDK_ENVIRONMENT.items():
            patch.setenv(name, value)
        with started_server(tmp_path_factory.mktemp("tinker") / "root", tiny_model) as server:
            yield server


def _log_of(root: Path) -> Path:
    return root.with_name(f"{root.name}.log")
