"""What the keepers of actors (`graftline.llm.servers.keeper`) write down, and where: one file for each actor.

Imports little, as the keeper does.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from graftline.core.errors import RecordError
from graftline.core.paths import Paths


@dataclass(frozen=True, slots=True)
class KeeperState:
    """What a keeper says of itself and its server."""

    keeper: int
    keeper_started: str
    """As `started_at` says it: another process may get the same id."""
    server: int | None
    """Process id, and group; None between two runs."""
    is_ready: bool
    """Whether this run of the server has answered that it is healthy."""
    since: str
    """When this run began."""
    restarts: int
    failures: int
    """Runs before this one that ended, one after the other, before they had been of use."""
    ended: str
    """How the run before this one ended; empty where there is none."""
    command: list[str]
    end_within_s: float
    """How long its server has to end; then it is killed."""


def state_folder(paths: Paths, fleet: str) -> Path:
    """Where the keepers of a fleet say what they do."""
    return paths.data / "actors" / fleet


def state_path(paths: Paths, fleet: str, actor: str) -> Path:
    """Where the keeper of an actor says what it does."""
    return state_folder(paths, fleet) / f"{actor}.json"


def log_path(paths: Paths, fleet: str, actor: str) -> Path:
    """Where the output of an actor goes."""
    return paths.logs / "actors" / fleet / f"{actor}.log"


def started_at(pid: int) -> str:
    """Return when the process began, in ticks of one start of the machine; empty where no such process runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    if fields[0] in ("Z", "X"):
        return ""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{fields[19]}"


def read_state(path: Path) -> KeeperState | None:
    """Return what the keeper wrote there; None where there is nothing.

    Raises:
        RecordError: it is something else.
    """
    try:
        return KeeperState(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise RecordError(f"{path}: is not the state of an actor; remove it, and end what runs by hand") from None


def write_state(path: Path, state: KeeperState) -> None:
    """Write it whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(asdict(state), indent=1) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    partial.replace(path)


def kept_here(state: KeeperState) -> bool:
    """Whether the keeper that wrote `state` runs, on this machine."""
    return started_at(state.keeper) == state.keeper_started
