"""Equal rows give equal bytes, wherever, whenever and by however many processes they are made."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graftline.core.record import RECORD_NAME
from tests.lineages import NOON, Run

MIDNIGHT = datetime(2031, 1, 1, tzinfo=UTC)


def content(data: Path) -> dict[str, bytes]:
    return {path.relative_to(data).as_posix(): path.read_bytes() for path in data.rglob("*") if path.is_file()}


def without_times(files: dict[str, bytes]) -> dict[str, Any]:
    """Return the files, of the records what is not a time."""
    return {
        name: {key: value for key, value in json.loads(text).items() if key not in ("written_at", "downloaded_at")}
        if name.endswith(RECORD_NAME)
        else text
        for name, text in files.items()
    }


def test_two_folders_hold_the_same_but_for_the_times(
    new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path: Path, run: Run
) -> None:
    here, there = new_checkout(tmp_path / "here"), new_checkout(tmp_path / "a longer name" / "of another depth")
    for checkout, clock in ((here, NOON), (there, MIDNIGHT)):
        checkout.configure(languages=["java", "python"])
        checkout.write(varied_pairs)
        run(checkout.root, clock=lambda clock=clock: clock)
    found, other = content(here.root / "data"), content(there.root / "data")
    assert without_times(found) == without_times(other)
    # the sample, and what was fetched of it; edits of 3 languages in 2 files each, and drops; the division of each of
    # the 2 in use, what was ever assigned, and what moved; 7 files in each of 6 partitions; of changes, 3 splits, 2 tables,
    # what was assigned, and what that is like; records, of which label_tasks has nothing else
    assert (len(found), sum(name.endswith(RECORD_NAME) for name in found)) == (1 + 1 + 7 + 4 + 7 * 6 + 7 + 35, 35)
    assert [name for name, text in found.items() if str(here.root).encode() in text] == []


def test_two_processes_make_the_bytes_of_one(
    new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path: Path, run: Run
) -> None:
    found = []
    for workers in (1, 2):
        checkout = new_checkout(tmp_path / str(workers))
        checkout.configure(per_partition=4, workers=workers, languages=["python"])
        checkout.write(varied_pairs)
        run(checkout.root)
        found.append(content(checkout.root / "data"))
    assert found[0] == found[1]


def test_the_order_of_the_rows_changes_no_split(made: Path, tmp_path: Path, run: Run) -> None:
    other = tmp_path / "backwards"
    shutil.copytree(made, other, ignore=lambda folder, _: {"data"} if Path(folder) == made else set())
    rows = (made / "data" / "samples" / "release_pairs.jsonl").read_bytes().splitlines(keepends=True)
    (other / "data" / "samples").mkdir(parents=True)
    (other / "data" / "samples" / "release_pairs.jsonl").write_bytes(b"".join(rows[::-1]))
    run(other)
    later = ("processed", "synthetic", "tasks", "trajectories")
    found, backwards = (
        {
            name: text
            for name, text in content(root / "data").items()
            if name.startswith(later) and RECORD_NAME not in name
        }
        for root in (made, other)
    )
    assert (len(found), found) == (7 * 3, backwards)
