"""What every vector store does, whichever implementation it is."""

from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graftline.rollouts.retrieval import (
    MemoryVectorStoreConfig,
    SqliteVectorStoreConfig,
    open_vector_store,
)
from graftline.rollouts.retrieval.base import Neighbor, Vector, VectorEntry, VectorStore

CONFIGS = {"memory": MemoryVectorStoreConfig(), "sqlite": SqliteVectorStoreConfig(path="data/found.sqlite")}


@pytest.fixture(params=CONFIGS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorStore]:
    opened = open_vector_store(CONFIGS[request.param], tmp_path)
    yield opened
    opened.close()


def vector(*values: float) -> Vector:
    return array("f", values)


def entry(key: str, *values: float, language: str = "python", group: str = "g") -> VectorEntry:
    return VectorEntry(key, vector(*values), f"content of {key}", {"language": language, "origin_group": group})


def keys(found: list[Neighbor]) -> list[str]:
    return [one.key for one in found]


COMPASS = (entry("north", 0, 1), entry("east", 1, 0), entry("north-east", 0.6, 0.8), entry("south", 0, -1))


def test_a_store_that_was_never_filled_is_empty(store: VectorStore) -> None:
    assert (store.identity, store.nearest(vector(1, 0), 3, {"language": "python"})) == ("", [])


def test_the_nearest_come_first_with_their_distance(store: VectorStore) -> None:
    store.replace("made", COMPASS)
    found = [(one.key, one.content, round(one.distance, 5)) for one in store.nearest(vector(0, 1), 3)]
    assert found == [
        ("north", "content of north", 0.0),
        ("north-east", "content of north-east", 0.2),
        ("east", "content of east", 1.0),
    ]
    assert store.identity == "made"


def test_equally_near_ones_come_in_the_order_of_their_keys(store: VectorStore) -> None:
    store.replace("made", [entry(key, 1, 0) for key in "cabed"])
    assert keys(store.nearest(vector(1, 0), 9)) == ["a", "b", "c", "d", "e"]


def test_labels_choose_and_leave_out_before_the_nearest_are_counted(store: VectorStore) -> None:
    near = [entry(f"near{number}", 1, 0, group="own") for number in range(50)]
    far = [entry("far", 0, 1, group="other's, with a 'quote' in it"), entry("java", 1, 0, language="java")]
    store.replace("made", [*near, *far])
    found = store.nearest(vector(1, 0), 2, having={"language": "python"}, lacking={"origin_group": "own"})
    assert keys(found) == ["far"]


def test_what_is_replaced_is_gone(store: VectorStore) -> None:
    store.replace("first", COMPASS)
    store.replace("second", [VectorEntry("up", vector(0, 0, 1), "other labels", {"kind": "k"})])
    assert store.identity == "second"
    assert keys(store.nearest(vector(0, 1, 1), 9, having={"kind": "k"})) == ["up"]


def test_a_store_may_be_emptied(store: VectorStore) -> None:
    store.replace("first", COMPASS)
    store.replace("none", [])
    assert (store.identity, store.nearest(vector(1, 0), 3)) == ("none", [])


def test_zeros_find_nothing_and_are_not_found(store: VectorStore) -> None:
    store.replace("made", [*COMPASS, entry("nothing", 0, 0)])
    assert store.nearest(vector(0, 0), 9) == []
    assert "nothing" not in keys(store.nearest(vector(1, 0), 9))


WRONG: dict[str, Callable[[], list[VectorEntry]]] = {
    "the same key": lambda: [entry("a", 1, 0), entry("a", 0, 1)],
    "other dimensions": lambda: [entry("a", 1, 0), entry("b", 1)],
    "other labels": lambda: [entry("a", 1, 0), VectorEntry("b", vector(1, 0), "", {"language": "python"})],
}


@pytest.mark.parametrize("name", WRONG)
def test_entries_that_do_not_go_together_change_nothing(store: VectorStore, name: str) -> None:
    store.replace("made", COMPASS)
    with pytest.raises(ValueError, match=r"entr"):
        store.replace("other", WRONG[name]())
    assert (store.identity, len(store.nearest(vector(1, 0), 9))) == ("made", 4)


def test_an_error_of_who_makes_the_entries_changes_nothing(store: VectorStore) -> None:
    def broken() -> Iterator[VectorEntry]:
        yield entry("a", 1, 0)
        raise RuntimeError("lost")

    store.replace("made", COMPASS)
    with pytest.raises(RuntimeError, match="lost"):
        store.replace("other", broken())
    assert (store.identity, len(store.nearest(vector(1, 0), 9))) == ("made", 4)


def test_questions_that_cannot_be_answered_are_refused(store: VectorStore) -> None:
    store.replace("made", COMPASS)
    with pytest.raises(ValueError, match="3 dimensions was asked for among vectors of 2"):
        store.nearest(vector(1, 0, 0), 1)
    with pytest.raises(ValueError, match="label 'split' is unknown; known: language, origin_group"):
        store.nearest(vector(1, 0), 1, lacking={"split": "test"})


def test_threads_may_ask_at_the_same_time(store: VectorStore) -> None:
    store.replace("made", COMPASS)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: keys(store.nearest(vector(0, 1), 2)), range(8)))
    assert found == [["north", "north-east"]] * 8


def test_a_second_close_does_nothing(store: VectorStore) -> None:
    store.close()
    store.close()
