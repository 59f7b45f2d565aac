"""The division into train, dev and test: the shares, what moves when something is added, and what does not matter."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import load_edits
from graftline.datasets.splits import LARGE_SHARE, assign_splits
from tests.unit.datasets.shards import Divided, Row, change, written

FILES = {"python": "py", "java": "java", "javascript": "js"}
MORE = {"message": "And more", "old_file": "more.py", "new_file": "more.py", "new_contents": "more()\n"}


def edits(prefix: str, sizes: list[int], language: str = "python") -> dict[str, Row]:
    """Return as many repositories as there are sizes, each with so many edits."""
    return {
        name: change(name, repos=f"owner/{prefix}{group}", old_file=file, new_file=file)
        for group, size in enumerate(sizes)
        for number in range(size)
        for name in [f"{prefix}{group}_{number}"]
        for file in [f"{name}.{FILES[language]}"]
    }


def sizes(result: Divided) -> Counter[str]:
    return Counter(result.splits.values())


def test_many_small_clusters_meet_the_shares(tmp_path: Path) -> None:
    # 1,000 draws: the shares of dev and test err by 9.5 edits, that of train by 12.6; four of these are allowed
    result = sizes(Divided(tmp_path, {"one": edits("a", [1] * 1000)}))
    assert sum(result.values()) == 1000
    assert 750 <= result["train"] <= 850
    assert 62 <= result["dev"] <= 138
    assert 62 <= result["test"] <= 138


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [3, 4, 7, 20])
def test_large_clusters_fill_every_split_of_every_language(tmp_path: Path, groups: int, seed: int) -> None:
    # all of them hold more than a fiftieth of their language
    datasets = {language: edits(language, [1 + 2 * group for group in range(groups)], language) for language in FILES}
    result = Divided(tmp_path, datasets, seed=seed)
    for language in FILES:
        splits = {split for name, split in result.splits.items() if name.rstrip("0123456789_") == language}
        assert (language, splits) == (language, {"train", "dev", "test"})


@pytest.mark.parametrize("seed", range(5))
def test_large_clusters_exceed_no_share_by_more_than_the_largest(tmp_path: Path, seed: int) -> None:
    # 45 clusters of 1 to 9 edits are 225. The split that is emptiest for its share has at most its share of what was
    # dealt out so far, unless small clusters alone, which go by their hash, gave it more; and then gets 9 at most.
    counts = [1 + number % 9 for number in range(45)]
    result = Divided(tmp_path, {"one": edits("a", counts)}, seed=seed)
    is_small = {f"a{group}": size <= LARGE_SHARE * 225 for group, size in enumerate(counts)}
    small = Counter(split for name, split in result.splits.items() if is_small[name.partition("_")[0]])
    assert (sum(sizes(result).values()), 0 < sum(small.values()) < 225) == (225, True)
    for split, share in (("train", 180), ("dev", 22.5), ("test", 22.5)):
        assert (split, sizes(result)[split] <= max(share, small[split]) + 9) == (split, True)


def test_a_cluster_of_two_languages_is_dealt_out_once(tmp_path: Path) -> None:
    rows = {
        **edits("a", [5] * 10, "java"),
        **edits("b", [5] * 10, "python"),
        **{name: {**row, "repos": "owner/both"} for name, row in edits("c", [3], "python").items()},
        **{name: {**row, "repos": "owner/both"} for name, row in edits("d", [3], "java").items()},
    }
    result = Divided(tmp_path, {"one": rows})
    assert len({split for name, split in result.splits.items() if name[0] in "cd"}) == 1


def test_a_new_dataset_leaves_the_small_clusters_of_the_others_where_they_were(tmp_path: Path) -> None:
    old = {"one": edits("a", [1] * 150), "two": edits("b", [2] * 75)}
    new = edits("c", [1] * 200)
    before = Divided(tmp_path / "before", old).splits
    orders = ({**old, "new": new}, {"new": new, **old}, {"one": old["one"], "new": new, "two": old["two"]})
    for place, datasets in enumerate(orders):
        after = Divided(tmp_path / str(place), datasets).splits
        assert {name: split for name, split in after.items() if name in before} == before
        assert len(after) == len(before) + 200


def test_another_language_leaves_a_language_where_it_was(tmp_path: Path) -> None:
    python, java = edits("a", [1] * 30 + [4] * 20), edits("b", [9, 5, 2] * 5, "java")
    alone = Divided(tmp_path / "alone", {"one": python}).splits
    both = Divided(tmp_path / "both", {"one": {**python, **java}}).splits
    assert {name: both[name] for name in alone} == alone


def test_a_cluster_keeps_its_split_when_commits_of_its_repositories_are_added(tmp_path: Path) -> None:
    small = edits("a", [1] * 200)
    more = {
        f"{name}_more": {**row, **MORE, "commit": f"new commit of {name}"} for name, row in list(small.items())[:50]
    }
    before = Divided(tmp_path / "before", {"one": small})
    after = Divided(tmp_path / "after", {"one": {**small, **more}})
    assert (after.reasons, len(after.splits)) == ({}, 250)
    assert {name: after.splits[name] for name in before.splits} == before.splits
    assert {name: after.clusters[name] for name in before.clusters} == before.clusters


def test_another_seed_gives_another_division_of_the_same_clusters(tmp_path: Path) -> None:
    rows = {"one": edits("a", [1] * 80)}
    [first, again, other] = [Divided(tmp_path / name, rows, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    assert (first.splits, first.clusters) == (again.splits, again.clusters)
    assert (other.splits != first.splits, other.clusters) == (True, first.clusters)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_does_not_matter_where_nothing_is_there_twice(tmp_path: Path, seed: int) -> None:
    rows = {**edits("a", [1] * 60), **edits("b", [7, 5, 3, 2] * 3, "java")}
    shuffled = dict(random.Random(seed).sample(list(rows.items()), len(rows)))
    first, other = Divided(tmp_path / "a", {"one": rows}), Divided(tmp_path / "b", {"one": shuffled})
    assert (first.splits, first.clusters) == (other.splits, other.clusters)


def test_languages_that_are_not_asked_for_are_not_divided(tmp_path: Path) -> None:
    written(tmp_path / "one", [*edits("a", [1] * 4).values(), *edits("b", [1] * 3, "java").values()])
    division = assign_splits(load_edits({"one": tmp_path / "one"}, ("java",)), Splitting())
    assert division.counts() == {"rows_in": 3, "rows": 3, "clusters": 3}


@pytest.mark.parametrize("datasets", [{}, {"one": {}}])
def test_no_edits_make_an_empty_division(tmp_path: Path, datasets: dict[str, Any]) -> None:
    result = Divided(tmp_path, datasets)
    assert (result.counts, result.splits, result.clusters) == ({"rows_in": 0, "rows": 0, "clusters": 0}, {}, {})
