"""What sensors know from one look to the next: cursors, as JSON. That of the sources of datasets has most in it.

Pure: the time is an argument, and the pauses after failures depend on nothing but the dataset and their number.
"""

import json
from typing import Any, Literal, Self

from pydantic import Field, ValidationError

from graftline.core.config import Config
from graftline.core.hashing import digest, sha256_text
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.base import Observation

MAX_CURSOR_BYTES = 48 << 10
"""What every event storage of Dagster holds: a TEXT column of MySQL has 64 KiB."""

FIRST_PAUSE_S = 600.0
LONGEST_PAUSE_S = 4 * 3600.0
LONGEST_ASKED_S = 24 * 3600.0
"""What a source may ask for; a pause that is longer was not written by us."""

_ETAG_BYTES = (4096, 512, 128, 0)


class SourceState(Config):
    """What is known of one source."""

    entry: str = Field(max_length=64)
    """Digest of the dataset's entry in the catalog; with another entry, this was about another source."""
    newest: str = Field(default="", max_length=256)
    """The newest revision that was seen at the source."""
    etag: str = ""
    """By which the source is asked whether anything changed."""
    fetched: str = Field(default="", max_length=256)
    """The revision that a run would fetch; empty while that is not known."""
    history: str = Field(default="", max_length=64)
    """Digest of all that `fetched` ever was: a source that returns to a former revision has changed twice."""
    shown: str = Field(default="", max_length=64)
    """Digest of what the UI was told last."""
    failures: int = Field(default=0, ge=0, le=10_000)
    """In a row."""
    not_before: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Seconds since 1970; it is not asked earlier."""

    @property
    def observation(self) -> Observation | None:
        """What the last look found."""
        return Observation(self.newest, self.etag) if self.newest else None

    def is_due(self, moment: float) -> bool:
        """Whether the source may be asked at `moment`."""
        return self.not_before <= moment or self.not_before > moment + LONGEST_ASKED_S

    def with_observation(self, observation: Observation, fetched: str, stored_at: str) -> Self:
        """Return what is known after a look; `stored_at`, when what is stored was written, begins a history."""
        history = self.history
        if fetched and fetched != self.fetched:
            history = digest([history or stored_at, fetched])
        update = {"newest": observation.revision, "etag": observation.etag, "fetched": fetched, "history": history}
        return self.model_copy(update={**update, "failures": 0, "not_before": 0.0})

    def with_failure(self, name: str, moment: float, retry_after_s: float) -> Self:
        """Return what is known after a look in vain: each one more doubles the pause before the next.

        The next look is without a condition, for it may be the ETag that the source does not like.
        """
        failures = min(self.failures + 1, 10_000)
        pause_s = max(pause_after(name, failures), min(retry_after_s, LONGEST_ASKED_S))
        return self.model_copy(update={"etag": "", "failures": failures, "not_before": round(moment + pause_s, 3)})


def pause_after(name: str, failures: int) -> float:
    """Return the seconds between the last of `failures` failures in a row and the next look.

    Between half and all of 10, 20, 40, … minutes, up to 4 hours; the name decides, so that sources which fail together
    are not asked together.
    """
    longest: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(failures - 1, 16))
    share = int(sha256_text(f"{name} {failures}")[:8], 16) / 2**32
    return longest * (1 + share) / 2


class Cursor(Config):
    """What is known of every source."""

    version: Literal[1] = 1
    datasets: dict[str, SourceState] = Field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Return the cursor that `text` holds, a new one where there is none, None where it is anything else."""
        if not text:
            return cls()
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def state_of(self, name: str, dataset: Dataset) -> SourceState:
        """Return what is known of the source of `dataset`; of an entry that was changed, what was fetched before."""
        entry = digest(dataset.model_dump(mode="json"))[:16]
        state = self.datasets.get(name, SourceState(entry=entry))
        if state.entry == entry:
            return state
        return SourceState(entry=entry, fetched=state.fetched, history=state.history)

    def text(self) -> str:
        """Return the JSON text. Where it would be too long, ETags are left out, which costs the next look a request."""
        text = ""
        for longest in _ETAG_BYTES:
            text = self._without_etags(longest).model_dump_json()
            if len(text.encode()) <= MAX_CURSOR_BYTES:
                break
        return text

    def _without_etags(self, longest: int) -> Self:
        lacking = {
            name: state.model_copy(update={"etag": ""})
            for name, state in self.datasets.items()
            if len(state.etag.encode("utf-8", "surrogatepass")) > longest
        }
        return self.model_copy(update={"datasets": {**self.datasets, **lacking}})


def read_object(cursor: str | None) -> dict[str, Any]:
    """Return the object of a cursor that is one; an empty one where it is none, for a cursor may be lost or of another time."""
    try:
        value = json.loads(cursor or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
