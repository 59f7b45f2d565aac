"""Looks at the sources of datasets, all at once, for a limited time.

A look that takes longer goes on by itself, and a later tick picks up what it found: a source that answers slowly is
learnt of later, one that never does costs a thread, and neither keeps the others waiting.
Not here: how a source is asked (`graftline.datasets.sources`), and when (`sensors.cursor`).
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from threading import Thread

from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.retry import SourceBusyError
from graftline.datasets.catalog import Dataset
from graftline.datasets.sources.base import DatasetHub, Observation
from sensors.cursor import SourceState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LookResult:
    """What a look found."""

    observation: Observation
    fetched: str
    """The revision that a run would fetch; empty where the entry of the dataset does not say which."""
    fault: str = ""
    """Why it is empty."""


@dataclass(frozen=True, slots=True)
class LookFailure:
    """Why a look found nothing."""

    reason: str
    retry_after_s: float = 0.0


Outcome = LookResult | LookFailure


class Looks:
    """The looks that are under way, at most one per entry of the catalog."""

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], Future[Outcome]] = {}

    def take(
        self, hub: DatasetHub, due: Mapping[str, tuple[Dataset, SourceState]], within_s: float
    ) -> Mapping[str, Outcome]:
        """Look at the sources that are `due`; those that have not answered within `within_s` are left out."""
        begun, looks = [], {}
        for name, (dataset, state) in due.items():
            under_way = self._under_way.get((name, state.entry))
            looks[name, state.entry] = under_way or begin(hub, name, dataset, state)
            if under_way is None:
                begun.append(looks[name, state.entry])
        self._under_way |= looks
        # for those of earlier ticks nobody waits again
        wait(begun, within_s)
        ended = {key: future.result() for key, future in looks.items() if future.done()}
        for key in ended:
            self._under_way.pop(key, None)
        return {name: outcome for (name, _), outcome in ended.items()}


def begin(hub: DatasetHub, name: str, dataset: Dataset, state: SourceState) -> Future[Outcome]:
    """Begin a look in a thread of its own, which the process does not wait for at its end."""
    future: Future[Outcome] = Future()
    Thread(
        target=lambda: future.set_result(look(hub, name, dataset, state)), name=f"look at {name}", daemon=True
    ).start()
    return future


def look(hub: DatasetHub, name: str, dataset: Dataset, state: SourceState) -> Outcome:
    """Look at one source; what a run would fetch is asked for only when the source is not as it was."""
    try:
        observation = hub.observe(name, dataset, state.observation)
        if state.fetched and observation.revision == state.newest:
            return LookResult(observation, state.fetched)
        try:
            return LookResult(observation, hub.revision(name, dataset))
        except ConfigError as error:
            return LookResult(observation, "", str(error))
    except SourceBusyError as error:
        return LookFailure(str(error), error.retry_after_s)
    except GraftlineError as error:
        return LookFailure(str(error))
    except Exception as error:  # of one source; the others go on
        logger.exception("%s: a look at its source failed", name)
        return LookFailure(f"{type(error).__name__}: {error}")
