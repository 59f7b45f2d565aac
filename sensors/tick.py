"""What comes of one round of looks: what is known now, which datasets a run has to fetch, and what the UI is told.

Not here: looking (`sensors.looks`), and the request for a run (`sensors.dataset_versions`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from assets.descriptions import source_key
from assets.outcome import DATA_VERSION
from graftline.core.errors import RecordError
from graftline.core.hashing import digest
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.core.web import public_url
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.mirror import is_mirrored
from sensors.cursor import SourceState
from sensors.looks import LookFailure, LookResult, Outcome


@dataclass(frozen=True, slots=True)
class Stored:
    """The raw dataset that is there."""

    revision: str
    written_at: str


@dataclass
class Tick:
    """One round of looks, at `moment`."""

    moment: float
    stored: Mapping[str, Stored]
    mirror: str = ""
    """Where the mirror is, if there is one."""
    states: dict[str, SourceState] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """The datasets of which a run would fetch something else than before."""
    faults: list[str] = field(default_factory=list)
    events: list[dg.AssetObservation] = field(default_factory=list)

    def judge(self, name: str, dataset: Dataset, state: SourceState, outcome: Outcome | None) -> None:
        """Take in what a look at one source found; None where there was no look, or it has not ended."""
        match outcome:
            case LookResult():
                self.states[name] = self._judge_look(name, dataset, state, outcome)
                if outcome.fault:
                    self.faults.append(f"{name}: {outcome.fault}")
            case LookFailure():
                self.states[name] = state.with_failure(name, self.moment, outcome.retry_after_s)
                self.faults.append(f"{name}: {outcome.reason}")
            case None:
                self.states[name] = state
                waits_min = (state.not_before - self.moment) / 60
                progress = (
                    "has not answered yet" if state.is_due(self.moment) else f"is asked again in {waits_min:.0f} min"
                )
                self.faults.append(f"{name}: {progress}")

    def _judge_look(self, name: str, dataset: Dataset, state: SourceState, look: LookResult) -> SourceState:
        stored = self.stored.get(name, Stored("", ""))
        # what is stored says what a source held that was never seen before
        if look.fetched and look.fetched != (state.fetched or stored.revision):
            self.changed.append(name)
        facts = facts_of(dataset, look, self.mirror)
        shown = digest(facts)
        if shown != state.shown:
            looked_at = {"looked at": dg.MetadataValue.timestamp(self.moment)}
            self.events.append(
                dg.AssetObservation(
                    source_key(name),
                    metadata={**facts, **looked_at},
                    tags={DATA_VERSION: look.fetched or look.observation.revision},
                )
            )
        return state.with_observation(look.observation, look.fetched, stored.written_at).model_copy(
            update={"shown": shown}
        )

    def missing(self) -> list[str]:
        """Return the datasets that are not stored, and are not to be fetched now."""
        return [name for name in self.states if name not in self.stored and name not in self.changed]

    def summary(self) -> str:
        """Return what there is to say when nothing is to be fetched."""
        quiet = len(self.states) - len(self.faults)
        return "; ".join([f"{quiet} of {len(self.states)} sources hold nothing new to fetch", *self.faults])


def facts_of(dataset: Dataset, look: LookResult, mirror: str) -> dict[str, str]:
    """Return what the UI shows of a source."""
    newest = look.observation.revision
    if not look.fetched:
        pinned, newer = f"none: {look.fault}", "cannot be told"
    elif look.fetched == dataset.version:
        pinned, newer = dataset.version, "no" if newest == dataset.version else "yes"
    elif look.fetched == newest:
        pinned, newer = "none: runs fetch the newest", "no"
    else:
        pinned, newer = "by the checksums of its files", "cannot be told"
    source = mirror if mirror and is_mirrored(dataset) else dataset.url or "package registries"
    return {
        "newest revision": newest,
        "pinned revision": pinned,
        "newer than pinned": newer,
        "source": public_url(source),
    }


def find_stored_datasets(
    paths: Paths, names: Iterable[str], record_of: Callable[[Path], ArtifactRecord]
) -> dict[str, Stored]:
    """Return those of the datasets called `names` that are stored; `record_of` is `Artifacts.records`."""
    stored = {}
    for name in names:
        try:
            record = record_of(paths.raw(name))
        except RecordError:
            continue
        stored[name] = Stored(record.inputs.get("source", ""), record.written_at)
    return stored
