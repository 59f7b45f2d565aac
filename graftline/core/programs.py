"""Other programs, run with limits: no shell, no input, so long and no longer, and so much of what they say."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from graftline.core.errors import ConfigError
from graftline.core.retry import SourceBusyError

TIME_LIMIT_S = 600.0
MAX_OUTPUT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What became of a program."""

    status: int
    output: str
    errors: str

    def last_error(self) -> str:
        """Return the last line of its errors that is not blank."""
        return next((line.strip() for line in reversed(self.errors.splitlines()) if line.strip()), "no reason given")


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], time_limit_s: float = TIME_LIMIT_S
) -> ProgramResult:
    """Run `command` in `folder` to its end; what it started is ended with it.

    Raises:
        ConfigError: it cannot be started.
        SourceBusyError: it took too long.
    """
    with TemporaryFile() as output, TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            raise ConfigError(f"{command[0]}: cannot be started ({error.strerror}); mend its installation") from error
        try:
            status = process.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            said = f"was not done within {time_limit_s:g} s; check the network or its registry"
            raise SourceBusyError(f"{Path(command[0]).name}: {said}") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return ProgramResult(status, _text(output), _text(errors))


def _text(stream: IO[bytes]) -> str:
    stream.seek(0)
    return stream.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace")
