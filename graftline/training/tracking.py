"""The metrics of a training run, shown elsewhere while it goes on: in Weights & Biases, and in TensorBoard.

A tracker never ends a run. One that fails, for want of a network, a key or its library, is warned of once and left alone from
then on; the result of a run is known without it, for `training.runs` has every step.
"""

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any, Literal, Protocol

from graftline.core.config import Config
from graftline.core.errors import BoundaryError, ConfigError, install_command
from graftline.core.secrets import Secrets, open_secrets
from graftline.datasets.wandb_run import KEY, SERVER, environment_of

logger = logging.getLogger(__name__)

_WANDB_END_S = 120
"""For what is yet to be sent when a run has ended."""
_PIPE_BYTES = 1 << 20
"""Of steps that wait while wandb begins: some thousands."""


class TrackingSettings(Config):
    """Where the metrics of a run are shown; nowhere but here by default."""

    wandb: str = ""
    """A project of Weights & Biases."""
    wandb_mode: Literal["online", "offline"] = "online"
    """`online` needs `WANDB_API_KEY`; `offline` writes what `wandb sync` sends later."""
    tensorboard: bool = False


class Tracker(Protocol):
    """Takes the metrics of one attempt at a run; all of it may fail in any way."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def summary(self, values: Mapping[str, Any]) -> None: ...
    def close(self, is_whole: bool) -> None:
        """Send the rest; `is_whole` says whether the attempt ended by itself."""


class Trackers:
    """Those of an attempt that have not failed yet."""

    def __init__(self) -> None:
        self._active: dict[str, Tracker] = {}

    def add(self, name: str, open_tracker: Callable[[], Tracker]) -> None:
        """Open one more."""
        try:
            self._active[name] = open_tracker()
        except Exception as error:  # of libraries that are not ours
            _warn(name, error)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a step; those of an attempt go upwards by step."""
        self._call_each(lambda tracker: tracker.step(step, metrics))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Show the results of the whole run."""
        self._call_each(lambda tracker: tracker.summary(values))

    def close(self, is_whole: bool) -> None:
        """Have all of them send the rest."""
        self._call_each(lambda tracker: tracker.close(is_whole))
        self._active.clear()

    def _call_each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in [*self._active.items()]:
            try:
                call(tracker)
            except Exception as error:
                del self._active[name]
                _warn(name, error)


@contextmanager
def open_trackers(
    settings: TrackingSettings,
    run_id: str,
    config: Mapping[str, Any],
    folder: Path,
    root: Path = Path(),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Trackers]:
    """Yield the trackers of an attempt at a run; a later attempt of the same name and folder resumes there.

    What trackers write is below `folder`; a key may stand in the `.env` of `root`.
    """
    variables = os.environ if environment is None else environment
    trackers = Trackers()
    if settings.tensorboard:
        trackers.add("TensorBoard", lambda: TensorBoardTracker(folder / "tensorboard"))
    if settings.wandb:
        about = {"project": settings.wandb, "id": run_id, "name": run_id, "config": dict(config)}
        trackers.add(
            "W&B",
            lambda: WandbTracker(settings.wandb_mode, about, folder, open_secrets(variables, root), variables),
        )
    try:
        yield trackers
    except BaseException:
        trackers.close(is_whole=False)
        raise
    trackers.close(is_whole=True)


def _warn(name: str, error: Exception) -> None:
    logger.warning("%s does not follow the run any more, which goes on without: %s", name, error)


class TensorBoardTracker:
    """Adds a file of events to `folder`, which is that of a run: every attempt has a file of its own.

    `torch.utils.tensorboard` writes the same files by the same writer, but needs torch, which training on the service does not.
    """

    def __init__(self, folder: Path) -> None:
        if find_spec("tensorboard") is None:
            raise ConfigError(f"tensorboard is missing; {install_command('tracking')}")
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._log, self._summary = Event, SessionLog, Summary
        self._writer = EventFileWriter(str(folder))
        self._has_begun = False

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        if not self._has_begun:
            # what an attempt that was killed did from here on is not shown
            self._writer.add_event(self._event(step=step, session_log=self._log(status=self._log.START)))
            self._has_begun = True
        values = [self._summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.add_event(self._event(wall_time=time(), step=step, summary=self._summary(value=values)))
        # seen at once by whoever looks, and there after `kill -9`
        self._writer.flush()

    def summary(self, values: Mapping[str, Any]) -> None:
        """Leave it out: TensorBoard has metrics of steps only."""

    def close(self, is_whole: bool) -> None:
        self._writer.close()


class WandbTracker:
    """A run of W&B, through a process of its own (`training.wandb_run`), that resumes an earlier attempt at the same run.

    wandb may wait for its server for as long as it likes there: a step is a line in a pipe, and the end is waited for with
    patience that ends.
    """

    def __init__(
        self, mode: str, about: Mapping[str, Any], folder: Path, secrets: Secrets, environment: Mapping[str, str]
    ) -> None:
        """Begin it; `about` is what `wandb.init` gets of the run. ConfigError where wandb is missing, or its key."""
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
        self._send({"mode": mode, "folder": str(folder), "about": dict(about)})

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._send({"step": step, "metrics": dict(metrics)})

    def summary(self, values: Mapping[str, Any]) -> None:
        self._send({"summary": dict(values)})

    def close(self, is_whole: bool) -> None:
        self._send({"is_whole": is_whole})
        logger.info("wandb %s: %s", self._mode, self._finish()["run"])

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            os.write(self._process.stdin.fileno(), json.dumps(message).encode() + b"\n")
        except BrokenPipeError:
            self._finish()
        except BlockingIOError:
            self._end()
            raise BoundaryError(f"wandb {self._mode}: does not read what it is told; check {SERVER}") from None

    def _finish(self) -> dict[str, str]:
        """Return the last words of the process; BoundaryError where wandb or its server failed, or nothing comes in time."""
        try:
            output, _ = self._process.communicate(timeout=_WANDB_END_S)
        except subprocess.TimeoutExpired:
            raise BoundaryError(
                f"wandb {self._mode}: has not sent everything within {_WANDB_END_S} s; `wandb sync` sends what is below"
                f" {self._folder}"
            ) from None
        finally:
            self._end()
        *_, last = ("", *output.decode("utf-8", "replace").splitlines())
        try:
            answer: dict[str, str] = json.loads(last)
        except ValueError:
            answer = {"error": f"its process ended with {self._process.returncode}"}
        if "error" in answer:
            reason = self._secrets.redact(answer["error"])
            raise BoundaryError(f"wandb {self._mode}: {reason}; check {KEY}, {SERVER} and tracking.wandb")
        return answer

    def _end(self) -> None:
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with self._process, suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]  # it was opened with one
        self._scratch.cleanup()
