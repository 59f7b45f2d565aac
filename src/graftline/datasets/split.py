"""Dividing edits into train, dev and test so that nothing leaks.

What hangs together goes together: edits of one group (repository, package), and edits whose texts before are equal
once blanks and letter case are folded. Equal edits are kept once. Clusters are dealt out in the order of a seeded
digest, each to the split that is emptiest for its share in the cluster's language; so every split gets something
even where a language has a handful of packages.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.datasets.catalogue import Splitting
from graftline.datasets.edit import Edit
from graftline.hashing import digest, sha256_text

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Division:
    """Where every kept edit belongs, and how many were dropped as duplicates."""

    splits: dict[tuple[str, Split], list[Edit]]
    """By language and split; edits in the order of their ids."""
    duplicates: int


def divide(edits: Iterable[Edit], splitting: Splitting) -> Division:
    """Return the division of `edits`; it does not depend on their order."""
    kept, duplicates = unique(edits)
    clusters: dict[str, list[Edit]] = defaultdict(list)
    for edit, cluster in zip(kept, _clusters(kept), strict=True):
        clusters[cluster].append(edit)
    shares = {split: getattr(splitting, split) for split in SPLITS}
    filled: dict[str, Counter[Split]] = defaultdict(Counter)
    splits: dict[tuple[str, Split], list[Edit]] = defaultdict(list)
    for name in sorted(clusters, key=lambda name: digest([splitting.seed, name])):
        members = clusters[name]
        languages = Counter(edit.language for edit in members)
        main = min(languages, key=lambda language: (-languages[language], language))
        split = min(SPLITS, key=lambda split: (filled[main][split] / shares[split], SPLITS.index(split)))
        for edit in members:
            filled[edit.language][split] += 1
            splits[edit.language, split].append(edit)
    return Division({key: sorted(found, key=lambda edit: edit.id) for key, found in splits.items()}, duplicates)


def unique(edits: Iterable[Edit]) -> tuple[list[Edit], int]:
    """Return `edits` in the order of their ids, each change and each (instruction, pre) once, and how many fell out."""
    seen: set[tuple[str, ...]] = set()
    kept: list[Edit] = []
    total = 0
    # the whole edit breaks the tie of equal ids, or the order they came in would
    for edit in sorted(edits, key=lambda edit: (edit.id, edit.model_dump_json())):
        total += 1
        keys = {("id", edit.id), ("asked", edit.instruction, edit.pre), ("done", folded(edit.pre), folded(edit.post))}
        if not keys & seen:
            kept.append(edit)
            seen |= keys
    return kept, total - len(kept)


def folded(text: str) -> str:
    """Return a digest of `text` that does not see blanks and letter case."""
    return sha256_text(re.sub(r"\s+", "", text).lower())


def _clusters(edits: Sequence[Edit]) -> list[str]:
    """Return for every edit the least group of those it hangs together with."""
    parent: dict[Hashable, Hashable] = {}

    def root(item: Hashable) -> Hashable:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for edit in edits:
        parent[root(("text", folded(edit.pre)))] = root(("group", edit.group))
    least: dict[Hashable, str] = {}
    for edit in edits:
        top = root(("group", edit.group))
        least[top] = min(edit.group, least.get(top, edit.group))
    return [least[root(("group", edit.group))] for edit in edits]
