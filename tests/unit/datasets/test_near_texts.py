"""Pairs of near and equal things, and what hangs together by them, against what comparing all with all finds."""

import random
from pathlib import Path

import numpy as np
import pytest

from graftline.datasets.deduplicate import components, near_pairs
from graftline.datasets.fingerprints import PERMUTATIONS, signatures
from graftline.datasets.near_texts import NearTexts

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


def test_a_text_is_near_to_those_whose_splits_are_known(tmp_path: Path) -> None:
    texts = matrix(families(1, count=60, size=3, changes=8))
    splits = np.arange(90, dtype=np.int8) % 3
    near = all_near(texts, LEAST)
    expected = {(second - 90, int(splits[first])) for first, second in near if first < 90 <= second}
    NearTexts(texts[:90], splits, LEAST).join(NearTexts(texts[:90], splits, LEAST)).write(tmp_path)
    read = NearTexts.read(tmp_path, LEAST)
    assert (len(read), len(NearTexts.read(tmp_path / "nowhere", LEAST))) == (90, 0)
    rows, splits_near = read.find(texts[90:])
    pairs = {*zip(rows.tolist(), splits_near.tolist(), strict=True)}
    assert len(expected) > 30
    assert pairs <= expected
    assert len(pairs) >= 0.97 * len(expected)
    assert NearTexts.of([], [], LEAST).find(texts)[0].tolist() == []


def test_a_text_is_near_to_one_of_each_split_however_many_of_another_come_first() -> None:
    text = matrix([b"license" * 30])
    splits = np.repeat(np.array([0, 1, 0, 2], np.int8), [1000, 1, 1000, 1])
    rows, splits_near = NearTexts(np.repeat(text, len(splits), axis=0), splits, LEAST).find(text)
    assert (set(rows.tolist()), set(splits_near.tolist())) == ({0}, {0, 1, 2})
    # 64 of one split, one of each of the others, in each of 16 bands
    assert len(rows) == 16 * 66


def test_texts_with_nothing_in_common_have_no_pairs() -> None:
    assert near_pairs(matrix(families(5, count=50, size=1, changes=0)), LEAST).shape == (0, 2)


def test_a_text_that_thousands_share_is_not_compared_all_with_all() -> None:
    # all with all would be 200 million pairs
    texts = np.repeat(matrix([b"license" * 30]), 20_000, axis=0)
    pairs = near_pairs(texts, LEAST)
    assert len(pairs) < 3 * len(texts)
    assert len(set(components(len(texts), [pairs]).tolist())) == 1


def partition(numbers: np.ndarray) -> set[frozenset[int]]:
    groups: dict[int, set[int]] = {}
    for node, number in enumerate(numbers.tolist()):
        groups.setdefault(number, set()).add(node)
    return set(map(frozenset, groups.values()))
