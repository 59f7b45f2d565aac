"""Jails that hold nothing: what the hostile suite has to see through."""

import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from graftline.core.errors import SandboxError
from graftline.sandbox.base import Isolation, Usage, Verdict
from graftline.sandbox.jail import Case, CaseEnd

ISOLATION = Isolation("none", "bare")


class BareJail:
    """A child process in a folder of its own, with nothing around it."""

    def __init__(self, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        """`folder` is kept from one case to the next."""
        self._environment = {} if environment is None else environment
        self._folder = folder

    @property
    def isolation(self) -> Isolation:
        return ISOLATION

    def run(self, case: Case) -> CaseEnd:
        # pipes would be held open by what a program leaves behind
        with tempfile.TemporaryDirectory() as own, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            folder = self._folder or Path(own)
            for name, data in case.files.items():
                Path(folder, name).write_bytes(data)
            command = [sys.executable, "-B", *case.arguments]
            code = subprocess.run(
                command,
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=60,
                check=False,
            ).returncode
            out.seek(0)
            err.seek(0)
            return end(out.read(), err.read(), exit_code=code)

    def close(self) -> None:
        """Nothing is held."""


class BrokenJail(BareJail):
    """A jail that fails whenever it is asked to run something."""

    def run(self, case: Case) -> CaseEnd:
        raise SandboxError("broken jail: always")


def end(
    stdout: bytes,
    stderr: bytes = b"",
    verdict: Verdict = Verdict.OK,
    exit_code: int | None = 0,
    is_truncated: bool = False,
) -> CaseEnd:
    signal_ = None if exit_code is not None else signal.SIGKILL
    return CaseEnd(verdict, exit_code, signal_, stdout, stderr, is_truncated, b"", Usage(0.1, 0.1, 10.0), ISOLATION)
