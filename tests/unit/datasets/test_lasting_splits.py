"""What was held out once stays held out: datasets that come and go in any order, and edits that would join two splits."""

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graftline.core.parquet import ParquetError, write_parquet
from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import REASONS, EditTable
from graftline.datasets.edit import DIVISION
from graftline.datasets.fingerprints import PERMUTATIONS, key
from graftline.datasets.near_texts import NearTexts
from graftline.datasets.splits import NOTHING_ASSIGNED, SPLITS, Assigned, Assignments, assign_splits, read_assigned

TRAIN = SPLITS.index("train")
Row = tuple[str, str, str]
"""Id, repository and text before."""


def table_of(rows: Sequence[Row]) -> EditTable:
    """Return the columns of edits in one language, of which none is near another."""

    def keys(values: Sequence[str]) -> np.ndarray:
        return np.array([key(value.encode()) for value in values], np.uint64)

    count = len(rows)
    ids, repositories, texts = (keys(column) for column in zip(*rows, strict=True))
    return EditTable(
        (), np.zeros(count, np.int8), np.zeros(count, np.int64), np.zeros(count, np.int64), ids, ids, texts, ids,
        np.zeros(count, np.uint64), repositories, np.arange(count),
        np.random.default_rng(0).integers(0, 2**32, (count, PERMUTATIONS), np.uint32),
    )  # fmt: skip


def splits_of(rows: Sequence[Row], assignments: Assignments) -> dict[str, str]:
    return {row[0]: SPLITS[split] for row, split in zip(rows, assignments.splits, strict=True) if split >= 0}


def reasons_of(rows: Sequence[Row], assignments: Assignments) -> dict[str, str]:
    return {row[0]: REASONS[reason] for row, reason in zip(rows, assignments.reasons, strict=True) if reason}


def random_datasets(seed: int) -> list[list[Row]]:
    """Return seven datasets that share repositories and texts."""
    draw = random.Random(seed)
    return [
        [(f"{name}:{number}", f"r{draw.randrange(120)}", f"t{draw.randrange(600)}") for number in range(40)]
        for name in "abcdefg"
    ]


@pytest.mark.parametrize("seed", range(25))
def test_nothing_that_was_held_out_is_ever_trained_on(seed: int) -> None:
    datasets = random_datasets(seed)
    order = random.Random(-seed).sample(range(7), 7)
    held_out: dict[str, set[str]] = {"id": set(), "repository": set(), "text": set()}
    assigned, shown = NOTHING_ASSIGNED, list[Row]()
    for index in order:
        # now and then one that was there is away for a while
        shown = [*shown, *datasets[index]]
        rows = shown if index % 3 else datasets[index]
        assignments = assign_splits(table_of(rows), Splitting(), assigned)
        for (id, repository, text), split in zip(rows, assignments.splits, strict=True):
            of_row = {"id": id, "repository": repository, "text": text}
            if split == TRAIN:
                assert [name for name, value in of_row.items() if value in held_out[name]] == []
        for (id, repository, text), split in zip(rows, assignments.splits, strict=True):
            if split > TRAIN:
                held_out["id"].add(id)
                held_out["repository"].add(repository)
                held_out["text"].add(text)
        assigned = assignments.assigned
    assert held_out["id"]


def test_a_cluster_stays_in_its_split_whatever_the_seed_and_the_shares_are_now() -> None:
    rows = [(f"a:{number}", f"r{number}", f"t{number}") for number in range(100)]
    first = assign_splits(table_of(rows), Splitting())
    more = [*rows, *((f"b:{number}", f"r{number}", f"u{number}") for number in range(100))]
    later = assign_splits(table_of(more), Splitting(seed=7, train=0.5, dev=0.25, test=0.25), first.assigned)
    before, after = splits_of(rows, first), splits_of(more, later)
    assert {id: after[id] for id in before} == before
    assert all(after[f"b:{number}"] == before[f"a:{number}"] for number in range(100))


def test_small_clusters_are_where_they_are_by_their_names_alone() -> None:
    # none holds more than a thousandth, and nothing was assigned before
    rows = [(f"a:{number}", f"r{number}", f"t{number}") for number in range(1000)]
    more = [(f"b:{number}", f"s{number}", f"u{number}") for number in range(1000)]
    same = [(f"c:{number}", f"r{number}", f"v{number}") for number in range(50)]
    before, after = (
        splits_of(table, assign_splits(table_of(table), Splitting())) for table in (rows, [*more, *rows, *same])
    )
    assert {id: after[id] for id in before} == before
    assert [after[f"c:{number}"] for number in range(50)] == [before[f"a:{number}"] for number in range(50)]


