"""What can be wrong with one try at one actor, by what is to be done about it."""

from enum import StrEnum


class FaultKind(StrEnum):
    """Of one try."""

    UNREACHABLE = "unreachable"
    """No connection; nothing was sent."""
    LIMITED = "limited"
    """429: it wants to be asked less often."""
    BUSY = "busy"
    """503: its queue is full, or it is starting or ending."""
    FAILED = "failed"
    """Another 5xx, or it ended the answer by itself."""
    TORN = "torn"
    """The connection ended before the answer did."""
    MALFORMED = "malformed"
    """Status 200, and no answer in it."""
    STALLED = "stalled"
    """It was taken out of service while it worked."""
    LATE = "late"
    """A look, or the loading of an adapter, took too long."""
    FORGOTTEN = "forgotten"
    """The adapter that was loaded is not there any more."""
    REFUSED = "refused"
    """Another 4xx: asked again, it would say the same."""

    @property
    def was_taken(self) -> bool:
        """Whether the actor may have worked on it, so that the request itself may be what it fails of."""
        return self not in (FaultKind.UNREACHABLE, FaultKind.LIMITED, FaultKind.BUSY)

    @property
    def is_of_the_actor(self) -> bool:
        """Whether it speaks against the actor: one that asks for a pause, or is asked nonsense, is well, and one that was
        taken out of service is judged already.
        """
        return self not in (FaultKind.LIMITED, FaultKind.FORGOTTEN, FaultKind.STALLED, FaultKind.REFUSED)


class Fault(Exception):
    """One try failed. It never leaves this package: the pool tries again, or raises an `ActorError`."""

    def __init__(self, kind: FaultKind, said: str, retry_after_s: float = 0.0, status: int = 0) -> None:
        super().__init__(kind, said, retry_after_s, status)
        self.kind = kind
        self.said = said
        """What happened, to be read behind the name of the actor."""
        self.retry_after_s = retry_after_s
        self.status = status
        """Of the answer; 0 where there was none."""

    def __str__(self) -> str:
        return self.said
