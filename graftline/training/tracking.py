"""The figures of a training run, shown elsewhere while it goes on: in Weights & Biases, and in TensorBoard.

A tracker never ends a run. One that fails, for want of a network, a key or its library, is told of once and left alone from
then on; what a run comes to is known without it, for `training.runs` has every step.
"""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Protocol

from graftline.core.config import Config
from graftline.core.secrets import open_secrets
from graftline.training.tensorboard_tracker import TensorBoardTracker
from graftline.training.wandb_tracker import WandbTracker

logger = logging.getLogger(__name__)


class TrackingSettings(Config):
    """Where the figures of a run are shown; nowhere but here if nothing is given."""

    wandb: str = ""
    """A project of Weights & Biases."""
    wandb_mode: Literal["online", "offline"] = "online"
    """`online` needs `WANDB_API_KEY`; `offline` writes what `wandb sync` sends later."""
    tensorboard: bool = False


class Tracker(Protocol):
    """Takes the figures of one attempt at a run; all of it may fail in any way."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the figures of a step."""

    def summary(self, values: Mapping[str, Any]) -> None:
        """Take what the whole run comes to."""

    def close(self, is_whole: bool) -> None:
        """Send what is left; `is_whole` says whether the attempt ended by itself."""


class Trackers:
    """Those of an attempt that have not failed yet."""

    def __init__(self) -> None:
        self._going: dict[str, Tracker] = {}

    def begin(self, name: str, opened: Callable[[], Tracker]) -> None:
        """Have one more take what comes."""
        try:
            self._going[name] = opened()
        except Exception as error:  # of libraries that are not ours
            _warn(name, error)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the figures of a step; those of an attempt go upwards by step."""
        self._each(lambda tracker: tracker.step(step, metrics))

    def summary(self, values: Mapping[str, Any]) -> None:
        """Show what the whole run comes to."""
        self._each(lambda tracker: tracker.summary(values))

    def close(self, is_whole: bool) -> None:
        """Have all of them send what is left."""
        self._each(lambda tracker: tracker.close(is_whole))
        self._going.clear()

    def _each(self, tell: Callable[[Tracker], None]) -> None:
        for name, tracker in [*self._going.items()]:
            try:
                tell(tracker)
            except Exception as error:
                del self._going[name]
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
    """Yield what takes the figures of an attempt at a run; a later attempt of the same name and folder goes on there.

    Args:
        settings: Which trackers.
        run_id: Of the run, which is also what W&B knows it by.
        config: What W&B shows beside the figures.
        folder: What trackers write is below it.
        root: Whose `.env` a key may stand in.
        environment: That of this process if it is None.
    """
    known = os.environ if environment is None else environment
    trackers = Trackers()
    if settings.tensorboard:
        trackers.begin("TensorBoard", lambda: TensorBoardTracker(folder / "tensorboard"))
    if settings.wandb:
        about = {"project": settings.wandb, "id": run_id, "name": run_id, "config": dict(config)}
        trackers.begin(
            "W&B",
            lambda: WandbTracker(settings.wandb_mode, about, folder, open_secrets(known, root), known),
        )
    try:
        yield trackers
    except BaseException:
        trackers.close(is_whole=False)
        raise
    trackers.close(is_whole=True)


def _warn(name: str, error: Exception) -> None:
    logger.warning("%s does not follow the run any more, which goes on without: %s", name, error)
