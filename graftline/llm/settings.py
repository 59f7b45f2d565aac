"""How patient the pool is with its actors."""

from pydantic import Field

from graftline.core.config import Config


class PoolSettings(Config):
    """The defaults are for servers that take seconds to minutes for an answer."""

    max_tries: int = Field(default=3, ge=1, le=10)
    """Of one request, by actors that may have worked on it: there are requests that end servers. Tries that were not
    taken up, for lack of a connection or of room, are bounded by the deadline alone."""
    first_backoff_s: float = Field(default=0.5, ge=0)
    """Full jitter up to so much before a request is tried again where there is no other actor; doubled every time."""
    longest_backoff_s: float = Field(default=30.0, ge=0)
    patience_s: float = Field(default=120.0, ge=0)
    """How long requests wait while no actor is in service: as long as a server takes to be started again."""
    connect_s: float = Field(default=5.0, gt=0)
    """Until there is a connection. Reading has no limit of its own: answers wait in the queues of servers."""
    max_failures: int = Field(default=3, ge=1)
    """In a row; then the actor is out of service."""
    first_pause_s: float = Field(default=1.0, gt=0)
    """From there to the first probe; doubled with every probe until the actor answers requests again."""
    longest_pause_s: float = Field(default=30.0, gt=0)
    probe_s: float = Field(default=30.0, gt=0)
    """How long an answer of one token may take."""
    health_s: float = Field(default=15.0, gt=0)
    """Between two looks at `/health`."""
    load_s: float = Field(default=5.0, gt=0)
    """Between two looks at `/metrics`."""
    look_s: float = Field(default=10.0, gt=0)
    """How long a look may take; a server that is full answers late."""
    stall_s: float = Field(default=120.0, gt=0)
    """Work, and no token for so long: the engine hangs. A long prompt on a CPU is read for a minute."""
