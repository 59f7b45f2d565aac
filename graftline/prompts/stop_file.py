"""A file whose presence ends an optimization: how one process asks another one, of which it knows the folder alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP = ".stop"
_LOOKS_EVERY_S = 0.3


@contextmanager
def stopped_by(folder: Path, stop: threading.Event) -> Iterator[threading.Event]:
    """Set `stop` when the file is there; one that is left of an earlier time is removed first."""
    path, is_over = folder / STOP, threading.Event()
    path.unlink(missing_ok=True)

    def watch() -> None:
        while not is_over.wait(_LOOKS_EVERY_S):
            if path.exists():
                stop.set()
                return

    watcher = threading.Thread(target=watch, name="stop-file", daemon=True)
    watcher.start()
    try:
        yield stop
    finally:
        is_over.set()
        watcher.join()
        path.unlink(missing_ok=True)


def ask_to_stop(folder: Path) -> None:
    """Have the optimization in `folder` end soon."""
    (folder / STOP).touch()
