"""The edits that are shown, as small units, and which of them follow from the others."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.binding import Language, is_safe
from graftline.codemod.canonical import words_of
from graftline.codemod.change import Change
from graftline.codemod.diff import Site, apply_sites, common_ends
from graftline.codemod.hunks import MAX_CHANGED_LINES, MAX_LINES, split_into_hunks
from graftline.codemod.migration.imports import read_imports
from graftline.codemod.migration.surroundings import find_covering_chain
from graftline.core.errors import DataError
from graftline.sandbox.runner import LANGUAGE_OF, language_of

_IMPORT_LINES: Mapping[str, re.Pattern[str]] = {
    "python": re.compile(r"\s*(import|from\s+[\w.]+\s+import)\b"),
    "java": re.compile(r"\s*import\b"),
}
_CHAIN = re.compile(r"(?=.*[._A-Z])[^\W\d][\w$]*(\.[^\W\d][\w$]*)*")
"""A name that is likely to be one of code."""
_CHAIN_START, _CHAIN_END = re.compile(r"^[\w$.]*[\w$]"), re.compile(r"[\w$][\w$.]*$")
_COMMA = re.compile(r",(?=[)\]}])")
_IMPORT_BLOCK = re.compile(
    r"(?:\s*+(?:from\s+[\w.]+\s+import\s*\([^)]*\)|import\s[^{\n]*\{[^}]*\}\s*from[^\n]*|(?:import|from)\s[^\n(]*\n?))++"
)


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A file before and after edits that were made by hand."""

    path: str
    before: str
    after: str


@dataclass(eq=False)
class Unit:
    """A small part of an edit that was shown."""

    path: str
    language: Language
    before: str
    after: str
    file_before: str = ""
    """All of the file that it is a part of."""

    @property
    def change(self) -> Change | None:
        """What is still to be made of it; None where a text cannot be parsed."""
        try:
            return Change.between(self.before, self.after, self.language)
        except DataError:
            return None

    @property
    def sites(self) -> list[Site]:
        """Where it is still to be changed."""
        change = self.change
        return change.code_sites if change else []

    def give_up_line(self, line: int) -> None:
        """Take what is still to be changed in line `line` of the text after, from 0, as made: it belongs to what is not done."""
        change = self.change
        sites = change.sites if change else []
        near = [site for site in sites if self.after.count("\n", 0, site.new_start) == line]
        self.before = apply_sites(self.before, near, 0, len(self.before))


def read_units(
    demonstrations: Iterable[Demonstration], show: Callable[[str], str] = str
) -> tuple[list[Unit], list[Unit]]:
    """Return the units that show what is meant, edits that several units share first, and those that follow them.

    Where code is shown, imports and comments follow it; where comments alone are, the code that they speak of leads.
    Imports that follow by themselves are left out, but not that a name comes from another module. `show` is how errors
    have a path.

    DataError if nothing is shown, or a file shown is in no known language.
    """
    demonstrations = list(demonstrations)
    units = list(_split(demonstrations, show))
    if not units:
        paths = ", ".join(sorted({show(shown.path) for shown in demonstrations})[:3]) or "demonstrations"
        raise DataError(
            f"{paths}: shows no edit that is small enough and parses: of at most {MAX_CHANGED_LINES} lines, in a statement or"
            f" function of at most {MAX_LINES}; make the edit in a shorter one"
        )
    roles = [_role_of(unit) for unit in units]
    leading = [unit for unit, role in zip(units, roles, strict=True) if role == "code"]
    if not leading:
        quoted = [quote for unit in units if not is_import(unit) and (quote := _read_quote(unit)) is not None]
        return quoted or units, units if quoted else []
    edits = [frozenset(_edits_of(unit)) for unit in leading]
    counts = Counter(edit for own in edits for edit in own)
    # lines are broken anew where they are too long, and never joined: an edit in one line goes before others
    breaks = [sum(site.text.count("\n") for site in unit.sites) for unit in leading]
    most = [max((counts[edit] for edit in own), default=0) for own in edits]
    order = sorted(range(len(leading)), key=lambda n: (-most[n], breaks[n]))
    return [leading[n] for n in order], [u for u, role in zip(units, roles, strict=True) if role == "follower"]


def _split(demonstrations: Iterable[Demonstration], show: Callable[[str], str]) -> Iterator[Unit]:
    for shown in demonstrations:
        language = language_of(shown.path)
        if language is None:
            raise DataError(
                f"{show(shown.path)}: its name says no language; expected one of {', '.join(sorted(LANGUAGE_OF))}"
            )
        if is_safe(shown.before) and is_safe(shown.after):
            for hunk in split_into_hunks(shown.before, shown.after, language):
                unit = Unit(shown.path, language, hunk.before, hunk.after, shown.before)
                layout = [site for site in unit.sites if _is_layout(hunk.before, site)]
                unit.before = apply_sites(hunk.before, layout, 0, len(hunk.before))
                yield unit


def _is_layout(text: str, site: Site) -> bool:
    """Return whether a site only breaks lines, with the comma that stands at the end of a list that is broken."""
    new = text[: site.start] + site.text + text[site.end :]
    return "\n" in text[site.start : site.end] + site.text and strip_layout(new) == strip_layout(text)


def strip_layout(text: str) -> str:
    """Return code without its blanks, and without commas before closing brackets: the same code in another layout."""
    return _COMMA.sub("", "".join(text.split()))


def _edits_of(unit: Unit) -> Iterator[tuple[object, object]]:
    """Yield what the sites of a unit take away and write: their words, where they have any."""
    for site in unit.sites:
        old, new = unit.before[site.start : site.end], site.text
        sides = words_of(old), words_of(new)
        yield sides if any(sides) else (old, new)


def _role_of(unit: Unit) -> Literal["code", "follower", "none"]:
    if is_import(unit):
        return "follower" if _moves_names(unit) else "none"
    change = unit.change
    kinds = [find_covering_chain(change.before, site)[-1].kind for site in change.code_sites] if change else []
    return "follower" if kinds and all("comment" in kind for kind in kinds) else "code"


def _read_quote(unit: Unit) -> Unit | None:
    """Return the edit of code that an edit of a comment speaks of; None where it differs in more than a dotted name."""
    front, back = common_ends(unit.before, unit.after)
    start = len(_CHAIN_END.sub("", unit.before[:front]))
    end = len(unit.before) - len(_CHAIN_START.sub("", unit.before[len(unit.before) - back :]))
    old, new = unit.before[start:end], unit.after[start : len(unit.after) - len(unit.before) + end]
    if not (_CHAIN.fullmatch(old) and _CHAIN.fullmatch(new)):
        return None
    end_of_code = ";\n" if unit.language == "java" else "\n"
    return Unit(unit.path, unit.language, old + end_of_code, new + end_of_code, unit.file_before)


def is_import(unit: Unit) -> bool:
    """Return whether a unit changes imports alone."""
    lines = {*unit.before.split("\n")} ^ {*unit.after.split("\n")}
    kinds = _IMPORT_LINES.get(unit.language, _IMPORT_LINES["java"])
    text = "\n".join(line for line in unit.before.split("\n") if line.strip())
    return all(not line.strip() or kinds.match(line) for line in lines) or bool(_IMPORT_BLOCK.fullmatch(text))


def _moves_names(unit: Unit) -> bool:
    """Return whether a unit imports as many names as before, from other modules."""
    try:
        old, new = (
            [source.module for statement in read_imports(text, unit.language) for source in statement.names.values()]
            for text in (unit.before, unit.after)
        )
    except DataError:
        return False
    return len(old) == len(new) and old != new
