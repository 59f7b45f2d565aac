"""Pairs of near and equal things, and what hangs together by them, against what comparing all with all finds."""

import random
from collections.abc import Iterable

import numpy as np
import pytest

from graftline.datasets.deduplicate import components, equal_pairs, first_of_equal, least_of, near_pairs
from graftline.datasets.fingerprints import PERMUTATIONS, signatures

LEAST = 0.7


def matrix(texts: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(signatures(texts)), np.uint32).reshape(-1, PERMUTATIONS)


def families(seed: int, count: int, size: int, changes: int) -> list[bytes]:
    """Return texts of which `size` at a time are one text with some runs of bytes exchanged."""
    rng = random.Random(seed)
    texts = []
    for _ in range(count):
        text = bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz(),.=_", k=1200))
        for _ in range(size):
            varied = bytearray(text)
            for _ in range(rng.randrange(changes + 1)):
                at = rng.randrange(1190)
                varied[at : at + 3] = bytes(rng.choices(b"0123456789", k=3))
            texts.append(bytes(varied))
    rng.shuffle(texts)
    return texts


def all_near(rows: np.ndarray, least: float) -> dict[tuple[int, int], float]:
    """Return every pair of rows that agree in at least the share `least`, with the share."""
    pairs = {}
    for row in range(len(rows)):
        shares = (rows[row] == rows[row + 1 :]).mean(axis=1)
        pairs.update({(row, row + 1 + int(at)): float(shares[at]) for at in np.flatnonzero(shares >= least)})
    return pairs


def as_set(pairs: np.ndarray) -> set[tuple[int, int]]:
    return {(first, second) for first, second in pairs.tolist()}


@pytest.mark.parametrize("seed", range(3))
def test_near_pairs_are_near_and_nearly_all_there_are(seed: int) -> None:
    # of a pair at the very limit the 16 bands of four find 1 - (1 - 0.7⁴)¹⁶ = 98.8 %, of nearer ones more
    texts = matrix(families(seed, count=150, size=2, changes=8))
    pairs, expected = as_set(near_pairs(texts, LEAST)), all_near(texts, LEAST)
    assert len(expected) > 80
    assert pairs <= set(expected)
    assert len(pairs) >= 0.97 * len(expected)
    assert {pair for pair, share in expected.items() if share > 0.9} <= pairs


@pytest.mark.parametrize("seed", range(3))
def test_near_texts_of_large_families_hang_together_though_not_all_pairs_are_named(seed: int) -> None:
    texts = matrix(families(seed, count=12, size=25, changes=3))
    pairs, expected = near_pairs(texts, LEAST), all_near(texts, LEAST)
    assert as_set(pairs) <= set(expected)
    together = [components(len(texts), [edges]) for edges in (pairs, np.array(list(expected), np.int64))]
    assert partition(together[0]) == partition(together[1])


def test_pairs_come_once_in_order_with_the_lesser_first() -> None:
    pairs = near_pairs(matrix(families(0, count=20, size=4, changes=3)), LEAST)
    assert pairs.tolist() == [list(pair) for pair in sorted(as_set(pairs))]
    assert all(first < second for first, second in pairs.tolist())


@pytest.mark.parametrize("rows", [0, 1])
def test_few_texts_have_no_pairs(rows: int) -> None:
    pairs = near_pairs(np.zeros((rows, PERMUTATIONS), np.uint32), LEAST)
    assert (pairs.shape, pairs.dtype) == ((0, 2), np.int64)


def test_texts_with_nothing_in_common_have_no_pairs() -> None:
    assert near_pairs(matrix(families(5, count=50, size=1, changes=0)), LEAST).shape == (0, 2)


def test_a_text_that_thousands_share_is_not_compared_all_with_all() -> None:
    # all with all would be 200 million pairs
    texts = np.repeat(matrix([b"license" * 30]), 20_000, axis=0)
    pairs = near_pairs(texts, LEAST)
    assert len(pairs) < 3 * len(texts)
    assert len(set(components(len(texts), [pairs]).tolist())) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("with_first", [False, True])
