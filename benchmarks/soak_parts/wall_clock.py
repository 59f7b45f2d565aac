"""The wall clock of every program of the soak: as far ahead of the machine's as a file says.

A small library (`wall_clock.c`) is loaded before all others. Not libfaketime: the 0.9.10 of Debian 12 refuses every sleep
until a moment of the monotonic clock, which is how Python sleeps. Times of files are the machine's, and so is the clock of
what is linked statically.
"""

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = Path(__file__).with_suffix(".c")
_NS = 1_000_000_000


class WallClock:
    """The clock that programs started with `environment` have. `why_not` says why it cannot jump; empty where it can."""

    def __init__(self, folder: Path) -> None:
        self.offset_s = self.furthest_s = 0
        self._library, self._offset = folder / "wall_clock.so", folder / "wall_clock"
        compiler = shutil.which("cc")
        self.why_not = "" if compiler else "no C compiler: apt-get install gcc"
        if compiler:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(_SOURCE)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.why_not = f"{_SOURCE.name} cannot be compiled: {done.stderr[:200]}" if done.returncode else ""
        self._offset.write_bytes(struct.pack("=q", 0))
        self._offset.chmod(0o644)  # the database runs as another user

    @property
    def environment(self) -> dict[str, str]:
        """What programs are started with."""
        if self.why_not:
            return {}
        return {"LD_PRELOAD": str(self._library), "GRAFTLINE_SOAK_CLOCK": str(self._offset)}

    def set(self, offset_s: int) -> None:
        """Let every program be so many seconds ahead of the machine."""
        self.offset_s, self.furthest_s = offset_s, max(self.furthest_s, offset_s)
        descriptor = os.open(self._offset, os.O_WRONLY)
        try:
            # in place and at once, for programs have it mapped
            os.pwrite(descriptor, struct.pack("=q", offset_s * _NS), 0)
        finally:
            os.close(descriptor)
