"""A backend of this machine for as long as it is needed: `graftline tinker serve` as a child of this process.

It ends with the block it is used in, and with the thread that started it, however that ends. An interrupt of the terminal
does not reach it: whoever trains decides what becomes of it, and saves a checkpoint first. One that already runs on the same
folder is not used, for its key and its end are somebody else's.
"""

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Literal

from pydantic import Field, SecretStr

from graftline.core.config import Config
from graftline.core.errors import TrainingError

logger = logging.getLogger(__name__)

_PROGRAM = (
    "import sys; from graftline.core.processes import die_with; die_with(int(sys.argv.pop(1)));"
    " from graftline.cli.main import main; main(prog_name='graftline')"
)
_WITHHELD = ("TINKER_API_KEY", "TINKER_BASE_URL")
"""Of the environment: a key of the service is nothing that a server of ours should get, and it makes its own."""
_LOG_BYTES = 2000
_SHUTDOWN_S, _DEATH_S = 15.0, 1.0


class LocalBackendConfig(Config):
    """A backend of this machine, started when it is needed and ended with whoever needed it."""

    kind: Literal["local"] = "local"
    model: str = ""
    """Of `configs/models.yaml`; empty: that of the recipe."""
    folder: str = ""
    """A model of transformers in place of the catalog's, from the root."""
    store: str = "data/tinker"
    """Where checkpoints are kept, from the root."""
    threads: int = Field(default=0, ge=0, le=256)
    """Of torch; 0 for one per core."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """What matrices are multiplied in; `auto` is bfloat16 where this machine multiplies it clearly faster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """What computes."""
    starts_within_s: float = Field(default=600.0, gt=0)
    """How long it may take until it answers; the first time, a model of the catalog is converted meanwhile."""


@contextmanager
def local_backend(config: LocalBackendConfig, root: Path, model: str) -> Iterator[tuple[str, SecretStr]]:
    """Serve what `config` says, or else `model`, until the end of the block; give the address of the server, and its key.

    Raises:
        TrainingError: It does not start, or has ended when its user fails; the message ends with what it said last.
    """
    store = root / config.store
    options: dict[str, object] = {"model": config.model or model, "store": store, "port": 0}
    options |= {"threads": config.threads, "precision": config.precision, "device": config.device}
    if config.folder:
        options["folder"] = root / config.folder
    command = [sys.executable, "-c", _PROGRAM, str(os.getpid()), "--root", str(root), "tinker", "serve", "--json"]
    command += [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**_allocator(), **{name: value for name, value in os.environ.items() if name not in _WITHHELD}},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            url = _wait_for_url(process, log, config.starts_within_s)
            try:
                yield url, SecretStr((store / "api_key").read_text("utf-8").strip())
            except TrainingError as error:
                # its user has only seen that nothing answers, and may have seen it before the last thread was gone
                if how := _describe_end(process, _DEATH_S):
                    raise TrainingError(f"the backend of this machine {how}: {_last_words(log)}") from error
                raise
            else:
                # its user may have thought that an answer was missing
                if how := _describe_end(process):
                    logger.warning("the backend of this machine %s: %s", how, _last_words(log))
        finally:
            _end(process)


def _allocator() -> dict[str, str]:
    """Return what has the server use tcmalloc where this machine has it: a step takes a tenth less, and less memory.

    glibc's looks longer and longer for pieces as large as tensors are. What the environment preloads itself stays.
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
    """
    library = find_library("tcmalloc_minimal") if sys.platform == "linux" else None
    return {"LD_PRELOAD": library} if library else {}


def _wait_for_url(process: "subprocess.Popen[bytes]", log: IO[bytes], starts_within_s: float) -> str:
    """Return the address that the server prints once it listens."""
    assert process.stdout is not None
    line, deadline = b"", time.monotonic() + starts_within_s
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            reason = f"does not answer after {starts_within_s:g} s ({_last_words(log)}); give it longer"
            raise TrainingError(f"the backend of this machine {reason}")
        piece = os.read(process.stdout.fileno(), 4096)
        if not piece:
            raise TrainingError(f"the backend of this machine does not start: {_last_words(log)}")
        line += piece
    return str(json.loads(line)["url"])


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    process.terminate()
    try:
        process.wait(_SHUTDOWN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def _describe_end(process: "subprocess.Popen[bytes]", within_s: float = 0.0) -> str:
    """Return how a process ended; empty where it goes on."""
    try:
        status = process.wait(within_s)
    except subprocess.TimeoutExpired:
        return ""
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended by itself with status {status}"


def _last_words(log: IO[bytes]) -> str:
    """Return what the server wrote last, for one line."""
    log.seek(0, os.SEEK_END)
    log.seek(max(0, log.tell() - _LOG_BYTES))
    words = log.read().decode("utf-8", "replace").split()
    return " ".join(words).removeprefix("error: ") or "it said nothing"
