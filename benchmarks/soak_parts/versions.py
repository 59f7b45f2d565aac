"""Versions of a dataset that are published, the runs that Dagster's sensor requests for them, and what is stored in the end.

The next version comes when the run of the one before was requested and has ended: what was never looked at need not be
asked for. What is stored in the end has to be, byte for byte, what an undisturbed run makes of the newest version that knows what was
assigned to splits before; attempts lie in other shards, for each version adds its own.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.soak_parts.programs import BIN
from benchmarks.soak_parts.site import DATASET, REPOSITORY, Site
from tests.hub_server import HubServer
from tests.killed_runs import contents

_LOOK_S = 1.0
_FIRST_ROWS, _ROWS_MORE = 6, 2
_TAG = f"graftline/revision.{DATASET}"
_TAG_CHARACTERS = 16
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_COMPARED = ("raw", "division", "processed", "tasks", "trajectories/parquet")
_ATTEMPTS = "trajectories/raw"
_PARQUET_RECORD = re.compile(r"trajectories/parquet/.*/_meta\.json")
_SHOWN = 3


class Versions:
    """Publishes at intervals, in a thread of its own."""

    def __init__(self, site: Site, hub: HubServer, every_s: float, most: int, stack: ExitStack) -> None:
        self._site, self._hub, self._every_s, self._most, self._stack = site, hub, every_s, most, stack
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="versions", daemon=True)
        self.published: list[str] = []
        self.unreadable = 0
        """Looks at the storage of Dagster that failed."""
        self.publish()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def halt(self) -> None:
        """Ask for no more."""
        self._is_over.set()

    def stop(self, within_s: float) -> bool:
        """Publish no more, and wait so long until the run of the newest version has succeeded; return whether it has."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + within_s
        while self.state_of(self.published[-1]) != "SUCCESS":
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
        return True

    def publish(self) -> None:
        """Publish the next version, which has some rows more."""
        count = _FIRST_ROWS + _ROWS_MORE * len(self.published)
        content = "".join(json.dumps(row(number)) + "\n" for number in range(count)).encode()
        self.published.append(self._hub.put(REPOSITORY, {"rows.jsonl": content}))

    def state_of(self, revision: str) -> str:
        """Return what became of the run for a version, or of the last that was made in its place; empty where there is none."""
        try:
            runs = self.runs()
        except Exception:  # Dagster's storage while the disk is full, or while a migration of it runs
            self.unreadable += 1
            return ""
        return next((run["status"] for run in runs if run["revision"] == revision[:_TAG_CHARACTERS]), "")

    def runs(self) -> list[dict[str, str]]:
        """Return all runs that have to do with a version, newest first."""
        return [
            {
                "id": run.run_id,
                "status": run.status.value,
                "revision": run.tags[_TAG],
                "again_for": run.root_run_id or "",
            }
            for run in self._instance.get_runs()
            if _TAG in run.tags
        ]

    @cached_property
    def _instance(self) -> Any:
        """The instance that the daemon uses."""
        import dagster as dg

        return self._stack.enter_context(dg.DagsterInstance.from_config(str(self._site.dagster_home)))

    def _run(self) -> None:
        while not self._is_over.wait(self._every_s):
            if len(self.published) < self._most and self.state_of(self.published[-1]) in _ENDED:
                self.publish()


def judged(load: Versions, site: Site, is_over: bool) -> tuple[dict[str, Any], list[str]]:
    """Return figures of the versions, and everything about them that is not as it has to be."""
    runs = load.runs()
    asked = [run["revision"] for run in runs if not run["again_for"]]
    faults = [f"version {one[:8]}: {asked.count(one[:_TAG_CHARACTERS])} runs were requested"
              for one in load.published if asked.count(one[:_TAG_CHARACTERS]) != 1]  # fmt: skip
    if not is_over:
        faults.append(f"the run of the newest version did not succeed: it is {load.state_of(load.published[-1])!r}")
    else:
        faults += _differences(site)
    faults += _audited(site)
    figures = {
        "published": len(load.published),
        "requested": len(asked),
        "requested_twice": len(asked) - len(set(asked)),
        "runs": len(runs),
        "runs_made_again": sum(bool(run["again_for"]) for run in runs),
        "ends": {status: sum(run["status"] == status for run in runs) for status in {run["status"] for run in runs}},
        "looks_without_storage": load.unreadable,
    }
    return figures, faults


