"""Attempts of one partition: added, never overwritten, and which of them count."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.rollouts.shards import read_shards, sealed_shards
from tests.lineages import Run

MEMORY = {"sandbox": "memory", "teacher": "memory"}


@pytest.fixture
def partition(made: Path, run: Run, reconfigure: Callable[..., None]) -> Path:
    """The attempts of one partition that has some."""
    return Paths(made).partition("trajectories/raw", "python", "train")


def shards(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sealed_shards(folder)}


def chosen(root: Path) -> list[tuple[str, str, int]]:
    rows = read_parquet(Paths(root).partition("trajectories/parquet", "python", "train") / "trajectories.parquet")
    return [(row["task_id"], row["teacher"], row["attempt"]) for row in rows]


def test_attempts_of_two_teachers_stand_side_by_side(made: Path, run: Run, partition: Path) -> None:
    before = shards(partition / "induction")
    run(made, MEMORY)
    assert (sorted(path.name for path in partition.iterdir()), shards(partition / "induction")) == (
        ["induction", "memory"],
        before,
    )
    ids = list(dict.fromkeys(task for task, _, _ in chosen(made)))
    assert chosen(made) == [(task, teacher, 1) for task in ids for teacher in ("induction", "memory")]


def test_only_new_tasks_are_attempted(made: Path, run: Run, partition: Path, reconfigure: Callable[..., None]) -> None:
    [(name, before)] = shards(partition / "induction").items()
    reconfigure(made, "datasets.yaml", {"synthesis.per_partition": 6})
    run(made)
    added = {name: content for name, content in shards(partition / "induction").items() if content != before}
    assert (shards(partition / "induction")[name], list(added)) == (before, ["shard-00002.jsonl"])
    known = {json.loads(line)["task_id"] for line in before.splitlines()}
    assert not known & {json.loads(line)["task_id"] for line in added["shard-00002.jsonl"].splitlines()}


def test_an_attempt_that_is_made_again_follows_the_one_before_and_takes_its_place(
    made: Path, run: Run, partition: Path, reconfigure: Callable[..., None]
) -> None:
    before, ids = shards(partition / "induction"), chosen(made)
    reconfigure(made, "trajectories.yaml", {"collecting.weights.verified_general": 0.5})
    run(made)
    after = shards(partition / "induction")
    assert (list(after), after["shard-00001.jsonl"], chosen(made)) == (
        ["shard-00001.jsonl", "shard-00002.jsonl"],
        before["shard-00001.jsonl"],
        ids,
    )
    counts = load_record(Paths(made).partition("trajectories/parquet", "python", "train")).counts
    assert counts["not_kept.superseded"] == len(ids)
    rows = read_parquet(Paths(made).partition("trajectories/parquet", "python", "train") / "trajectories.parquet")
    assert 1.0 not in {row["reward"] for row in rows}


def test_attempts_at_tasks_that_are_gone_stay_and_count_for_nothing(
    made: Path, run: Run, partition: Path, reconfigure: Callable[..., None]
) -> None:
    before, tried = shards(partition / "induction"), len(chosen(made))
    reconfigure(made, "datasets.yaml", {"synthesis.per_partition": 1})
    run(made)
    assert (shards(partition / "induction"), len(chosen(made))) == (before, tried - 1)
    counts = load_record(Paths(made).partition("trajectories/parquet", "python", "train")).counts
    assert (counts["rows"], counts["not_kept.other_task"]) == (tried - 1, 1)


def test_changed_code_makes_all_again_and_adds_what_is_different(made: Path, run: Run, partition: Path) -> None:
    folder = partition / "induction"
    record = json.loads((folder / "_meta.json").read_text("utf-8"))
    (folder / "_meta.json").write_text(json.dumps({**record, "code_version": "before"}), "utf-8")
    before = shards(folder)
    # the attempts come to what they were
    reasons = {name: reason for name, reason in run(made).items() if reason}
    assert reasons == {"teacher_trajectories python/train/induction": "code changed"}
    assert (shards(folder), load_record(folder).identity) == (before, record["identity"])


def test_a_shard_that_was_altered_is_not_built_upon(made: Path, run: Run, partition: Path) -> None:
    before = shards(partition / "induction")
    with (partition / "induction" / "shard-00001.jsonl").open("a", encoding="utf-8") as stream:
        stream.write("{}\n")
    reasons = {reason for name, reason in run(made).items() if name.startswith("teacher_trajectories") and reason}
    assert reasons == {"file 'shard-00001.jsonl' was altered after it was written"}
    assert shards(partition / "induction") == before


def test_every_attempt_says_by_which_settings_it_was_made(made: Path, partition: Path) -> None:
    [made_by] = {attempt.made_by for attempt in read_shards(sealed_shards(partition / "induction"))}
    assert len(made_by) == 64