@pytest.mark.parametrize("count", [90, 900], ids=["large clusters", "small clusters"])
def test_new_clusters_make_up_for_what_was_assigned(count: int) -> None:
    old = count // 9
    rows = [(f"a:{number}", f"r{number}", f"t{number}") for number in range(old)]
    all_held_out = Assigned.of(np.array([key(id.encode()) for id, _, _ in rows], np.uint64), np.full(old, 2, np.int8))
    more = [(f"b:{number}", f"s{number}", f"u{number}") for number in range(count)]
    splits = splits_of([*rows, *more], assign_splits(table_of([*rows, *more]), Splitting(), all_held_out))
    sizes = Counter(splits.values())
    # test is full; of the 900 draws for dev, which has a ninth of them, the number errs by 9.4
    assert (sizes["test"], {splits[id] for id, _, _ in rows}) == (old, {"test"})
    assert abs(sizes["dev"] - old) <= (0 if count == 90 else 38)


def test_new_edits_between_two_splits_fall_out_and_the_old_ones_stay() -> None:
    rows = [(f"a:{number}", f"r{number}", f"t{number}") for number in range(60)]
    first = assign_splits(table_of(rows), Splitting())
    splits = splits_of(rows, first)
    trained, tested = (next(row for row in rows if splits[row[0]] == split) for split in ("train", "test"))
    # of the repository of the one, with the text of the other; and what hangs on it
    between = [("b:0", trained[1], tested[2]), ("b:1", trained[1], "u1")]
    alone = [("b:2", "another", "u2")]
    later = assign_splits(table_of([*rows, *between, *alone]), Splitting(), first.assigned)
    after = splits_of([*rows, *between, *alone], later)
    assert {id: after[id] for id in splits} == splits
    assert "b:2" in after
    assert reasons_of([*rows, *between, *alone], later) == {"b:0": "joins_splits", "b:1": "joins_splits"}
    assert later.counts()["dropped.joins_splits"] == 2


def test_edits_of_two_splits_that_turn_out_to_be_of_one_text_all_fall_out() -> None:
    rows = [("a:0", "r0", "same"), ("a:1", "r1", "same"), ("a:2", "r2", "other")]
    assigned = Assigned.of(np.array([key(b"a:0"), key(b"a:1")], np.uint64), np.array([0, 2], np.int8))
    result = assign_splits(table_of(rows), Splitting(), assigned)
    assert reasons_of(rows, result) == {"a:0": "joins_splits", "a:1": "joins_splits"}
    assert [*splits_of(rows, result)] == ["a:2"]


def test_what_version_0_1_0_assigned_is_read_from_its_rows(tmp_path: Path) -> None:
    row = {"dataset": "a", "reason": None, "kept_id": None, "cluster": "c"}
    rows = [{**row, "id": "a:0", "split": "test"}, {**row, "id": "a:1", "split": None, "reason": "duplicate_row"}]
    write_parquet(tmp_path / "python.parquet", rows, DIVISION)
    assigned = read_assigned(tmp_path)
    assert assigned.find(np.array([key(b"a:0"), key(b"a:1")], np.uint64)).tolist() == [SPLITS.index("test"), -1]
    assert read_assigned(tmp_path / "none").keys.tolist() == []


def test_what_was_held_out_is_not_forgotten_in_silence(tmp_path: Path) -> None:
    (tmp_path / "assigned.parquet").write_bytes(b"no file of Parquet")
    with pytest.raises(ParquetError, match=r"assigned\.parquet: cannot be read"):
        read_assigned(tmp_path)


def test_an_edit_like_a_file_of_a_change_goes_where_the_change_is() -> None:
    rows = [(f"a:{number}", f"r{number}", f"t{number}") for number in range(6)]
    table = table_of(rows)
    of_changes = NearTexts(table.signatures[:3], np.array([2, 1, 2], np.int8), 0.7)
    splits = splits_of(rows, assign_splits(table, Splitting(), NOTHING_ASSIGNED, of_changes))
    assert [splits[f"a:{number}"] for number in range(3)] == ["test", "dev", "test"]
    # what was assigned to another split before is dropped from both
    before = Assigned.of(table.ids[:1], np.array([TRAIN], np.int8))
    assert reasons_of(rows, assign_splits(table, Splitting(), before, of_changes)) == {"a:0": "joins_splits"}
