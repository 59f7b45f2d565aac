"""The split of each change, by what was assigned before: to edits of its repository, and to earlier changes.

A repository is in one split, forks and packages of it included; as a package counts what is called like the repository, for a
package that is not of it is only kept together with it. Where none of its names was assigned, a commit or a text of the
change may have been; else it goes to a split by the hash of its name. A change that holds what is in two splits is in none.
"""

import re

import numpy as np

from graftline.datasets.catalog import Splitting
from graftline.datasets.decontaminate import LEAST_SHINGLES
from graftline.datasets.fingerprints import commit_key, group_key, key, strip_whitespace
from graftline.datasets.repository_changes.change import RepositoryChange
from graftline.datasets.splits import SPLITS, Assigned, Split

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


class SplitAssigner:
    """Assigns changes one by one, and remembers what it assigned."""

    def __init__(self, splitting: Splitting, of_edits: Assigned, of_changes: Assigned) -> None:
        self._splitting, self._of_edits, self._of_changes = splitting, of_edits, of_changes
        self._new: dict[int, int] = {}
        """Index of the split by key."""

    def assign(self, change: RepositoryChange) -> Split | None:
        """Return the split of `change`; None where it would join two of them."""
        names = [group_key(name) for name in (change.repo, *change.aliases, *_packages(change.repo))]
        commits = [commit_key(change.commit)] if _COMMIT.fullmatch(change.commit) else []
        folded = (strip_whitespace(file.before).lower() for file in change.files)
        # what is shorter is found everywhere
        contents = commits + [key(text) for text in folded if len(text) >= LEAST_SHINGLES]
        of_names, of_contents = self._find(names), self._find(contents)
        splits = of_names | of_contents
        if len(splits) > 1:
            return None
        split = splits.pop() if splits else self._choose(change.repo)
        self._new |= dict.fromkeys((*names, *contents), split)
        return SPLITS[split]

    @property
    def assigned(self) -> Assigned:
        """All that is assigned to changes by now."""
        keys, splits = np.array([*self._new], np.uint64), np.array([*self._new.values()], np.int8)
        return self._of_changes.join(Assigned.of(keys, splits))

    def _find(self, keys: list[int]) -> set[int]:
        hashes = np.array(keys, np.uint64)
        earlier = (*self._of_edits.find(hashes).tolist(), *self._of_changes.find(hashes).tolist())
        return {*earlier, *(self._new.get(name, -1) for name in keys)} - {-1}

    def _choose(self, repo: str) -> int:
        place = key(b"%d" % self._splitting.seed, repo.lower().encode()) / 2**64
        edges = np.cumsum([self._splitting.train, self._splitting.dev])
        return int(np.searchsorted(edges, place, side="right"))


def _packages(repo: str) -> list[str]:
    owner, slash, name = repo.rpartition("/")
    return [f"{registry}:{name}" for registry in ("npm", "pypi")] if owner and slash else []
