"""What the actors of a fleet do: what their keepers say, and what they answer on `/health` and `/metrics`."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pydantic import SecretStr

from graftline.core.clock import Clock, utc_now
from graftline.core.paths import Paths
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.load import Load, read_load
from graftline.llm.servers.keeper import answer
from graftline.llm.servers.keeper_state import KeeperState, kept_here, read_state, state_path

Phase = Literal["up", "loading", "failing", "down"]

HEALTH = "/health"


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """One actor at one moment."""

    name: str
    url: str
    phase: Phase
    """`up`: it answers that it is healthy. `loading`: its server runs, and does not yet. `failing`: its server ended and is
    started again, or stopped answering. `down`: nobody of this machine keeps it, and it does not answer."""
    pid: int | None
    """Of the server, where it is kept here."""
    restarts: int
    failures: int
    """Runs that ended one after the other before they had been of use."""
    uptime_s: int | None
    ended: str
    """How the run before this one ended."""
    load: Load | None
    """None where it does not answer."""


def fleet_status(
    paths: Paths, name: str, fleet: Fleet, key: SecretStr | None = None, clock: Clock = utc_now
) -> list[ActorStatus]:
    """Return what every actor does, in the order of the fleet; all are asked at the same time."""

    # services that others run have no address for it
    health = f"{fleet.api_path}/models" if fleet.engine == "service" else HEALTH

    def look(actor: Actor) -> ActorStatus:
        return actor_status(actor, read_state(state_path(paths, name, actor.name)), health, key, clock)

    with ThreadPoolExecutor(min(32, len(fleet.actors))) as pool:
        return list(pool.map(look, fleet.actors))


def actor_status(
    actor: Actor, state: KeeperState | None, health: str, key: SecretStr | None, clock: Clock
) -> ActorStatus:
    """Ask the actor at the path `health`, and return what it answers with what its keeper says."""
    kept = state if state is not None and kept_here(state) else None
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    is_healthy = answer(actor.url, health, headers) is not None
    metrics = answer(actor.url, "/metrics", headers) if is_healthy else None
    runs = kept is not None and kept.server is not None
    return ActorStatus(
        name=actor.name,
        url=actor.url,
        phase=_phase(kept, is_healthy),
        pid=kept.server if kept else None,
        restarts=kept.restarts if kept else 0,
        failures=kept.failures if kept else 0,
        uptime_s=int((clock() - datetime.fromisoformat(kept.since)).total_seconds()) if kept and runs else None,
        ended=kept.ended if kept else "",
        load=read_load(metrics) if metrics is not None else None,
    )


def _phase(kept: KeeperState | None, is_healthy: bool) -> Phase:
    if is_healthy:
        return "up"
    if kept is None:
        return "down"
    return "failing" if kept.failures or kept.is_ready else "loading"
