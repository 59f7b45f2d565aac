"""What an induction comes to: steps, what else would have done, what did not, and how far they lead."""

from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.equality import Level
from graftline.sandbox.base import Match

Unsolved = Literal["", "unreadable", "too_large", "too_different", "no_candidate", "partial", "repeated", "max_steps"]
"""Why the steps do not lead to the wanted text; empty where they do.

`unreadable`: a side is no valid Unicode or nested too deep; `too_large`: longer, or with a longer line, than is parsed;
`too_different`: more places differ than are looked at; `no_candidate`: not one rule holds; `partial`: some rules hold,
none for what is left; `repeated`: a step led back to an earlier text; `max_steps`: the steps that may be taken did not
do."""


@dataclass(frozen=True, slots=True)
class Scored:
    """An action that changes nothing but what is wanted, and what it costs to say it."""

    action: PatternAction | RuleAction
    variables: int
    """Metavariables that it leaves free; 0 says that it memorises the example."""
    mdl: float
    """Description length over that of the shortest literal action for the same places; below 1 is shorter."""
    sites: int
    """Places of the text that it puts right, blanks aside."""
    pairs: int
    """Pairs of texts in which it does so; 1 where there is one."""
    background: int
    """Places it would change in the background corpus of its language (`rules.background`)."""

    @property
    def is_general(self) -> bool:
        """Whether it leaves something free."""
        return self.variables > 0


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that would also change what must stay."""

    action: PatternAction | RuleAction
    wanted: int
    """Number of matches that it would change as wanted."""
    unwanted: int
    """Number of matches that it would change otherwise."""
    line: int
    """Line of the first unwanted one, from 1, in the text the step starts from."""


@dataclass(frozen=True, slots=True)
class Step:
    """One induced action and what it does to the text it was induced on."""

    chosen: Scored
    before: str
    written: str
    """What `ast-grep scan --update-all` makes of the text before."""
    after: str
    """The same, tidied (`rules.tidy`): the text that the next step starts from."""
    places: tuple[Match, ...]
    """What it replaces, in the order of the text."""
    sites_left: int
    """Places that still differ afterwards, blanks aside."""
    alternatives: tuple[Scored, ...]
    """Others that hold at this place, the most general last; the literal one, where there is one, first."""
    rejected: tuple[Rejected, ...]
    """The cheapest candidates that failed, cheapest first."""

    @property
    def action(self) -> PatternAction | RuleAction:
        """The action of the step."""
        return self.chosen.action

    @property
    def matches(self) -> int:
        """Number of places that it replaces."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Induction:
    """Steps from one text towards another."""

    steps: tuple[Step, ...]
    result: str
    """The text that they lead to."""
    level: Level
    """How equal it is to the wanted one; `none` where it is not, however near it came."""
    unsolved: Unsolved

    @property
    def is_verified(self) -> bool:
        """Whether the text reached counts as the wanted one."""
        return self.level.is_verified

    @property
    def is_all_general(self) -> bool:
        """Whether every step leaves something free; False without steps."""
        return bool(self.steps) and all(step.chosen.is_general for step in self.steps)


@dataclass(frozen=True, slots=True)
class SharedInduction:
    """One list of actions for several pairs of texts."""

    actions: tuple[Scored, ...]
    """In the order in which they are applied; each holds on every pair and leaves every negative as it is."""
    results: tuple[str, ...]
    """The text that all of them lead to, for each pair."""
    levels: tuple[Level, ...]
    """How equal it is to the wanted one."""

    @property
    def is_verified(self) -> bool:
        """Whether every pair is solved."""
        return all(level.is_verified for level in self.levels)
