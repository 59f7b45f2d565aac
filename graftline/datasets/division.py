"""Which edits are kept once, and which split each of them is in, so that nothing leaks.

Of edits that say the same, the first is kept: datasets come in their order of precedence. The same are, in this order,

1. `duplicate_id`, `duplicate_row`: equal id; equal instruction and text before;
2. `duplicate_commit`: equal commit and path, in whatever dataset;
3. `duplicate_code`: equal texts before and after, once blanks and letter case are folded;
4. `near_duplicate`: similar texts before (MinHash), and the same lines changed in them.

What hangs together goes together: edits of one group (repository or package, forks included), of one commit, with equal
or similar texts before. Such a cluster goes to a split by the hash of its least group, so that a new dataset or a new
version leaves the others where they were. A cluster that holds more than a fiftieth of its language is dealt out to
the split that is emptiest for its share, else a language with a handful of packages could have a split without any.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson

from graftline.datasets.catalog import Splitting
from graftline.datasets.comparison import Comparison
from graftline.datasets.fingerprints import key
from graftline.datasets.similarity import components, equal_pairs, first_of_equal, least_of, near_pairs

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")

REASONS = ("", "duplicate_id", "duplicate_row", "duplicate_commit", "duplicate_code", "near_duplicate")
LARGE_SHARE = 0.02
_REMEMBERED_CHANGES = 1 << 14  # an edit is compared with its neighbors in every band


@dataclass(frozen=True, slots=True)
class Division:
    """Where every edit of a comparison belongs."""

    reasons: npt.NDArray[np.int8]
    """Index into `REASONS`; 0 for an edit that is kept."""
    kept: npt.NDArray[np.int64]
    """Index of the edit that is kept in its stead; its own where it is kept."""
    clusters: npt.NDArray[np.uint64]
    """Name of the cluster."""
    splits: npt.NDArray[np.int8]
    """Index into `SPLITS`; -1 for an edit that is not kept."""

    def counts(self) -> dict[str, int]:
        """Return how many edits there were, are kept, and fell out for which reason."""
        fallen = Counter(REASONS[reason] for reason in self.reasons.tolist())
        kept = fallen.pop("", 0)
        clusters = len(np.unique(self.clusters[self.reasons == 0]))
        dropped = {f"dropped.{reason}": fallen[reason] for reason in REASONS if reason in fallen}
        return {"rows_in": len(self.reasons), "rows": kept, "clusters": clusters, **dropped}


def divide(edits: Comparison, splitting: Splitting) -> Division:
    """Return the division of `edits`."""
    near = near_pairs(edits.signatures, splitting.near_duplicate)
    reasons, kept = _duplicates(edits, near)
    numbers = components(
        len(edits),
        [equal_pairs(edits.links, edits.link_owners), equal_pairs(edits.pre), near],
    )
    # the least group of a cluster, which is the first link of an edit: it stays the same when others join, unless one
    # of them is less
    groups = edits.links[np.flatnonzero(np.diff(edits.link_owners, prepend=-1))]
    names = least_of(numbers, groups)[numbers] if len(edits) else groups
    splits = _dealt(edits, names, reasons == 0, splitting)
    return Division(reasons, kept, names, splits)


def _duplicates(edits: Comparison, near: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.int64]]:
    reasons = np.zeros(len(edits), np.int8)
    kept = np.arange(len(edits))
    for reason, keys in enumerate((edits.ids, edits.asked, edits.change, edits.done), 1):
        left = np.flatnonzero((reasons == 0) & (keys != 0))
        first = first_of_equal(keys, left)
        fallen = first != left
        reasons[left[fallen]], kept[left[fallen]] = reason, first[fallen]
    changed_lines = lru_cache(_REMEMBERED_CHANGES)(lambda index: _changed_lines(edits.line(index)))
    # one after the other, for what an edit is a duplicate of may itself be one
    for earlier, later in near.tolist():
        if reasons[later] == 0 and reasons[earlier] == 0 and changed_lines(earlier) == changed_lines(later):
            reasons[later], kept[later] = REASONS.index("near_duplicate"), earlier
    return reasons, _roots(kept)


def _roots(kept: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    while (kept[kept] != kept).any():
        kept = kept[kept]
    return kept


def _changed_lines(line: bytes) -> tuple[Counter[str], Counter[str]]:
    """Return the lines that go and those that come, blanks aside."""
    edit: Mapping[str, Any] = orjson.loads(line)
    before, after = edit["pre"].split("\n"), edit["post"].split("\n")
    # lines that both sides begin and end with cancel out anyway, and are most of them
    start = _common(before, after)
    before, after = before[start:], after[start:]
    end = _common(before[::-1], after[::-1])
    gone, come = (Counter("".join(text.split()) for text in side[: len(side) - end]) for side in (before, after))
    return gone - come, come - gone


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many items both begin with."""
    return next(
        (at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other))
    )


def _dealt(
    edits: Comparison, names: npt.NDArray[np.uint64], is_kept: npt.NDArray[np.bool_], splitting: Splitting
) -> npt.NDArray[np.int8]:
    """Return the split of every edit."""
    splits = np.full(len(edits), -1, np.int8)
    if not is_kept.any():
        return splits
    shares = np.array([splitting.train, splitting.dev, splitting.test])
    clusters, of_edit = np.unique(names[is_kept], return_inverse=True)
    languages = edits.languages[is_kept].astype(np.int64)
    sizes = np.zeros((len(clusters), int(languages.max()) + 1), np.int64)
    np.add.at(sizes, (of_edit, languages), 1)
    places = _places(clusters, splitting.seed)
    chosen = np.minimum(np.searchsorted(np.cumsum(shares), places, side="right"), len(SPLITS) - 1)
    is_large = (sizes > LARGE_SHARE * sizes.sum(axis=0)).any(axis=1)
    filled = np.zeros((len(SPLITS), sizes.shape[1]))
    np.add.at(filled, chosen[~is_large], sizes[~is_large])
    # the largest first, for what is left over then fits better
    for cluster in sorted(np.flatnonzero(is_large), key=lambda cluster: (-sizes[cluster].max(), places[cluster])):
        main = int(np.argmax(sizes[cluster]))
        chosen[cluster] = int(np.argmin(filled[:, main] / shares))
        filled[chosen[cluster]] += sizes[cluster]
    splits[is_kept] = chosen[of_edit]
    return splits


def _places(clusters: Sequence[int] | npt.NDArray[np.uint64], seed: int) -> npt.NDArray[np.float64]:
    """Return a number from 0 to 1 for every cluster, by its name and the seed alone."""
    return np.array([key(b"%d" % seed, b"%d" % cluster) / 2**64 for cluster in np.asarray(clusters).tolist()])
