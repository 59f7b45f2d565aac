"""A run that is killed while it fetches, normalises, divides or splits: the old output stays, the next run completes."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.errors import RecordError
from graftline.paths import Paths
from graftline.record import load_record, verified
from tests.hub_server import Fault, HubServer
from tests.killed_runs import contents, kill_when, run_again
from tests.unit.datasets.fixtures import commit_row

GRAFTLINE = Path(sys.executable).with_name("graftline")
ROWS, DIFFERENT = 3000, 150
"""So many rows that workers are started for them; most fall as duplicates, for what comes after the splits takes long."""
FILE = "data/python/data.jsonl"
STAGES = {"raw": "raw/commits/source", "normalized": "raw/commits/normalized", "division": "division"}


def rows(version: str, count: int = ROWS) -> bytes:
    """Return commits as they are in one version of the dataset."""
    lines = []
    for place in range(count):
        number = place % DIFFERENT
        body = "".join(f"    step_{number}_{line} = prepare_{number}(value, {line})\n" for line in range(12))
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


class Site:
    """A root whose one dataset has its home on `server`."""

    def __init__(self, root: Path, server: HubServer, checkout: Any) -> None:
        checkout(root)
        self.root, self.paths, self._server = root, Paths(root), server
        ports = [f"dataset_hub.huggingface={server.url}", "sandbox=memory", "teacher=memory"]
        self.command = [
            str(GRAFTLINE),
            "--root",
            str(root),
            "run",
            *(word for port in ports for word in ("--port", port)),
        ]

    def pin(self, commit: str) -> None:
        entry = {
            "reader": "commitpackft",
            "home": "hf://datasets/demo/commits",
            "version": commit,
            "license": "MIT",
            "files": [{"path": FILE}],
        }
        catalogue = {"languages": ["python"], "datasets": {"commits": entry}, "use": ["commits"]}
        (self.root / "configs" / "datasets.yaml").write_text(
            json.dumps({**catalogue, "synthesis": {"per_partition": 0}}), "utf-8"
        )

    def run(self) -> None:
        run_again(self.command, os.environ, self.root)

    def kill_when(self, is_time: Callable[[], bool]) -> None:
        kill_when(self.command, os.environ, self.root, is_time)

    def stored(self) -> dict[str, str]:
        """Return the identity of what is stored of every stage up to the splits, all of it verified."""
        folders = {kind: self.root / "data" / folder for kind, folder in STAGES.items()}
        splits = [self.paths.partition("processed", "python", split) for split in ("train", "dev", "test")]
        return {
            **{kind: verified(folder, kind).identity for kind, folder in folders.items()},
            **{folder.name: verified(folder, "splits").identity for folder in splits},
        }


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture(scope="module")
def commits(server: HubServer) -> tuple[str, str]:
    """Two commits of the dataset."""
    old = server.put("demo/commits", {FILE: rows("former", 50)})
    return old, server.put("demo/commits", {FILE: rows("latter")})


@pytest.fixture(scope="module")
def undisturbed(
    server: HubServer, commits: tuple[str, str], new_checkout: Any, tmp_path_factory: pytest.TempPathFactory
) -> Site:
    """A root in which the second commit was worked on in peace."""
    site = Site(tmp_path_factory.mktemp("undisturbed") / "root", server, new_checkout)
    site.pin(commits[1])
    site.run()
    return site


@pytest.fixture
def site(server: HubServer, commits: tuple[str, str], new_checkout: Any, tmp_path: Path) -> Site:
    """A root that holds the first commit, and is to hold the second."""
    site = Site(tmp_path / "root", server, new_checkout)
    site.pin(commits[0])
    site.run()
    site.pin(commits[1])
    server.seen.clear()
    return site


def partials(root: Path, pattern: str) -> Iterator[Path]:
    return (root / "data").glob(pattern)


def size_of(pattern: str, root: Path) -> int:
    try:
        return sum(path.stat().st_size for path in partials(root, pattern))
    except FileNotFoundError:  # renamed between listing and looking
        return 0


def test_a_fetch_that_is_killed_goes_on_where_it_was(
    site: Site, server: HubServer, commits: tuple[str, str], undisturbed: Site
) -> None:
    before = site.stored()
    content = server.repositories["demo/commits"].commits[commits[1]][FILE]
    half = len(content) // 2
    server.faults[f"/cdn/{commits[1]}/{FILE}"] = [Fault(pause_at=half)]
    part = f"raw/commits/.source.partial-*/{FILE.rpartition('/')[0]}/.data.jsonl.partial"
    site.kill_when(lambda: size_of(part, site.root) == half)
    assert site.stored() == before
    site.run()
    ranges = [seen.headers.get("range", "") for seen in server.seen if seen.path.startswith("/cdn/")]
    assert ranges == ["", f"bytes={half}-"]
    assert contents(site.root / "data") == contents(undisturbed.root / "data")


MOMENTS = [
    ("normalized", "raw/commits/.normalized.partial-*/dropped.parquet"),
    ("division", ".division.partial-*"),
    ("train", "processed/python/.*.partial-*"),
]


@pytest.mark.parametrize(("stage", "pattern"), MOMENTS, ids=["normalising", "dividing", "splitting"])
def test_a_run_that_is_killed_leaves_the_old_output_and_the_next_one_completes(
    site: Site, undisturbed: Site, stage: str, pattern: str
) -> None:
    before = site.stored()
    site.kill_when(lambda: any(True for _ in partials(site.root, pattern)))
    after = site.stored()
    # stages before it are new already, it and those after are as they were
    order = list(before)
    assert {name for name in order if after[name] != before[name]} <= set(order[: order.index(stage)])
    assert after[stage] == before[stage]
    assert any(True for _ in partials(site.root, pattern))
    site.run()
    assert site.stored() == undisturbed.stored()
    assert contents(site.root / "data") == contents(undisturbed.root / "data")


def test_a_root_without_former_output_holds_none_after_a_kill(
    server: HubServer, commits: tuple[str, str], new_checkout: Any, undisturbed: Site, tmp_path: Path
) -> None:
    site = Site(tmp_path / "root", server, new_checkout)
    site.pin(commits[1])
    site.kill_when(lambda: any(True for _ in partials(site.root, MOMENTS[0][1])))
    assert load_record(site.paths.raw("commits")).counts == {"rows": ROWS, "files": 1}
    with pytest.raises(RecordError, match=r"has no _meta\.json"):
        load_record(site.paths.normalized("commits"))
    site.run()
    assert contents(site.root / "data") == contents(undisturbed.root / "data")
