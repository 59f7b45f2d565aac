"""A root with one dataset of commits, whose stages can be run from outside and looked at."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.paths import Paths
from graftline.core.record import load_verified
from tests.killed_runs import TIMEOUT_S, kill_when
from tests.unit.datasets.fixtures import commit_row

GRAFTLINE = Path(sys.executable).with_name("graftline")
ROWS, DIFFERENT = 1600, 60
"""So many rows that workers are started for them; most fall as duplicates, for what comes after the splits takes long."""

_FOLDERS = {"raw": "raw/commits/source", "normalized": "raw/commits/normalized", "division": "division"}


def rows(version: str, count: int = ROWS) -> bytes:
    """Return lines of commits as they are in one version of the dataset."""
    lines = []
    for place in range(count):
        number = place % DIFFERENT
        body = "".join(f"    step_{number}_{line} = prepare_{number}(value, {line})\n" for line in range(30))
        pre = f"def function_{number}(value):\n{body}    return old(value)\n"
        row = commit_row(
            commit=f"{place:040x}",
            old_file=f"file{number}.py",
            new_file=f"file{number}.py",
            old_contents=pre,
            new_contents=pre.replace("old(", f"{version}("),
            message=f"Call {version} in function {number}",
            license="mit",
            repos=f"owner{place}/name",
        )
        lines.append(json.dumps(row))
    return "\n".join(lines).encode() + b"\n"


class CommitSite:
    """The root. `ports` replaces some, as on the command line."""

    def __init__(self, checkout: Any, *ports: str) -> None:
        self.root: Path = checkout.root
        self.paths = Paths(self.root)
        given = ("sandbox=memory", "teacher=memory", *ports)
        self.arguments = ["--root", str(self.root), "run", *(word for port in given for word in ("--set", port))]

    def configure(self, home: str, file: str, version: str = "1", **changes: Mapping[str, Any]) -> None:
        """Write datasets.yaml, with sections such as `cleaning` as given."""
        entry = {
            "reader": "commitpackft",
            "url": home,
            "version": version,
            "license": "MIT",
            "files": [{"path": file}],
        }
        catalog = {"languages": ["python"], "datasets": {"commits": entry}, "use": ["commits"]}
        catalog |= {"synthesis": {"per_partition": 0}, **changes}
        (self.root / "configs" / "datasets.yaml").write_text(json.dumps(catalog), "utf-8")

    def run(self) -> None:
        """Bring everything up to date, in this process."""
        done = CliRunner().invoke(main, self.arguments)
        assert done.exit_code == 0, done.output

    def failed_run(self) -> str:
        """Return what is said on standard error by a run that fails."""
        done = subprocess.run([GRAFTLINE, *self.arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    def kill_when(self, is_time: Callable[[], bool]) -> None:
        """Start a run, and kill it while `is_time`."""
        kill_when([GRAFTLINE, *self.arguments], os.environ, self.root, is_time)

    def stored(self) -> dict[str, str]:
        """Return the identity of what is stored of every stage up to the splits, all of it verified; empty where nothing is."""
        folders = {kind: self.root / "data" / folder for kind, folder in _FOLDERS.items()}
        splits = [self.paths.partition("processed", "python", split) for split in ("train", "dev", "test")]
        return {
            **{
                kind: load_verified(folder, kind).identity if folder.exists() else ""
                for kind, folder in folders.items()
            },
            **{folder.name: load_verified(folder, "splits").identity for folder in splits},
        }

    def has_partial(self, pattern: str) -> bool:
        """Return whether something below `data` fits `pattern`."""
        return any(True for _ in (self.root / "data").glob(pattern))
