"""What a refactoring may do, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Literal

from graftline.agent.check import CheckOutcome
from graftline.agent.edits import PlaceEdit
from graftline.codemod.reach import Reach
from graftline.codemod.rule_file import FileRule
from graftline.codemod.source_files import RewrittenFile
from graftline.rollouts.state.state import State

Outcome = Literal["changed", "already done", "no place", "no agreement", "no rule", "not asked"]
MEANINGS: Mapping[Outcome, str] = {
    "already done": "nothing to do: the files have what the instruction asks for, and no line has what it says is to go",
    "no place": "no line of the files that parse has a word of the instruction; quote code in backticks, or give an --example",
    "no agreement": "the attempts of the model do not agree on an edit; give an --example, or say what is to be written",
    "no rule": "no rule makes the edit in any place; do it by hand, and `graftline follow` does the rest",
    "not asked": "the instruction is not understood without a model; say the code that is written and the code that it is written for, as"
    " 'Use `fetch` instead of `get`', name a model with --model, or give an --example",
    "changed": "the files change, and rules say how",
}
"""What somebody is told of an outcome."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How much is done, and what is believed."""

    attempts: int = 4
    """Of the model at each place."""
    places: int = 3
    """Edited by the model, at most."""
    questions: int = 0
    """That the engine asks of the model for each edit, at most: what models of one or two billion parameters answer says nothing."""
    least_agreement: float = 0.75
    """Share of the attempts that have to come to the same."""
    max_files: int = 20_000
    """Of the repository."""
    max_characters: int = 256 << 20
    """Of all its files."""

    @property
    def least_votes(self) -> int:
        """Attempts that have to come to the same."""
        return ceil(self.least_agreement * self.attempts)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the repository would become."""

    outcome: Outcome
    rules: tuple[FileRule, ...] = ()
    files: tuple[RewrittenFile, ...] = ()
    """Those that change."""
    undone: tuple[str, ...] = ()
    """What was not done, and why: a sentence each."""
    contradictions: tuple[str, ...] = ()
    edits: tuple[PlaceEdit, ...] = ()
    """By the model."""
    questions: int = 0
    tests: CheckOutcome | None = None
    state: State = field(default_factory=State)
    """After the last step."""
    skipped: str = ""
    """Files that were left out, by the reason."""
    reach: Reach = field(default_factory=Reach)
    """Of the rules by themselves, beside what is proposed."""
