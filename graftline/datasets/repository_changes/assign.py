"""The split of each change, by what was assigned before: to edits of its repository, and to earlier changes.

A repository is in one split, forks and packages of it included; as a package counts what is called like the repository, for a
package that is not of it is only kept together with it. Where none of its names was assigned, a commit or a text of the
change may have been, or a text that is like one of its own, as copies of a repository under other names have them; else it goes to a
split by the hash of its name. A change that holds what is in two splits is in none.
"""

import re

import numpy as np

from graftline.datasets.catalog import Splitting
from graftline.datasets.decontaminate import LEAST_SHINGLES
from graftline.datasets.deduplicate import signature_matrix
from graftline.datasets.fingerprints import commit_key, group_key, key, signatures, strip_whitespace
from graftline.datasets.near_texts import NearTexts
from graftline.datasets.repository_changes.change import RepositoryChange
from graftline.datasets.splits import SPLITS, Assigned, Split

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MOST_NEW_TEXTS = 4096
"""So many are indexed again for every change; then they are set aside."""


class SplitAssigner:
    """Assigns changes one by one, and remembers what it assigned."""

    def __init__(
        self,
        splitting: Splitting,
        of_edits: Assigned,
        of_changes: Assigned,
        near_edits: NearTexts | None = None,
        near_changes: NearTexts | None = None,
    ) -> None:
        """The last two are the texts of edits, and of earlier changes."""
        self._splitting, self._of_edits, self._of_changes = splitting, of_edits, of_changes
        self._new: dict[int, int] = {}
        """Index of the split by key."""
        nothing = NearTexts.of([], [], splitting.near_duplicate)
        self._near_edits, self._near_changes, self._near_new = near_edits or nothing, [near_changes or nothing], nothing

    def assign(self, change: RepositoryChange) -> tuple[Split | None, str]:
        """Return the split of `change`; None where it would join two of them, with what of it is in which."""
        names = [group_key(name) for name in (change.repo, *change.aliases, *_packages(change.repo))]
        commits = [commit_key(change.commit)] if _COMMIT.fullmatch(change.commit) else []
        folded = [strip_whitespace(file.before).lower() for file in change.files]
        # what is shorter is found everywhere
        texts = [text for text in folded if len(text) >= LEAST_SHINGLES]
        contents, marks = commits + [key(text) for text in texts], signatures(texts)
        places = {
            "its names": self._find(names),
            "its commit and texts": self._find(contents),
            "similar texts": self._find_near(marks),
        }
        splits = set[int]().union(*places.values())
        if len(splits) > 1:
            return None, "; ".join(
                f"{source} are in {' and '.join(SPLITS[split] for split in sorted(of_source))}"
                for source, of_source in places.items()
                if of_source
            )
        split = splits.pop() if splits else self._choose(change.repo)
        self._new |= dict.fromkeys((*names, *contents), split)
        self._near_new = self._near_new.join(NearTexts.of(marks, [split] * len(marks), self._near_new.least))
        if len(self._near_new) > _MOST_NEW_TEXTS:
            self._near_changes.append(self._near_new)
            self._near_new = NearTexts.of([], [], self._near_new.least)
        return SPLITS[split], ""

    @property
    def assigned(self) -> Assigned:
        """All that is assigned to changes by now."""
        keys, splits = np.array([*self._new], np.uint64), np.array([*self._new.values()], np.int8)
        return self._of_changes.join(Assigned.of(keys, splits))

    @property
    def near_changes(self) -> NearTexts:
        """The texts of all changes by now."""
        return self._near_new.join(*self._near_changes)

    def _find(self, keys: list[int]) -> set[int]:
        hashes = np.array(keys, np.uint64)
        earlier = (*self._of_edits.find(hashes).tolist(), *self._of_changes.find(hashes).tolist())
        return {*earlier, *(self._new.get(name, -1) for name in keys)} - {-1}

    def _find_near(self, marks: list[bytes]) -> set[int]:
        matrix = signature_matrix(b"".join(marks))
        near = (self._near_edits, *self._near_changes, self._near_new)
        return {split for texts in near for split in texts.find(matrix)[1].tolist()}

    def _choose(self, repo: str) -> int:
        place = key(b"%d" % self._splitting.seed, repo.lower().encode()) / 2**64
        edges = np.cumsum([self._splitting.train, self._splitting.dev])
        return int(np.searchsorted(edges, place, side="right"))


def _packages(repo: str) -> list[str]:
    owner, slash, name = repo.rpartition("/")
    return [f"{registry}:{name}" for registry in ("npm", "pypi")] if owner and slash else []
