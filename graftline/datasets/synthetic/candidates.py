"""Which families a snippet can be an instance of, filled with its names and with new ones.

New names come from other code of the same languages and split, and are of the same kind.
"""

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import Action, Family, Form, Role, Site, fill, fill_action
from graftline.datasets.synthetic.instructions import load_instructions

_LOOKED_AT = 48
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WORD = re.compile(r"(?<![$\w])[A-Za-z_]\w+")
_SIGN = re.compile(r"===|!==|==|!=|<=|>=|&&|\|\||\+\+|\*\*|\+=|[<>*/]")


class Names:
    """The names of a corpus, by what they stand for."""

    def __init__(self, sites: Iterable[Site]) -> None:
        by_role: dict[Role, set[str]] = defaultdict(set)
        for site in sites:
            if not _is_special(site.name):
                by_role[site.role].add(site.name)
            if site.role == "imported":
                by_role["module"].add(site.owner)
        self._names: dict[Role, Sequence[str]] = {role: sorted(names) for role, names in by_role.items()}
        self._styles = {name: _style(name) for names in by_role.values() for name in names}

    def another(self, role: Role, old: str, excluded: Collection[str], rng: random.Random) -> str:
        """Return a name of `role` that is not `excluded`: the nearest in style and words of a sample.

        Where the corpus has none, `old` is numbered.
        """
        names = self._names.get(role, ())
        sample = rng.sample(names, min(_LOOKED_AT, len(names)))
        free = [name for name in sample if name not in excluded and name != old]
        if free:
            style = _style(old)
            # max is the first of equals, and the sample depends on the seed alone
            return max(free, key=lambda name: _likeness(style, self._styles[name]))
        return _add_number(role, old)

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


def _add_number(role: Role, old: str) -> str:
    if role == "number":
        return str(int(old) * 2) if old.isdigit() else "30"
    if role in ("string", "module") or not old:
        return f"{old or 'other'}2"
    return f"{old}_v2" if "_" in old or old.islower() else f"{old}V2"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A family, filled; whether its actions do what they should is not known yet."""

    template_id: str
    family: Family
    instruction: str
    actions: tuple[Action, ...]
    back: tuple[Action, ...]
    slots: Mapping[str, str]


class CandidateFinder:
    """Fills the families of one language with the names of a corpus."""

    def __init__(self, families: Sequence[Family], language: Language, names: Names) -> None:
        self._forms = [(family, form) for family in families if (form := family.form(language)) is not None]
        self._names = names

    def candidates(
        self, text: str, words: Sequence[str], sites: Sequence[Site], rng: random.Random
    ) -> Iterator[Candidate]:
        """Yield a candidate for each family that finds what it needs in `text`, in the order of the families.

        `words` are all its identifiers, and `sites` the named places in it.
        """
        by_role: dict[Role, list[Site]] = defaultdict(list)
        for site in sites:
            by_role[site.role].append(site)
        for family, form in self._forms:
            chosen = None
            if family.role is not None:
                chosen = _choose([site for site in by_role.get(family.role, ()) if family.fits(site)], words, rng)
                if chosen is None:
                    continue
            candidate = self._candidate(family, form, chosen, {*words}, rng)
            if chosen is not None or _may_match(candidate.actions[0], text):
                yield candidate
            # what needs no name may as well start from code that is already the way it would become
            if chosen is None and (inverse := inverse_of(candidate, rng)) and _may_match(inverse.actions[0], text):
                yield inverse

    def _candidate(
        self, family: Family, form: Form, site: Site | None, words: set[str], rng: random.Random
    ) -> Candidate:
        name = site.name if site is not None else ""
        slots = {"name": name, "owner": site.owner if site else "", "key": site.key if site else ""}
        slots["new"] = self._names.another(family.new, name, words, rng) if family.new else ""
        slots["other"] = self._names.another(family.other, slots["owner"], words, rng) if family.other else ""
        slots["value"] = self._names.value(rng)
        return Candidate(
            family.id, family, fill(rng.choice(load_instructions()[family.id]), slots),
            tuple(fill_action(action, slots) for action in form.there),
            tuple(fill_action(action, slots) for action in form.back), slots,
        )  # fmt: skip


def inverse_of(candidate: Candidate, rng: random.Random) -> Candidate | None:
    """Return the way back from what `candidate` makes; None where its family has none."""
    family = candidate.family
    if not family.inverse or not candidate.back:
        return None
    is_there = candidate.template_id == family.id
    template_id = family.inverse if is_there else family.id
    instruction = fill(rng.choice(load_instructions()[template_id]), candidate.slots)
    return Candidate(template_id, family, instruction, candidate.back, candidate.actions, candidate.slots)


def _choose(sites: Sequence[Site], words: Sequence[str], rng: random.Random) -> Site | None:
    """Return one of `sites`, rather one whose name has a look-alike among `words`."""
    if not sites:
        return None
    alike = [site for site in sites if _is_repeated(site, sites) or words.count(site.name) > 1]
    return rng.choice(alike or sites)


def _is_repeated(site: Site, sites: Sequence[Site]) -> bool:
    parts = {*parts_of(site.name)}
    return any(other != site if other.name == site.name else parts < {*parts_of(other.name)} for other in sites)


def _may_match(action: Action, text: str) -> bool:
    """Return whether all words and signs that `action` quotes stand in `text`: cheaper than a look at its tree."""
    pattern = _pattern_text(action.model_dump())
    return all(word in text for word in _WORD.findall(pattern)) and all(sign in text for sign in _SIGN.findall(pattern))


def _pattern_text(action: Mapping[str, Any]) -> str:
    pattern = action.get("pattern")
    return pattern if isinstance(pattern, str) and action.get("selector") is None else ""
