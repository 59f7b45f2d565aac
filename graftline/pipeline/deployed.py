"""Which adapter is deployed, what a candidate has to be no worse than: an artifact, so that every worker knows of it.

It has no files; all there is to say stands in its record.
"""

from dataclasses import asdict, dataclass

from graftline.core.build import Contents, Request
from graftline.core.errors import RecordError
from graftline.core.record import ArtifactRecord
from graftline.pipeline.lineage import Lineage

KIND = "deployed"
_CODE_VERSION = "1"
_ADAPTER = "trained_adapter"


@dataclass(frozen=True, slots=True)
class Deployed:
    """What the record says."""

    adapter: str
    """The recipe it is of."""
    identity: str
    """Of its artifact: one that is trained anew is another adapter."""
    run_id: str
    """Of the run that it came of, whose weights are there still when it was trained anew."""
    deployed_at: str

    def as_dict(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return asdict(self)


def deploy(lineage: Lineage, adapter: str) -> Deployed:
    """Record that the adapter of a recipe is the one that is deployed, and return the record.

    Raises:
        RecordError: there is no such adapter, or it was altered.
    """
    record = lineage.verified(lineage.paths.adapter(adapter), "trained_adapter")
    config = {"adapter": adapter, "run_id": str(record.config.get("run_id", ""))}
    request = Request(KIND, KIND, _CODE_VERSION, {_ADAPTER: record.identity}, config)
    return _read(lineage.build(lineage.paths.deployed, request, lambda partial: Contents({})).record)


def read_deployed(lineage: Lineage) -> Deployed | None:
    """Return what is recorded; None where nothing was deployed yet.

    Raises:
        RecordError: it cannot be read.
        BoundaryError: the store of artifacts failed.
    """
    folder = lineage.paths.deployed
    lineage.bring(folder)
    if not folder.exists():
        return None
    try:
        return _read(lineage.verified(folder, KIND))
    except (RecordError, KeyError):
        where = lineage.paths.relative(folder)
        raise RecordError(f"{where}: is no record of an adapter; write it again by `graftline eval deploy`") from None


def _read(record: ArtifactRecord) -> Deployed:
    return Deployed(record.config["adapter"], record.inputs[_ADAPTER], record.config["run_id"], record.written_at)
