"""A run that is killed while it fetches, normalizes, divides or splits: the old output stays, the next run completes."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import RecordError
from graftline.core.record import load_record
from tests.commit_site import ROWS, CommitSite, rows
from tests.hub_server import Fault, HubServer
from tests.killed_runs import contents

FILE = "data/python/data.jsonl"


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
def new_site(server: HubServer, new_checkout: Any) -> Callable[[Path], CommitSite]:
    """Make a root whose dataset has its source on the server."""
    return lambda folder: CommitSite(new_checkout(folder / "root"), f"dataset_hub.huggingface={server.url}")


def pin(site: CommitSite, commit: str) -> None:
    site.configure("hf://datasets/demo/commits", FILE, commit)


@pytest.fixture(scope="module")
def former(
    commits: tuple[str, str], new_site: Callable[[Path], CommitSite], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The data of a root that holds the first commit."""
    site = new_site(tmp_path_factory.mktemp("former"))
    pin(site, commits[0])
    site.run()
    return site.root / "data"


@pytest.fixture(scope="module")
def undisturbed(
    commits: tuple[str, str],
    former: Path,
    new_site: Callable[[Path], CommitSite],
    tmp_path_factory: pytest.TempPathFactory,
) -> CommitSite:
    """A root that held the first commit too, in which the second one was worked on in peace."""
    site = new_site(tmp_path_factory.mktemp("undisturbed"))
    shutil.copytree(former, site.root / "data", dirs_exist_ok=True)
    pin(site, commits[1])
    site.run()
    return site


@pytest.fixture
def site(
    server: HubServer,
    commits: tuple[str, str],
    former: Path,
    new_site: Callable[[Path], CommitSite],
    tmp_path: Path,
) -> CommitSite:
    """A root that holds the first commit, and is to hold the second."""
    site = new_site(tmp_path)
    shutil.copytree(former, site.root / "data", dirs_exist_ok=True)
    pin(site, commits[1])
    server.seen.clear()
    return site


def size_of(site: CommitSite, pattern: str) -> int:
    try:
        return sum(path.stat().st_size for path in (site.root / "data").glob(pattern))
    except FileNotFoundError:  # renamed between listing and looking
        return 0


def test_a_fetch_that_is_killed_goes_on_where_it_was(
    site: CommitSite, server: HubServer, commits: tuple[str, str], undisturbed: CommitSite
) -> None:
    before = site.stored()
    content = server.repositories["demo/commits"].commits[commits[1]][FILE]
    half = len(content) // 2
    server.faults[f"/cdn/{commits[1]}/{FILE}"] = [Fault(pause_at=half)]
    part = f"raw/commits/.source.partial-*/{FILE.rpartition('/')[0]}/.data.jsonl.partial"
    site.kill_when(lambda: size_of(site, part) == half)
    assert site.stored() == before
    site.run()
    ranges = [seen.headers.get("range", "") for seen in server.seen if seen.path.startswith("/cdn/")]
    assert ranges == ["", f"bytes={half}-"]
    assert contents(site.root / "data") == contents(undisturbed.root / "data")


NORMALIZING = "raw/commits/.normalized.partial-*/dropped.parquet"
MOMENTS = [
    pytest.param("normalized", NORMALIZING, id="normalizing", marks=pytest.mark.long),
    pytest.param("division", ".division.partial-*", id="dividing", marks=pytest.mark.long),
    pytest.param("train", "processed/python/.*.partial-*", id="splitting"),
]


@pytest.mark.parametrize(("stage", "pattern"), MOMENTS)
def test_a_run_that_is_killed_leaves_the_old_output_and_the_next_one_completes(
    site: CommitSite, undisturbed: CommitSite, stage: str, pattern: str
) -> None:
    before = site.stored()
    site.kill_when(lambda: site.has_partial(pattern))
    after = site.stored()
    # stages before it are new already, it and those after are as they were
    order = list(before)
    assert {name for name in order if after[name] != before[name]} <= set(order[: order.index(stage)])
    assert after[stage] == before[stage]
    assert site.has_partial(pattern)
    site.run()
    assert site.stored() == undisturbed.stored()
    assert contents(site.root / "data") == contents(undisturbed.root / "data")


@pytest.mark.long  # over former output in make test, above
def test_a_root_without_former_output_holds_none_after_a_kill(
    commits: tuple[str, str], new_site: Callable[[Path], CommitSite], undisturbed: CommitSite, tmp_path: Path
) -> None:
    site = new_site(tmp_path)
    pin(site, commits[1])
    site.kill_when(lambda: site.has_partial(NORMALIZING))
    assert load_record(site.paths.raw("commits")).counts == {"rows": ROWS, "files": 1}
    with pytest.raises(RecordError, match=r"has no _meta\.json"):
        load_record(site.paths.normalized("commits"))
    site.run()
    assert site.stored() == undisturbed.stored()
