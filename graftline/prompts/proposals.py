"""The port in front of what proposes changes of a prompt.

A proposal, however poor, is a result: it is judged by rollouts. An error is raised only where nobody answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Reflection:
    """What one rollout of the prompt came to."""

    seed: int
    reward: float
    said: Mapping[str, Any]
    """As `transcript` tells it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a change is wanted of."""

    part: str
    text: str
    """Of the part, as it is."""
    reflections: Sequence[Reflection]
    names: Sequence[str] = ()
    """What has to stand in the text again."""
    number: int = 0
    """How many changes of this very text were asked for before, so that each is another one."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A changed text, and what it cost."""

    text: str
    how: str
    """In a few words, for the lineage of prompts."""
    usd: float | None = 0.0
    """None where nobody said."""
    tokens: int | None = 0


class Proposer(Protocol):
    """Proposes texts."""

    @property
    def name(self) -> str:
        """As results call it."""

    def check(self) -> None:
        """See that it can be asked, before anything is paid for rollouts.

        Raises:
            ActorError: it cannot.
        """

    def propose(self, wish: Wish) -> Proposal:
        """Return another text for a part; the same one where it has no other to propose.

        Raises:
            ActorError: nobody answered.
        """
