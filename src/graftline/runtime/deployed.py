"""Which adapter is deployed: `models/adapters/deployed.json`, what a candidate has to be no worse than."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.clock import Clock, utc_now
from graftline.errors import RecordError
from graftline.paths import Paths
from graftline.record import verified, write_atomically


class Deployed(BaseModel):
    """The record."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    schema_version: Literal[1] = 1
    adapter: str
    """The recipe it is of."""
    identity: str
    """Of its artefact: one that is trained anew is another adapter."""
    deployed_at: str


def deploy(paths: Paths, adapter: str, clock: Clock = utc_now) -> Deployed:
    """Record that the adapter of a recipe is the one that is deployed, and return the record.

    Raises:
        RecordError: there is no such adapter, or it was altered.
    """
    record = verified(paths.adapter(adapter), "trained_adapter")
    found = Deployed(adapter=adapter, identity=record.identity, deployed_at=clock().isoformat())
    paths.deployed.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(paths.deployed, found.model_dump_json(indent=2) + "\n")
    return found


def read_deployed(paths: Paths) -> Deployed | None:
    """Return the record; None where nothing was deployed yet.

    Raises:
        RecordError: it cannot be read.
    """
    if not paths.deployed.exists():
        return None
    try:
        return Deployed.model_validate_json(paths.deployed.read_bytes())
    except ValidationError:
        where = paths.relative(paths.deployed)
        raise RecordError(f"{where}: is no record of an adapter; write it again by `graftline eval deploy`") from None
