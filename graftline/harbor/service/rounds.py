"""Rounds of a worker's thread: one after the other until the service ends, whatever becomes of one."""

import logging
import threading
from collections.abc import Callable

from graftline.core.errors import GraftlineError

logger = logging.getLogger(__name__)


def make_rounds(round_: Callable[[], None], is_stopping: threading.Event, pause_s: float, what: str) -> None:
    """Make one round after the other; a database that is away for a while is waited for."""
    while not is_stopping.is_set():
        try:
            round_()
        except GraftlineError as error:
            logger.warning("%s", error)
            is_stopping.wait(pause_s)
        except Exception:
            logger.exception("%s broke; it goes on", what)
            is_stopping.wait(pause_s)
