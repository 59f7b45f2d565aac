"""How splits hold when datasets are added one by one, in random orders: all seven, with the rows of the mirror beside the checkout.

EditPackFT and OCEDataFT, which that mirror lacks, are made of its rows of CommitPackFT. Each dataset is normalized once; in each
order, all that were added so far are assigned to splits again, with what was assigned before.
"""

import json
import os
import random
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from benchmarks.commands import CHECKOUT
from graftline.core.paths import Paths
from graftline.datasets.deduplicate import EditTable, load_edits
from graftline.datasets.fingerprints import Hashes
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.datasets.splits import NOTHING_ASSIGNED, SPLITS, assign_splits
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.stages.table import make
from tests.small_mirror import configure, edit_pack, first_rows, grown_from, put_lines, put_table, small_mirror

SHARED = CHECKOUT.parent / "shared" / "data"
TRAIN = SPLITS.index("train")


def orders(folder: Path, number: int, rows: int) -> dict[str, Any]:
    """Return what moved over `number` random orders, with at most `rows` rows of each file of the mirror.

    `rows`, those in a split in the end, and `dropped.joins_splits` are means. `percent` has the least, the median and the greatest
    share that a split has of a language in the end.
    """
    if not (SHARED / "mirror").is_dir():
        return {"left_out": "needs the rows of a mirror beside the checkout, ../shared/data/mirror"}
    normalized, splitting, languages = _normalize_all(folder, rows)

    @cache
    def load(names: tuple[str, ...]) -> EditTable:
        return load_edits({name: normalized[name] for name in names}, languages)

    leaked, moved = 0, 0
    ends: list[dict[str, int]] = []
    shares = []
    for seed in range(number):
        assigned, held_out = NOTHING_ASSIGNED, np.zeros(0, np.uint64)
        order = random.Random(seed).sample(list(normalized), len(normalized))
        for step in range(1, len(order) + 1):
            edits = load(tuple(name for name in normalized if name in order[:step]))
            earlier = assigned.find(edits.ids)
            assignments = assign_splits(edits, splitting, assigned)
            splits, assigned = assignments.splits, assignments.assigned
            leaked += len(np.intersect1d(_keys_of(edits, splits == TRAIN), held_out))
            held_out = np.union1d(held_out, _keys_of(edits, splits > TRAIN))
            moved += int(((earlier >= 0) & (splits >= 0) & (splits != earlier)).sum())
        ends.append(assignments.counts())
        shares.append(_shares_of(edits, splits, len(languages)))
    means = {name: round(sum(end.get(name, 0) for end in ends) / number) for name in ("rows", "dropped.joins_splits")}
    return {
        **{"orders": number, "datasets": len(normalized), "rows_in": len(edits), **means},
        **{"held_out_then_trained": leaked, "moved": moved, "percent": _percentiles(shares, languages)},
    }


def _normalize_all(folder: Path, rows: int) -> tuple[dict[str, Path], Any, Sequence[Any]]:
    mirror = small_mirror(SHARED, folder / "mirror", rows)
    commits = first_rows(SHARED / "mirror" / "commitpackft/data/python/data.jsonl.gz", rows)
    put_table(mirror / "editpackft/data/train.parquet", edit_pack(commits[::2]))
    grown = [(number, row) for number, commit in enumerate(commits[::3]) for row in grown_from(commit["commit"])]
    # under a name of their own, else all have one text and are one cluster
    put_lines(mirror / "oce_dataft/ocedataft.jsonl", (_rename(row, f"total_{number}") for number, row in grown))
    configure(CHECKOUT, folder)
    shutil.copytree(CHECKOUT / "data" / "samples", folder / "data" / "samples")
    paths, environment = Paths(folder), {MIRROR_VARIABLE: str(mirror), "GRAFTLINE_DATASETS": "all"}
    manifest = load_manifest(paths, "local", {"sandbox": "memory"})
    with patch.dict(os.environ, environment), open_lineage(paths, manifest, "benchmark") as lineage:
        for name in lineage.catalog.used:
            make("raw", lineage, name)
        for name in lineage.catalog.sources:
            make("normalized", lineage, name)
        catalog = lineage.catalog
        return {name: paths.normalized(name) for name in catalog.sources}, catalog.splitting, catalog.languages


def _rename(row: dict[str, Any], name: str) -> dict[str, Any]:
    renamed: dict[str, Any] = json.loads(json.dumps(row).replace("total", name))
    return renamed


def _keys_of(edits: EditTable, is_chosen: npt.NDArray[np.bool_]) -> Hashes:
    """Return the hashes of ids, texts before, repositories and commits of some edits."""
    return np.concatenate([edits.ids[is_chosen], edits.pre[is_chosen], edits.links[is_chosen[edits.link_owners]]])


def _shares_of(edits: EditTable, splits: npt.NDArray[np.int8], languages: int) -> npt.NDArray[np.float64]:
    """Return the share of each split in each language, in percent."""
    sizes = np.zeros((len(SPLITS), languages))
    is_kept = splits >= 0
    np.add.at(sizes, (splits[is_kept], edits.languages[is_kept]), 1)
    return 100 * sizes / np.maximum(sizes.sum(axis=0), 1)


def _percentiles(
    shares: Sequence[npt.NDArray[np.float64]], languages: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """Return the least, the median and the greatest share of each split in each language over all orders."""
    values = np.percentile(np.array(shares), (0, 50, 100), axis=0).round(1)
    return {
        language: {split: values[:, row, column].tolist() for row, split in enumerate(SPLITS)}
        for column, language in enumerate(languages)
    }
