"""`docs/one-edit.md`, typed as it stands: what each command prints, and a package that can still be imported."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import fences

SHOWN = [fence for fence in fences() if fence.page == "docs/one-edit.md" and fence.language in ("console", "sh")]
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def test_the_walk_comes_to_what_the_page_shows(tmp_path: Path) -> None:
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": programs, "XDG_STATE_HOME": str(tmp_path / "state")}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.run(command, shell=True, cwd=tmp_path, env=environment, text=True, check=False, **output)

    first, *others = SHOWN
    packages = run(first.body.splitlines()[0])
    if packages.returncode:
        pytest.skip(f"no package index that has Flask 2.2.5: {packages.stdout[-300:]}")
    for fence in (first, *others):
        done = run(fence.body.removeprefix("$ "))
        said = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("WARNING: "))  # of pip
        assert (done.returncode, fence.body) == (0, fence.body), said
        if fence.output is not None:
            assert _TIME.sub("TIME", said) == _TIME.sub("TIME", fence.output.rstrip("\n"))
        if "--write" in fence.body:
            assert run("git -C flask grep 'Optional\\['").stdout == ""
    assert (tmp_path / "review.html").stat().st_size > 10_000
    assert run("git -C flask diff --stat").stdout.splitlines()[-1].split() == [
        *("1", "file", "changed,", "1", "insertion(+),", "1", "deletion(-)")
    ]
