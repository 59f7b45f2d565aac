"""Instructions of tasks, tried by the served language model: which of them say enough, and which survive other words.

What was answered is kept beside the tasks and never asked again: it cost tokens. Not here: what is asked, and what an answer is worth
(`rollouts.round_trip`).
"""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict

from graftline.astgrep.binding import Language
from graftline.core.errors import ActorError, BoundaryError, ConfigError, DataError
from graftline.core.hashing import code_version, digest
from graftline.core.jsonl import Journal
from graftline.datasets.splits import Split
from graftline.llm.fleet import Fleet, dialect_settings, load_fleet
from graftline.llm.open import ActorsConfig
from graftline.pipeline.lineage import Lineage
from graftline.rollouts.round_trip import (
    EditModel,
    RoundTrip,
    apply_round_trip,
    is_wordable,
    needs_model,
    reword_instruction,
    try_instruction,
)
from graftline.rollouts.task import Task
from graftline.sandbox.base import SharedSandbox

logger = logging.getLogger(__name__)

_MOST_FAILURES = 8
"""One after the other, after which nobody is asked any more: a fleet that is down fails every question."""


class Trial(BaseModel):
    """What a model made of the instruction of one task."""

    model_config = ConfigDict(frozen=True)

    key: str
    """Of task, model and way of asking."""
    is_answerable: bool
    tokens: int
    instruction: str
    """The one that was tried; a rewording where it survived."""

    @property
    def round_trip(self) -> RoundTrip:
        """What it says without its key."""
        return RoundTrip(self.is_answerable, self.tokens, self.instruction)


class Limits:
    """Where one partition stops asking: at its budget, or at failures one after the other."""

    def __init__(self, most_tokens: int | None, most_minutes: float | None) -> None:
        self._most_tokens = most_tokens
        self._ends = None if most_minutes is None else time.monotonic() + 60 * most_minutes
        self._tokens = self._failures = 0
        self._lock = threading.Lock()
        self.failure = ""
        """The last one, where so many failed that the rest was not asked."""

    @property
    def is_reached(self) -> bool:
        """Whether nothing more is asked."""
        is_late = self._ends is not None and time.monotonic() >= self._ends
        return bool(self.failure) or is_late or (self._most_tokens is not None and self._tokens >= self._most_tokens)

    def count(self, outcome: RoundTrip | BoundaryError) -> None:
        """Count what became of one question."""
        with self._lock:
            if isinstance(outcome, RoundTrip):
                self._tokens, self._failures = self._tokens + outcome.tokens, 0
                return
            self._failures += 1
            if self._failures >= _MOST_FAILURES:
                self.failure = str(outcome)


def trial_settings(lineage: Lineage) -> dict[str, object]:
    """Return what the outcome of trials depends on, for the request of the tasks; empty where no model is asked."""
    settings = lineage.settings.trajectories.instructions
    if settings.round_trip is None:
        return {}
    code = code_version("graftline.rollouts.round_trip")
    values = settings.model_dump(mode="json", exclude={"at_once", "most_tokens", "most_minutes"})
    return {"instructions": {**values, **_dialect(lineage), "model": lineage.ports.chat_model.name, "code": code}}


def _fleet(lineage: Lineage) -> Fleet | None:
    """Return the fleet that is asked; None where the model is one of this process."""
    config = lineage.manifest.chat_model
    return load_fleet(lineage.paths.configs, config.fleet) if isinstance(config, ActorsConfig) else None


def _dialect(lineage: Lineage) -> dict[str, Any]:
    fleet = _fleet(lineage)
    return dialect_settings(fleet) if fleet is not None else {}


def check_terms(fleet: Fleet | None, rewordings: int) -> None:
    """Raise ConfigError where rewordings, which go into training rows, would be answers that forbid it."""
    if fleet is not None and rewordings and fleet.outputs is not None and fleet.outputs.may_train is False:
        raise ConfigError(
            f"instructions.round_trip.rewordings: models may not be trained on the answers of {fleet.model}"
            f" ({fleet.outputs.terms}); set it to 0, or ask another fleet"
        )


def try_instructions(
    lineage: Lineage, language: Language, split: Split, tasks: Sequence[Task]
) -> tuple[list[Task], int]:
    """Return `tasks` with what the model of the manifest made of their instructions, and how many it did not answer about.

    They are as they were where no model is asked.

    Of what is not known yet whether it can be done, it becomes known; what a reader of our sentences does is put into other words,
    where that is wanted. Where nobody answered, nothing is known.

    Raises:
        ActorError: the fleet answers nothing; what was answered is kept.
        ConfigError: its terms forbid training on rewordings.
    """
    settings = lineage.settings.trajectories.instructions
    config = settings.round_trip
    if config is None:
        return [*tasks], 0
    check_terms(_fleet(lineage), config.rewordings)
    model = EditModel(lineage.ports.chat_model, lineage.ports.context_tokens, config, _dialect(lineage))
    sandbox = SharedSandbox(lineage.ports.sandbox)
    limits = Limits(settings.most_tokens, settings.most_minutes)
    unaskable = set[str]()
    place = f"{language}/{split}"

    def try_task(task: Task) -> Trial | None:
        if limits.is_reached:
            return None
        try:
            trip = (reword_instruction if is_wordable(task) else try_instruction)(task, model, sandbox)
        except DataError as error:
            logger.warning("%s: %s", place, error)
            unaskable.add(task.id)
            return None
        except BoundaryError as error:
            logger.warning("%s: whether %s can be done stays unknown: %s", place, task.id, error)
            limits.count(error)
            return None
        limits.count(trip)
        return Trial(
            key=_key(task, model), is_answerable=trip.is_answerable, tokens=trip.tokens, instruction=trip.instruction
        )

    path = lineage.paths.data / "instructions" / language / f"{split}.jsonl"
    with Journal(path, Trial) as journal:
        trials = {trial.key: trial for trial in journal.rows}
        pending = [task for task in tasks if needs_model(task, config.rewordings) and _key(task, model) not in trials]
        with _threads(settings.at_once) as threads:
            futures = [threads.submit(try_task, task) for task in pending]
            for number, future in enumerate(as_completed(futures), 1):
                if (trial := future.result()) is not None:
                    journal.append(trial)
                    trials[trial.key] = trial
                lineage.advance(number, len(pending))
    if limits.failure:
        raise ActorError(
            f"{place}: {model.name} fails {_MOST_FAILURES} questions about instructions one after the other: {limits.failure};"
            " mend the fleet and run again, what was answered is kept, or take `instructions` out of configs/trajectories.yaml"
        )
    unknown = sum(_key(task, model) not in trials and task.id not in unaskable for task in pending)
    if unknown:
        logger.warning(
            "%s: not asked about, or not answered: %d of %d instructions; the next run asks again",
            place,
            unknown,
            len(pending),
        )
    outcome = []
    for task in tasks:
        trial = trials.get(_key(task, model)) if needs_model(task, config.rewordings) else None
        outcome.append(task if trial is None else apply_round_trip(task, trial.round_trip))
    return outcome, unknown


def _key(task: Task, model: EditModel) -> str:
    times = model.config.attempts, model.config.rewordings if is_wordable(task) else 0
    return digest([task.instruction, task.before, task.target, task.language, task.id, model.digest, *times])


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Give threads; where what they are for ends early, what they have not begun is left."""
    threads = ThreadPoolExecutor(count, thread_name_prefix="instruction")
    try:
        yield threads
    finally:
        threads.shutdown(wait=True, cancel_futures=True)
