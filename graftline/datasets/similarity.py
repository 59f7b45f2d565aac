"""Which texts are near one another, and what hangs together, over arrays.

Candidates come from locality-sensitive hashing: signatures that agree in one of 16 bands of 4 numbers. Every candidate
pair is then compared in full. In a band, a text is compared with the first one and with its neighbor, not with all:
what fifty thousand texts share would else take fifty thousand squared comparisons.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from graftline.datasets.fingerprints import Hashes

Pairs = npt.NDArray[np.int64]
"""Shape (pairs, 2), the lesser index first."""

_BAND_ROWS = 4
_COMPARED_AT_ONCE = 1 << 16


def near_pairs(signatures: npt.NDArray[np.uint32], least: float) -> Pairs:
    """Return pairs of rows of `signatures` that agree in at least the share `least`."""
    if not len(signatures):
        return np.zeros((0, 2), np.int64)
    found = np.zeros(0, np.int64)
    for band in range(0, signatures.shape[1], _BAND_ROWS):
        rows = np.ascontiguousarray(signatures[:, band : band + _BAND_ROWS])
        pairs = equal_pairs(_mixed(rows), with_first=True)
        # as one number each, for those are quicker to sort; a pair that is near is found in many bands
        found = np.union1d(found, pairs[:, 0] << 32 | pairs[:, 1])
    candidates = np.stack([found >> 32, found & 0xFFFFFFFF], axis=1)
    return candidates[_agreement(signatures, candidates) >= least]


def _mixed(rows: npt.NDArray[np.uint32]) -> Hashes:
    mixed = np.zeros(len(rows), np.uint64)
    for column in rows.T:
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(32)
    return mixed


def _agreement(signatures: npt.NDArray[np.uint32], pairs: Pairs) -> npt.NDArray[np.float64]:
    parts = [
        (signatures[part[:, 0]] == signatures[part[:, 1]]).mean(axis=1)
        for start in range(0, len(pairs), _COMPARED_AT_ONCE)
        if len(part := pairs[start : start + _COMPARED_AT_ONCE])
    ]
    return np.concatenate([np.zeros(0), *parts])


def equal_pairs(keys: Hashes, owners: npt.NDArray[np.int64] | None = None, with_first: bool = False) -> Pairs:
    """Return pairs of indices, or of their `owners`, with equal keys: each with its neighbor, so that all are joined.

    `with_first` pairs each with the first one as well.
    """
    order = np.argsort(keys, kind="stable")
    same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
    pairs = np.stack([order[same], order[same + 1]], axis=1)
    if with_first:
        starts = np.maximum.accumulate(np.where(np.isin(same - 1, same, assume_unique=True), 0, same + 1)) - 1
        pairs = np.concatenate([pairs, np.stack([order[starts], order[same + 1]], axis=1)])
    if owners is not None:
        pairs = owners[pairs]
    return np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)


def components(size: int, edges: Iterable[Pairs]) -> npt.NDArray[np.int32]:
    """Return for each of `size` nodes the number of the component it is in."""
    if not size:
        return np.zeros(0, np.int32)
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    joined = np.concatenate([np.zeros((0, 2), np.int64), *edges])
    graph = coo_array((np.ones(len(joined), np.bool_), (joined[:, 0], joined[:, 1])), shape=(size, size))
    numbers: npt.NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return numbers


def first_of_equal(keys: Hashes, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return for each of `rows` the first one with the same of `keys`."""
    _, first, inverse = np.unique(keys[rows], return_index=True, return_inverse=True)
    return rows[first[inverse]]


def least_of(numbers: npt.NDArray[np.int32], values: Hashes) -> Hashes:
    """Return for each component in `numbers` the least of its `values`."""
    least = np.full(int(numbers.max(initial=-1)) + 1, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(least, numbers, values)
    return least