def _differences(site: Site) -> list[str]:
    """Compare what is stored with what one undisturbed run makes of the newest version."""
    root = site.folder / "undisturbed"
    shutil.copytree(site.root / "configs", root / "configs")
    take_over_assignments(site.root / "data", root / "data")
    command = [str(BIN / "graftline"), "--root", str(root), "run"]
    environment = {name: value for name, value in site.environment.items() if name not in site.clock.environment}
    done = subprocess.run(command, env={**environment, "GRAFTLINE_ROOT": str(root)}, capture_output=True, text=True)
    if done.returncode:
        return [f"the undisturbed run fails: {done.stderr[-300:]}"]
    return differences(site.root / "data", root / "data")


def take_over_assignments(disturbed: Path, undisturbed: Path) -> None:
    """Let a run over the folder `undisturbed` know which edits were assigned to which split: it takes the division as it is."""
    shutil.copytree(disturbed / "division", undisturbed / "division")


def differences(disturbed: Path, undisturbed: Path) -> list[str]:
    """Return what is stored in a folder of data and is not what one undisturbed run over the newest version stores."""
    found, expected = _compared(disturbed), _compared(undisturbed)
    if not expected:
        return ["the undisturbed run made nothing"]
    different = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    faults = [f"not as an undisturbed run makes it: {', '.join(different[:_SHOWN])}{more}"] if different else []
    return faults + _wrong_attempts(disturbed, undisturbed)


def _compared(data: Path) -> dict[str, str]:
    """Return the digests of what is compared; the record of trajectories names the shards of attempts, which differ."""
    found = contents(data)
    return {
        name: digest
        for name, digest in found.items()
        if name.startswith(_COMPARED) and "/." not in name and not _PARQUET_RECORD.fullmatch(name)
    }


def _wrong_attempts(disturbed: Path, undisturbed: Path) -> list[str]:
    """Compare attempts, to which every version adds a shard of its own: none is lost, and none stands there twice."""
    faults = []
    for folder in sorted(path for path in (undisturbed / _ATTEMPTS).glob("*/*/*") if path.is_dir()):
        name = folder.relative_to(undisturbed).as_posix()
        stored, expected = (Counter(_lines(one)) for one in (disturbed / name, folder))
        if lost := expected - stored:
            faults.append(f"{name}: {lost.total()} of {expected.total()} attempts are lost")
        if twice := stored - Counter({*stored}):
            faults.append(f"{name}: {twice.total()} attempts stand there twice")
    return faults


def _lines(folder: Path) -> list[bytes]:
    return [line for shard in sorted(folder.glob("shard-*.jsonl")) for line in shard.read_bytes().splitlines()]


def _audited(site: Site) -> list[str]:
    """Return what `graftline check` says of the root: every artifact against its record."""
    environment = {**os.environ, **site.environment}
    command = [str(BIN / "graftline"), "--root", str(site.root), "check", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    try:
        faults: list[str] = json.loads(done.stdout)["faults"]
    except (ValueError, KeyError):
        return [f"graftline check: {done.stderr[-300:]}"]
    return [f"graftline check: {fault}" for fault in faults]


def row(number: int) -> dict[str, Any]:
    """Return a row that the induction teacher solves."""
    name = f"package{number}"
    return {
        "id": f"release:{name}",
        "source": f"pypi:{name} 1.0->2.0",
        "license": "MIT",
        "language": "python",
        "pre": f"def f{number}(a, b):\n    return old(a, b{number})\n",
        "post": f"def f{number}(a, b):\n    return new(a, b{number})\n",
        "registry": "pypi",
        "pkg": name,
        "old": "1.0",
        "new": "2.0",
        "path": f"{name}.py",
        "qual": f"f{number}",
        "changed": 2,
    }
