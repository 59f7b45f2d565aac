"""Figures of a training run as event files of TensorBoard; the one door to tensorboard.

`torch.utils.tensorboard` writes the same files by the same writer, but has whoever trains on the service import torch.
"""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from time import time
from typing import Any

from graftline.core.errors import ConfigError, install_command


class TensorBoardTracker:
    """Adds a file of events to `folder`, which is that of a run: every attempt has a file of its own."""

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
        # who looks sees it at once, and it is there after `kill -9`
        self._writer.flush()

    def summary(self, values: Mapping[str, Any]) -> None:
        """Leave it out: TensorBoard has figures of steps only."""

    def close(self, is_whole: bool) -> None:
        self._writer.close()
