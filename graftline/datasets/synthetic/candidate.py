"""Which families a snippet can be an instance of, filled with its names and with new ones."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import Action, Family, Form, Site, filled, filled_action
from graftline.datasets.synthetic.names import Names, parts_of

_WORD = re.compile(r"(?<![$\w])[A-Za-z_]\w+")
_SIGN = re.compile(r"===|!==|==|!=|<=|>=|&&|\|\||\+\+|\*\*|\+=|[<>*/]")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A family, filled; whether its actions do what they should is not known yet."""

    template_id: str
    family: Family
    instruction: str
    actions: tuple[Action, ...]
    back: tuple[Action, ...]
    slots: Mapping[str, str]


class Filling:
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
        by_role = {
            role: list(some)
            for role, some in groupby(sorted(sites, key=lambda site: site.role), lambda site: site.role)
        }
        for family, form in self._forms:
            site = None
            if family.role is not None:
                site = _chosen([site for site in by_role.get(family.role, ()) if family.fits(site)], words, rng)
                if site is None:
                    continue
            candidate = self._candidate(family, form, site, {*words}, rng)
            if site is not None or _may_match(candidate.actions[0], text):
                yield candidate
            # what needs no name may as well start from code that is already the way it would become
            if site is None and (inverse := inverse_of(candidate, rng)) and _may_match(inverse.actions[0], text):
                yield inverse

    def _candidate(
        self, family: Family, form: Form, site: Site | None, taken: set[str], rng: random.Random
    ) -> Candidate:
        name = site.name if site is not None else ""
        slots = {"name": name, "owner": site.owner if site else "", "key": site.key if site else ""}
        slots["new"] = self._names.another(family.new, name, taken, rng) if family.new else ""
        slots["other"] = self._names.another(family.other, slots["owner"], taken, rng) if family.other else ""
        slots["value"] = self._names.value(rng)
        return Candidate(
            family.id, family, filled(rng.choice(family.says), slots),
            tuple(filled_action(action, slots) for action in form.there),
            tuple(filled_action(action, slots) for action in form.back), slots,
        )  # fmt: skip


def inverse_of(candidate: Candidate, rng: random.Random) -> Candidate | None:
    """Return the way back from what `candidate` makes; None where its family has none."""
    family = candidate.family
    if not family.inverse or not candidate.back:
        return None
    is_there = candidate.template_id == family.id
    template_id, says = (family.inverse, family.inverse_says) if is_there else (family.id, family.says)
    instruction = filled(rng.choice(says), candidate.slots)
    return Candidate(template_id, family, instruction, candidate.back, candidate.actions, candidate.slots)


def _chosen(sites: Sequence[Site], words: Sequence[str], rng: random.Random) -> Site | None:
    """Return one of `sites`, rather one whose name has a look-alike among `words`."""
    if not sites:
        return None
    alike = [site for site in sites if _is_repeated(site, sites) or words.count(site.name) > 1]
    return rng.choice(alike or sites)


def _is_repeated(site: Site, sites: Sequence[Site]) -> bool:
    return any(other.name == site.name and other != site for other in sites) or any(
        other.name != site.name and {*parts_of(site.name)} < {*parts_of(other.name)} for other in sites
    )


def _may_match(action: Action, text: str) -> bool:
    """Return whether all words and signs that `action` quotes stand in `text`: cheaper than a look at its tree."""
    pattern = _quoted(action.model_dump())
    return all(word in text for word in _WORD.findall(pattern)) and all(sign in text for sign in _SIGN.findall(pattern))


def _quoted(action: Mapping[str, Any]) -> str:
    pattern = action.get("pattern")
    return pattern if isinstance(pattern, str) and action.get("selector") is None else ""
