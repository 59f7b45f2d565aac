"""Where new names come from: other code of the same languages and split, names of the same kind."""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from graftline.datasets.synthetic.family import Role, Site

_LOOKED_AT = 48
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


class Names:
    """The names of a corpus, by what they stand for."""

    def __init__(self, sites: Iterable[Site]) -> None:
        found: dict[Role, set[str]] = defaultdict(set)
        for site in sites:
            if not _is_special(site.name):
                found[site.role].add(site.name)
            if site.role == "imported":
                found["module"].add(site.owner)
        self._names: dict[Role, Sequence[str]] = {role: sorted(names) for role, names in found.items()}
        self._styles = {name: _style(name) for names in found.values() for name in names}

    def another(self, role: Role, old: str, taken: Collection[str], rng: random.Random) -> str:
        """Return a name of `role` that is not among `taken`: the nearest in style and words of some that are drawn.

        Where the corpus has none, `old` is numbered.
        """
        names = self._names.get(role, ())
        drawn = rng.sample(names, min(_LOOKED_AT, len(names)))
        free = [name for name in drawn if name not in taken and name != old]
        if free:
            wanted = _style(old)
            # max is the first of equals, and the draw depends on the seed alone
            return max(free, key=lambda name: _likeness(wanted, self._styles[name]))
        return _numbered(role, old)

    def value(self, rng: random.Random) -> str:
        """Return a number that some code holds."""
        names = self._names.get("number", ())
        return rng.choice(names) if names else "30"


def parts_of(name: str) -> list[str]:
    """Return the words of a name, in lower case: `getHTTPCode2` has get, http, code and 2."""
    return [part.lower() for part in _PARTS.findall(name)]


def _style(name: str) -> tuple[bool, bool, frozenset[str]]:
    return name[:1].isupper(), "_" in name.strip("_"), frozenset(parts_of(name))


def _likeness(old: tuple[bool, bool, frozenset[str]], new: tuple[bool, bool, frozenset[str]]) -> tuple[bool, bool, int]:
    # a class stays a class, and `load_all` becomes nothing like `loadAll`
    return old[0] == new[0], old[1] == new[1], len(old[2] & new[2])


def _is_special(name: str) -> bool:
    return name.startswith("__") or name in ("self", "cls", "this", "super", "require")


def _numbered(role: Role, old: str) -> str:
    if role == "number":
        return str(int(old) * 2) if old.isdigit() else "30"
    if role in ("string", "module") or not old:
        return f"{old or 'other'}2"
    return f"{old}_v2" if "_" in old or old.islower() else f"{old}V2"
