"""The user's own tests, run in the jail on a copy of the folder with the change in it. No command of a model is ever run."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graftline.codemod.source_files import VENDORED
from graftline.core.errors import DataError, SandboxError
from graftline.core.text_diff import keep_end
from graftline.sandbox.base import Verdict
from graftline.sandbox.jail import Case
from graftline.sandbox.jail.open import JailConfig, open_jail

MAX_FILES, MAX_BYTES = 20_000, 256 << 20
"""Of the folder that is copied, without what others or programs made."""
TESTS_WALL_S, TESTS_CPU_S = 600.0, 600
_SHOWN = 1_500
_NO_COMMAND = 127
"""Exit code of a shell that finds no such program."""
_NO_MODULE = re.compile(rb"No module named")
_ADVICE_ON_PROGRAMS = (
    "the jail has the programs of the system, and programs and modules of the virtual environment that graftline is installed in;"
    " install there what the tests need, and say `python -m pytest -q` where `pytest` is not found"
)


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """How the tests ended."""

    passed: bool | None
    """None where the machine, and not the change, may be to blame."""
    output: str
    """The end of what they printed."""


class Checker:
    """Runs `command` by the shell of the jail in copies of `folder`; `close` lets go of it.

    Python finds the modules of the copy, of its folder `src` too, before those that are installed: those would be the code
    without the change.
    """

    def __init__(self, folder: Path, command: str, config: JailConfig) -> None:
        """SandboxError where no jail of the required level starts; DataError where the folder is too large to be copied."""
        self.command = command
        self._files = read_folder(folder)
        modules = [path for path in self._files if path.endswith(".py")]
        has_source_folder = any(path.startswith("src/") for path in modules)
        path = '"$PWD/src:$PWD"' if has_source_folder else '"$PWD"'
        self._setup = f"export PYTHONPATH={path}\n" if modules else ""
        limits = config.limits.model_copy(
            update={
                "files": 2 * len(self._files) + 2_000,
                "disk_mb": config.limits.disk_mb + 2 * (sum(map(len, self._files.values())) >> 20),
                "cpu_s": max(config.limits.cpu_s, TESTS_CPU_S),
                "wall_s": max(config.limits.wall_s, TESTS_WALL_S),
            }
        )
        programs = tuple(dict.fromkeys((*config.programs, "shell")))
        self._jail = open_jail(config.model_copy(update={"limits": limits, "programs": programs}), runs_own=True)

    def run(self, texts: Mapping[str, bytes]) -> CheckOutcome:
        """Return how the tests end where the files of `texts`, by their paths from the folder, are so."""
        try:
            end = self._jail.run(Case("shell", ("-c", f"{self._setup}{self.command}"), {**self._files, **texts}))
        except SandboxError as error:
            return CheckOutcome(None, str(error))
        output = keep_end((end.stdout + b"\n" + end.stderr).decode("utf-8", "replace"), _SHOWN)
        if end.exit_code == _NO_COMMAND or (end.exit_code and _NO_MODULE.search(end.stdout + end.stderr)):
            output += f"\n{_ADVICE_ON_PROGRAMS}"
        if end.verdict is not Verdict.OK:
            return CheckOutcome(False, f"{output}\nended by {end.verdict}: {end.error}".strip())
        return CheckOutcome(end.exit_code == 0, output)

    def close(self) -> None:
        """Let go of processes. A second call does nothing."""
        self._jail.close()


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the plain files below `folder` by their paths; those of others and symbolic links are left out.

    DataError if there are too many.
    """
    files: dict[str, bytes] = {}
    size = 0
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in VENDORED)
        for name in sorted(names):
            path = Path(place, name)
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            size += status.st_size
            if len(files) >= MAX_FILES or size > MAX_BYTES:
                raise DataError(
                    f"{folder}: is too large to run tests on a copy, more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB;"
                    " name a part of it"
                )
            files[path.relative_to(folder).as_posix()] = path.read_bytes()
    return files
