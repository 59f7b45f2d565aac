"""Figures of a training run in Weights & Biases, through a process of its own (`training.wandb_run`).

wandb may wait for its server for as long as it likes there: a step is a line in a pipe, and the end is waited for with
patience that ends.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graftline.core.errors import BoundaryError, ConfigError, install_command
from graftline.core.secrets import Secrets
from graftline.datasets.wandb_run import KEY, SERVER, environment_of

logger = logging.getLogger(__name__)

_PATIENCE_S = 120
"""For what is left to be sent when a run has ended."""
_PIPE_BYTES = 1 << 20
"""Of steps that wait while wandb begins: some thousands."""


class WandbTracker:
    """A run of W&B that goes on where an earlier attempt at the same run got to."""

    def __init__(
        self, mode: str, about: Mapping[str, Any], folder: Path, secrets: Secrets, environment: Mapping[str, str]
    ) -> None:
        """Begin it; `about` is what `wandb.init` is told of the run.

        Raises:
            ConfigError: wandb is missing, or there is no key for it.
        """
        if find_spec("wandb") is None:
            raise ConfigError(f"wandb is missing; {install_command('wandb')}")
        key = secrets.require(KEY, "wandb_mode online").get_secret_value() if mode == "online" else None
        self._mode, self._secrets, self._folder = mode, secrets, folder / "wandb"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._scratch = TemporaryDirectory(prefix="graftline-")
        self._process = subprocess.Popen(
            # -P: the current folder may hold one called wandb
            [sys.executable, "-P", "-m", "graftline.training.wandb_run"],
            env={**environment_of(self._folder, environment, key), "TMPDIR": self._scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pipesize=_PIPE_BYTES,
            # an interrupt is for the run, which then says by itself how it ended
            start_new_session=True,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        self._tell({"mode": mode, "folder": str(folder), "about": dict(about)})

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._tell({"step": step, "metrics": dict(metrics)})

    def summary(self, values: Mapping[str, Any]) -> None:
        self._tell({"summary": dict(values)})

    def close(self, is_whole: bool) -> None:
        self._tell({"is_whole": is_whole})
        logger.info("wandb %s: %s", self._mode, self._answer()["run"])

    def _tell(self, what: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps(what).encode() + b"\n")
        except BrokenPipeError:
            self._answer()
        except BlockingIOError:
            self._end()
            raise BoundaryError(f"wandb {self._mode}: does not read what it is told; check {SERVER}") from None

    def _answer(self) -> dict[str, str]:
        """Return what the process says at its end.

        Raises:
            BoundaryError: it says that wandb or its server failed, or nothing in time.
        """
        try:
            said, _ = self._process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise BoundaryError(
                f"wandb {self._mode}: has not sent everything within {_PATIENCE_S} s; `wandb sync` sends what is below"
                f" {self._folder}"
            ) from None
        finally:
            self._end()
        *_, last = ("", *said.decode("utf-8", "replace").splitlines())
        try:
            answer: dict[str, str] = json.loads(last)
        except ValueError:
            answer = {"error": f"its process ended with {self._process.returncode}"}
        if "error" in answer:
            told = self._secrets.redact(answer["error"])
            raise BoundaryError(f"wandb {self._mode}: {told}; check {KEY}, {SERVER} and tracking.wandb")
        return answer

    def _end(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with self._process, suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # it was opened with one
        self._scratch.cleanup()