def test_equal_pairs_are_equal_and_join_all_that_are(seed: int, with_first: bool) -> None:
    rng = random.Random(seed)
    keys = np.array([rng.randrange(30) for _ in range(100)], np.uint64)
    pairs = equal_pairs(keys, with_first=with_first)
    assert all(first < second and keys[first] == keys[second] for first, second in pairs.tolist())
    expected = [
        (first, second) for first in range(100) for second in range(first + 1, 100) if keys[first] == keys[second]
    ]
    assert partition(components(100, [pairs])) == united(100, expected)
    if with_first:
        firsts = {int(keys[at]): at for at in reversed(range(100))}
        assert {(firsts[int(keys[at])], at) for at in range(100) if firsts[int(keys[at])] != at} <= as_set(pairs)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_of_owners_are_never_of_one_with_itself(seed: int) -> None:
    rng = random.Random(seed)
    keys = np.array([rng.randrange(25) for _ in range(80)], np.uint64)
    owners = np.sort(np.array([rng.randrange(30) for _ in range(80)], np.int64))
    pairs = equal_pairs(keys, owners)
    assert all(first < second for first, second in pairs.tolist())
    expected = [
        (int(owners[first]), int(owners[second]))
        for first in range(80)
        for second in range(80)
        if keys[first] == keys[second]
    ]
    assert partition(components(30, [pairs])) == united(30, expected)


@pytest.mark.parametrize("keys", [[], [7]])
def test_what_is_alone_has_no_equal(keys: list[int]) -> None:
    for with_first in (False, True):
        assert equal_pairs(np.array(keys, np.uint64), with_first=with_first).shape == (0, 2)


def partition(numbers: np.ndarray) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for node, number in enumerate(numbers.tolist()):
        groups.setdefault(number, set()).add(node)
    return set(map(frozenset, groups.values()))


def united(size: int, pairs: Iterable[tuple[int, int]]) -> set[frozenset[int]]:
    """Return the components of a graph, by joining its nodes one pair after the other."""
    group = {node: {node} for node in range(size)}
    for first, second in pairs:
        if group[first] is not group[second]:
            joined = group[first] | group[second]
            for node in joined:
                group[node] = joined
    return set(map(frozenset, group.values()))


@pytest.mark.parametrize("seed", range(5))
def test_components_are_those_of_joining_pair_by_pair(seed: int) -> None:
    rng = random.Random(seed)
    parts = [[(rng.randrange(60), rng.randrange(60)) for _ in range(count)] for count in (12, 0, 15)]
    edges = [np.array(part, np.int64).reshape(-1, 2) for part in parts]
    assert partition(components(60, edges)) == united(60, [pair for part in parts for pair in part])


def test_without_edges_every_node_is_alone() -> None:
    assert partition(components(3, [])) == {frozenset({node}) for node in range(3)}
    assert components(0, []).tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_the_first_of_equal_rows_is_the_one_that_comes_first_among_them(seed: int) -> None:
    rng = random.Random(seed)
    keys = np.array([rng.randrange(12) for _ in range(60)], np.uint64)
    rows = np.array(sorted(rng.sample(range(60), 35)), np.int64)
    expected = [next(other for other in rows.tolist() if keys[other] == keys[row]) for row in rows.tolist()]
    assert first_of_equal(keys, rows).tolist() == expected


def test_of_no_rows_there_is_no_first() -> None:
    assert first_of_equal(np.arange(5, dtype=np.uint64), np.zeros(0, np.int64)).tolist() == []


@pytest.mark.parametrize("seed", range(5))
def test_the_least_of_a_component_is_its_least_value(seed: int) -> None:
    rng = random.Random(seed)
    numbers = np.array([*range(7), *(rng.randrange(7) for _ in range(40))], np.int32)
    values = np.array([rng.getrandbits(64) for _ in numbers], np.uint64)
    expected = [
        min(value for value, owner in zip(values.tolist(), numbers, strict=True) if owner == number)
        for number in range(7)
    ]
    assert least_of(numbers, values).tolist() == expected


def test_no_components_have_no_least() -> None:
    assert least_of(np.zeros(0, np.int32), np.zeros(0, np.uint64)).tolist() == []
