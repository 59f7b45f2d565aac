"""The division into train, dev and test: the shares, what moves when something is added, and what does not matter."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import load_edits
from graftline.datasets.splits import assign_splits
from tests.unit.datasets.shards import Divided, Row, change, written

FILES = {"python": "py", "java": "java", "javascript": "js"}


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
def test_the_shares_hold_in_every_language(tmp_path: Path, seed: int) -> None:
    # clusters of 1 to 9 edits, 225 of Python and 141 of Java; small ones make up for what the others leave
    rows = {
        **edits("a", [1 + number % 9 for number in range(45)]),
        **edits("b", [1 + number % 9 for number in range(30)], "java"),
    }
    result = Divided(tmp_path, {"one": rows}, seed=seed)
    for prefix, total in (("a", 225), ("b", 141)):
        of_language = Counter(split for name, split in result.splits.items() if name.startswith(prefix))
        for split, share in (("train", 0.8), ("dev", 0.1), ("test", 0.1)):
            assert abs(of_language[split] - share * total) <= 2, (prefix, of_language)


def test_a_cluster_that_is_most_of_a_small_language_is_trained_on(tmp_path: Path) -> None:
    # 90 of 100 edits of Java, in the repository that holds 2 of 142 edits of Python
    both = {
        name: {**row, "repos": "owner/both"} for name, row in {**edits("c", [90], "java"), **edits("d", [2])}.items()
    }
    result = Divided(tmp_path, {"one": {**edits("a", [2] * 5, "java"), **edits("b", [2] * 70), **both}})
    java, python = (
        Counter(split for name, split in result.splits.items() if name[0] in prefixes) for prefixes in ("ac", "bd")
    )
    # of the five clusters of 2 that Java has beside it, dev and test get theirs
    assert (java["train"] in (90, 92), java["dev"] in (4, 6), java["test"] in (4, 6)) == (True,) * 3, java
    assert python == {"train": 114, "dev": 14, "test": 14}


def test_a_cluster_of_two_languages_is_dealt_out_once(tmp_path: Path) -> None:
    rows = {
        **edits("a", [5] * 10, "java"),
        **edits("b", [5] * 10, "python"),
        **{name: {**row, "repos": "owner/both"} for name, row in edits("c", [3], "python").items()},
        **{name: {**row, "repos": "owner/both"} for name, row in edits("d", [3], "java").items()},
    }
    result = Divided(tmp_path, {"one": rows})
    assert len({split for name, split in result.splits.items() if name[0] in "cd"}) == 1


def test_another_language_leaves_a_language_where_it_was(tmp_path: Path) -> None:
    python, java = edits("a", [1] * 30 + [4] * 20), edits("b", [9, 5, 2] * 5, "java")
    alone = Divided(tmp_path / "alone", {"one": python}).splits
    both = Divided(tmp_path / "both", {"one": {**python, **java}}).splits
    assert {name: both[name] for name in alone} == alone


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
