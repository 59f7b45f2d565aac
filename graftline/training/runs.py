"""What is known of training runs: `<folder>/runs/<run_id>.json`, and a line for each step in `<run_id>.steps.jsonl`.

The record is written whole or not at all, after every checkpoint and at every end. The lines of steps are appended to as
they come; those after the last checkpoint are taken back when a run goes on from it.
"""

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import ConfigError, RecordError
from graftline.core.record import write_atomically

SCHEMA_VERSION = 1
_LOCK_PATIENCE_S = 0.5
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

Status = Literal["running", "done", "stopped_early", "interrupted", "failed"]
"""As its record has it: of a run whose process was killed, `running` (`Runs.state`)."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Attempt(_Model):
    """One connection to the backend in which steps were taken."""

    training_run: str
    """As the backend calls it."""
    from_step: int
    started_at: str
    ended_at: str = ""
    ended_by: str = ""
    """What ended it: `done`, or why not."""
    computed_with: dict[str, str] = Field(default_factory=dict)
    """The `precision` and the `device`, as far as the backend tells them."""


class CheckpointNote(_Model):
    """A checkpoint of the backend."""

    step: int
    """Optimizer steps in it."""
    path: str
    expires_at: str | None = None
    probe_loss: float
    """Of a few examples, by which it is known again."""


class StepMetrics(_Model):
    """One optimizer step."""

    step: int
    """From 0."""
    loss: float
    """Mean over trained tokens, in nats."""
    tokens: int
    trained_tokens: int
    learning_rate: float
    grad_norm: float | None = None
    held_out_loss: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    """What else a recipe knows of the step, such as the mean reward."""
    seconds: float
    """Since the step before was answered; what other steps may differ in from run to run."""


class TrainingRun(_Model):
    """The record of a run."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    status: Status = "running"
    error: str = ""
    host: str = ""
    """Name of the machine that trained it last; older records have none."""
    recipe: str
    config: dict[str, Any]
    config_digest: str
    dataset: dict[str, str]
    """Digests of what it is trained and looked at on, by what they are."""
    examples: int
    dropped: dict[str, int] = Field(default_factory=dict)
    """Examples that are not trained on, by reason."""
    versions: dict[str, str]
    backend: str
    """Its address."""
    attempts: list[Attempt] = Field(default_factory=list)
    total_steps: int
    next_step: int = 0
    """Of the newest checkpoint."""
    checkpoints: list[CheckpointNote] = Field(default_factory=list)
    """Those that are kept, oldest first."""
    tokens: int = 0
    trained_tokens: int = 0
    cost_usd: float | None = None
    base_held_out_loss: float | None = None
    """Before the first step."""
    held_out_loss: float | None = None
    """When it was last looked at."""
    first_loss: float | None = None
    last_loss: float | None = None
    sampler_path: str = ""
    export_path: str = ""
    """What the adapter is downloaded from."""

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to train."""
        return self.status in ("done", "stopped_early")

    @property
    def computed_with(self) -> dict[str, str]:
        """Precision and device of its attempts, several where they differ; nothing where no backend told."""
        facts = [attempt.computed_with for attempt in self.attempts]
        names = dict.fromkeys(name for values in facts for name in values)
        return {name: ", ".join(dict.fromkeys(values[name] for values in facts if name in values)) for name in names}


class RunState(NamedTuple):
    """What a run is at now, which its record alone does not tell."""

    status: Status | Literal["unknown"]
    detail: str = ""


class Runs:
    """The runs below `folder`.

    Methods raise ConfigError for what cannot be the id of a run, and RecordError where a file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, run_id: str) -> Path:
        """Return where the record of a run is."""
        if not _RUN_ID.fullmatch(run_id):
            raise ConfigError(
                f"run id {run_id!r} is not made of up to 128 letters, digits, dots, dashes and underlines"
            )
        return self.folder / "runs" / f"{run_id}.json"

    def steps_path(self, run_id: str) -> Path:
        """Return where the steps of a run are."""
        return self.path(run_id).with_suffix(".steps.jsonl")

    def _preparation_path(self, run_id: str) -> Path:
        return self.path(run_id).with_name(f".{run_id}.known.json")

    def _lock_path(self, run_id: str) -> Path:
        return self.path(run_id).with_name(f".{run_id}.lock")

    # records

    def find(self, run_id: str) -> TrainingRun | None:
        """Return a run; None where there is none."""
        path = self.path(run_id)
        if not path.exists():
            return None
        try:
            return TrainingRun.model_validate_json(path.read_bytes())
        except ValidationError as error:
            location = ".".join(map(str, error.errors()[0]["loc"]))
            raise RecordError(
                f"{path}: is no record of a run ({location}: {error.errors()[0]['msg']}); restore or remove it"
            ) from None

    def get(self, run_id: str) -> TrainingRun:
        """Return a run; ConfigError where there is none."""
        run = self.find(run_id)
        if run is None:
            names = ", ".join(sorted(path.stem for path in (self.folder / "runs").glob("[!.]*.json")))
            raise ConfigError(f"there is no run {run_id!r} in {self.folder / 'runs'}; it has {names or 'none'}")
        return run

    def all(self) -> list[TrainingRun]:
        """Return all runs, by id."""
        return [self.get(path.stem) for path in sorted((self.folder / "runs").glob("[!.]*.json"))]

    def write(self, run: TrainingRun) -> None:
        """Write the record of `run`."""
        write_atomically(self.path(run.run_id), run.model_dump_json(indent=2) + "\n")

    # steps

    def steps(self, run_id: str) -> list[StepMetrics]:
        """Return the steps of a run, in order."""
        path = self.steps_path(run_id)
        return read_steps(path) if path.exists() else []

    def keep_steps(self, run_id: str, before: int) -> None:
        """Take back the steps from `before` on: they are taken again."""
        steps = [step for step in self.steps(run_id) if step.step < before]
        write_atomically(self.steps_path(run_id), "".join(step.model_dump_json() + "\n" for step in steps))

    def add_step(self, run_id: str, step: StepMetrics) -> None:
        """Append a step."""
        with self.steps_path(run_id).open("a", encoding="utf-8") as stream:
            stream.write(step.model_dump_json() + "\n")

    def sync_steps(self, run_id: str) -> None:
        """Have the steps on disk before anything else is written."""
        with self.steps_path(run_id).open("a") as stream:
            os.fsync(stream.fileno())

    # what a recipe prepares

    def load_prepared(self, run_id: str) -> dict[str, Any]:
        """Return what a recipe computed before the first step."""
        path = self._preparation_path(run_id)
        try:
            values: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise RecordError(
                f"{path}: cannot be read ({type(error).__name__}), but the run cannot go on without it; restore it"
            ) from None
        return values

    def write_prepared(self, run_id: str, values: dict[str, Any]) -> None:
        """Keep what a recipe computed before the first step."""
        write_atomically(self._preparation_path(run_id), json.dumps(values) + "\n")

    # who trains it

    def is_trained(self, run_id: str) -> bool:
        """Return whether a process trains this run now."""
        path = self._lock_path(run_id)
        if not path.exists():
            return False
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # several may look at once, and none of them takes it from who is to train
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def state(self, run: TrainingRun, host: str | None = None) -> RunState:
        """Return what `run` is at: a lock shows whether a process trains it; `host` is the name of this machine."""
        if run.status != "running":
            return RunState(run.status, run.error)
        if self.is_trained(run.run_id):
            return RunState("running")
        resume = f"`graftline train resume {run.run_id}` goes on from step {run.next_step}"
        if run.host and run.host != (host or socket.gethostname()):
            return RunState(
                "unknown",
                f"it was last trained on the machine {run.host!r}; whether it still is cannot be seen from here. If not, {resume}",
            )
        return RunState("interrupted", f"its process was killed, or the machine stopped; {resume}")

    @contextmanager
    def lock(self, run_id: str) -> Iterator[None]:
        """Keep other processes from training this run meanwhile; ConfigError where one does."""
        path = self._lock_path(run_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not _try_lock(descriptor):
                raise ConfigError(
                    f"run {run_id!r} is being trained by another process; `graftline train status {run_id}`"
                )
            yield
        finally:
            os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Return whether the lock of a run is ours; `is_trained` of another process has it for a moment only."""
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_PATIENCE_S / 20)


def read_steps(path: Path) -> list[StepMetrics]:
    """Return the steps in a file that a run left, in order; RecordError where a line cannot be read."""
    # the last line may be torn where the machine stopped
    lines = path.read_text("utf-8").split("\n")[:-1]
    try:
        return [StepMetrics.model_validate_json(line) for line in lines]
    except ValidationError as error:
        raise RecordError(f"{path}: holds a line that is no step ({error.errors()[0]['msg']}); restore it") from None


def metrics_of(step: StepMetrics) -> dict[str, float]:
    """Return what is known of a step as named numbers."""
    values = step.model_dump(exclude={"step", "metrics"})
    return {**{name: float(value) for name, value in values.items() if value is not None}, **step.metrics}
