"""A disk that fills up while rows are normalized, divided or split: one sentence, the old output stays, the next run completes."""

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.build import build_definitions
from tests.commit_site import CommitSite, rows
from tests.killed_runs import contents

DISK = 64 << 20
HOME = "home"
CHANGES: dict[str, dict[str, Any]] = {
    "all": {"cleaning": {"max_pre_tokens": 1999}, "splitting": {"seed": 1}},
    "division": {"splitting": {"seed": 1}},
}
"""Settings by which everything is made again, from the normalized rows on or from the division on."""
CASES = [
    # what is left, less than the shards of the normalized rows, than the division, than the largest split; in make test
    # an asset meets a full disk, below
    pytest.param("all", 256 << 10, "normalized", id="normalizing", marks=pytest.mark.long),
    pytest.param("division", 8 << 10, "division", id="dividing", marks=pytest.mark.long),
    pytest.param("division", 100 << 10, "train", id="splitting", marks=pytest.mark.long),
]


@pytest.fixture(scope="module")
def prepared(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of a root with everything made once."""
    site = CommitSite(new_checkout(tmp_path_factory.mktemp("prepared") / "root"))
    put_rows(site)
    site.configure(HOME, "rows.jsonl")
    site.run()
    return site.root / "data"


@pytest.fixture(scope="module")
def undisturbed(
    prepared: Path, new_checkout: Any, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """A function of a name in `CHANGES`: what a root holds in which these settings came after all was made once."""

    @cache
    def contents_after(changes: str) -> dict[str, str]:
        site = CommitSite(new_checkout(tmp_path_factory.mktemp("undisturbed") / "root"))
        put_rows(site)
        shutil.copytree(prepared, site.root / "data", dirs_exist_ok=True)
        change(site, changes)
        site.run()
        return contents(site.root / "data")

    return contents_after


@pytest.fixture
def site(prepared: Path, new_checkout: Any, tmp_path: Path) -> Iterator[CommitSite]:
    """A root whose data lies on a disk of its own, with everything made once."""
    site = CommitSite(new_checkout(tmp_path / "root"))
    data, libc = site.root / "data", ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(data), b"tmpfs", 0, f"size={DISK}".encode()):
        pytest.skip(
            f"no tmpfs can be mounted here ({os.strerror(ctypes.get_errno())}); run as root to test a full disk"
        )
    try:
        put_rows(site)
        shutil.copytree(prepared, data, dirs_exist_ok=True)
        site.configure(HOME, "rows.jsonl")
        yield site
    finally:
        libc.umount2(os.fsencode(data), 2)  # as soon as nobody looks at it any more


def change(site: CommitSite, changes: str) -> None:
    """Configure a site otherwise; for another division, what was assigned is forgotten."""
    site.configure(HOME, "rows.jsonl", **CHANGES[changes])
    if changes == "division":
        shutil.rmtree(site.root / "data" / "division")


def put_rows(site: CommitSite) -> None:
    (site.root / HOME).mkdir()
    (site.root / HOME / "rows.jsonl").write_bytes(rows("new"))


def fill(site: CommitSite, left: int) -> Path:
    """Fill the disk but for `left` bytes."""
    path = site.root / "data" / ".filler"
    state = os.statvfs(site.root / "data")
    with path.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, state.f_bavail * state.f_frsize - left)
    return path


@pytest.mark.parametrize(("changes", "left", "stage"), CASES)
def test_a_disk_that_fills_up_is_one_sentence_and_the_next_run_completes(
    site: CommitSite, undisturbed: Callable[[str], dict[str, str]], changes: str, left: int, stage: str
) -> None:
    change(site, changes)
    before = site.stored()
    filler = fill(site, left)

    lines = [
        line
        for line in site.failed_run().splitlines()
        if not line.startswith("WARNING") and not line.endswith(("unchanged", ")"))
    ]
    assert len(lines) == 1
    assert lines[0].startswith("error: data/")
    assert lines[0].endswith("; mend it and run again, what was made before is untouched")
    assert "No space left on device" in lines[0]
    after = site.stored()
    order = list(before)
    changed = {name for name in order if after[name] != before[name]}
    assert (after[stage] == before[stage], changed <= set(order[: order.index(stage)])) == (True, True)

    filler.unlink()
    site.run()
    assert contents(site.root / "data") == undisturbed(changes)


def test_an_asset_on_a_full_disk_fails_with_a_sentence(site: CommitSite, monkeypatch: pytest.MonkeyPatch) -> None:
    before = site.stored()
    site.configure(HOME, "rows.jsonl", **CHANGES["all"])
    monkeypatch.setenv("GRAFTLINE_ROOT", str(site.root))
    definitions = build_definitions()
    selection = dg.AssetSelection.assets(dg.AssetKey("normalized_commits"))
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=selection.resolve(definitions.resolve_asset_graph())
    )
    fill(site, 256 << 10)
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance, raise_on_error=False)
    [failure] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    data = failure.step_failure_data
    assert data.user_failure_data is not None
    assert "No space left on device" in (data.user_failure_data.description or "")
    assert site.stored() == before
