"""Clients, and what they have: training runs, and samplers."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from graftline.training.local.checkpoints import Checkpoint, NotFound
from graftline.training.local.recorded import Recordings

_SILENT_S = 600.0
"""A client beats every 10 s."""


@dataclass(slots=True)
class Session:
    """One client."""

    user_metadata: Any = None
    display_name: str | None = None
    runs: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    recordings: Recordings = field(default_factory=Recordings)
    beat: float = field(default_factory=time.monotonic)
    is_finished: bool = False


@dataclass(slots=True)
class Sampler:
    """What a client samples from."""

    checkpoint: Checkpoint | None
    """None for the model without an adapter."""
    is_of_session: bool = False
    """Whether its files go when the session ends."""
    follows: str | None = None
    """The run whose weights these are, as it last published them; None for weights that stay as they are."""
    clones: int = 0


class Sessions(dict[str, Session]):
    """The sessions of a server by id, those that are finished too."""

    def going(self, id: str) -> Session:
        """Return a session that goes on.

        Raises:
            NotFound: there is none.
        """
        if id not in self:
            raise NotFound(f"there is no session {id!r}: the server was started after it; make a new ServiceClient")
        if self[id].is_finished:
            raise NotFound(f"session {id!r} is finished, or was silent for too long; make a new ServiceClient")
        return self[id]

    def silent(self) -> Iterator[str]:
        """Yield the ids of sessions whose clients went without a word."""
        limit = time.monotonic() - _SILENT_S
        for id, session in [*self.items()]:
            if session.beat < limit and not session.is_finished:
                yield id


class Samplers(dict[str, Sampler]):
    """The samplers of a server by id."""

    def known(self, id: str) -> Sampler:
        """Return a sampler.

        Raises:
            NotFound: there is none.
        """
        if id not in self:
            raise NotFound(f"there is no sampler {id!r}: the server was started after it; make a new SamplingClient")
        return self[id]
