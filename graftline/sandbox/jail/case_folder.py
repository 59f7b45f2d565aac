"""The folder of a jail whose cases have none in memory; removed with it, or by the next one."""

import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

from graftline.sandbox.inside.files import remove_path

_PREFIX = "graftline-cases-"


class CaseFolder:
    """A folder below the temporary one, of a user of its own."""

    def __init__(self, user: int | None) -> None:
        for left, maker in case_folders().items():
            if not Path(f"/proc/{maker}").exists():
                with suppress(OSError):
                    remove_path(left)
        self.path = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
        if user is not None:
            os.chown(self.path, user, user)
        # not by a forked child that ends: it has the same objects, and they are not its own
        self._removal = weakref.finalize(self, _remove_here, self.path, os.getpid())

    def remove(self) -> None:
        """Remove it. A second call does nothing."""
        self._removal()


def _remove_here(path: str, process: int) -> None:
    if os.getpid() == process:
        with suppress(OSError):
            remove_path(path)


def case_folders() -> dict[str, int]:
    """Return the paths of all folders of jails on this machine, and the id of the process that made each."""
    found = {}
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            maker = entry.name.removeprefix(_PREFIX).partition("-")[0] if entry.name.startswith(_PREFIX) else ""
            if maker.isdigit():
                found[entry.path] = int(maker)
    return found
