"""A page of `docs` that walks through a change of Flask, typed as it stands."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Fence, fences

_VARIES = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|model: .*")
"""Times, and what a model took."""


class Walk:
    """The commands of a page, in a folder of its own."""

    def __init__(self, page: str, folder: Path) -> None:
        self._fences = [fence for fence in fences() if fence.page == page and fence.language in ("console", "sh")]
        self._folder = folder
        programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        self._environment = {**os.environ, "PATH": programs, "XDG_STATE_HOME": str(folder / "state")}
        self._environment.pop("GRAFTLINE_ROOT", None)

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a person types it."""
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(
            command, shell=True, cwd=self._folder, env=self._environment, text=True, check=False, **output
        )

    def type_all(self) -> Iterator[Fence]:
        """Type block by block, and yield each when it printed what the page shows; skip without a package index."""
        packages = self.run(self._fences[0].body.splitlines()[0])
        if packages.returncode:
            pytest.skip(f"no package index that has Flask 2.2.5: {packages.stdout[-300:]}")
        for fence in self._fences:
            done = self.run(fence.body.removeprefix("$ "))
            lines = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("WARNING: "))  # of pip
            assert (done.returncode, fence.body) == (0, fence.body), lines
            if fence.output is not None:
                assert _VARIES.sub("…", lines) == _VARIES.sub("…", fence.output.rstrip("\n"))
            yield fence
