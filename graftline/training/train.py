"""Training through the Tinker SDK, on the service or the backend of this machine, so that it can always go on.

Steps are sent ahead of the answers to those before them. At a checkpoint all that was sent is waited for, the weights are
saved together with the optimizer, and only then does the record say so: it names weights that hold exactly as many steps as
it says. Which examples a step is made of, and its learning rate, depend on its number alone. So a run that was killed gives
the same losses when it goes on from its record as one that was not. (`supervised.train` of tinker-cookbook 0.5.8 records a
checkpoint while later steps are on their way, and repeats them: https://github.com/thinking-machines-lab/tinker-cookbook
issues 935 and 940.)
"""

import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from graftline.core.clock import Clock, utc_now
from graftline.core.errors import ConfigError, DataError, GraftlineError, TrainingError
from graftline.core.hashing import digest
from graftline.training.datums import load_tokenizer
from graftline.training.examples import check_examples, notice_of_dropped
from graftline.training.recipes.base import Gradients, OpenSandbox, Recipe, Training, TrainingData, mean_nll
from graftline.training.recipes.open import open_recipe
from graftline.training.runs import Attempt, CheckpointNote, Runs, StepMetrics, TrainingRun, figures_of
from graftline.training.service import Trainer, TrainingService
from graftline.training.settings import (
    TinkerTrainingConfig,
    batch_of,
    config_digest,
    deciding,
    learning_rate,
    total_steps,
)
from graftline.training.tinker import TinkerSDKClient
from graftline.training.tracking import open_trackers

__all__ = ["MEMORY_OUTPUT", "OUTPUT", "Interrupted", "TinkerTrainingResult", "run_id_of", "train_on_tinker"]

logger = logging.getLogger(__name__)

OUTPUT = Path("models/adapters/tinker")
MEMORY_OUTPUT = Path("models/adapters/memory")
"""Of what the memory service trained, which must not pass for an adapter of a model."""
_PACKAGES = ("tinker", "tinker-cookbook", "transformers", "graftline")


class Interrupted(GraftlineError):
    """The run was asked to end before it was done; it can go on."""


OnStep = Callable[[StepMetrics, int], None]
"""Called with a step that was answered, and how many there will be."""


@dataclass(frozen=True, slots=True)
class TinkerTrainingResult:
    """What became of a run."""

    run_id: str
    metadata_path: Path
    run: TrainingRun

    @property
    def success(self) -> bool:
        """Whether there is an adapter."""
        return self.run.is_over


def train_on_tinker(
    config: TinkerTrainingConfig,
    api_key: str | None = None,
    output_dir: Path | None = None,
    *,
    root: Path = Path(),
    tokenizer: Any = None,
    base_url: str | None = None,
    run_id: str | None = None,
    service: TrainingService | None = None,
    sandbox: OpenSandbox | None = None,
    on_step: OnStep = lambda metrics, total: None,
    on_notice: Callable[[str], None] = logger.warning,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Clock = utc_now,
) -> TinkerTrainingResult:
    """Train, or go on where the run of the same configuration and data got to; one that is done is not trained again.

    Args:
        config: What to train, on what.
        api_key: Of the backend; TINKER_API_KEY if it is None.
        output_dir: Of the records, below `runs`; `models/adapters/tinker` below `root` if it is None.
        root: What the paths in `config` are relative to.
        tokenizer: Of the model; the one that `config` names if it is None.
        base_url: Of the backend; TINKER_BASE_URL, or that of the service, if it is None.
        run_id: Of the run; made of the configuration and the data if it is None.
        service: The backend itself, in place of the one that key and address are of; it stays open.
        sandbox: Returns what answers are graded in, for recipes that reward; this machine's if it is None.
        on_step: Called for every step.
        on_notice: Called before the first step with what a person should know of it, such as how many rows are left out.
        is_stopped: Asked before every step whether to end, with a checkpoint.
        clock: What attempts are stamped with.

    Raises:
        ConfigError: the configuration does not fit, or is not the one of the run called `run_id`.
        DataError: the data cannot be trained on, or the loss is not finite.
        TrainingError: the backend cannot be reached, refuses, or gives something else than it was given.
        SandboxError: answers cannot be graded; a machine that is out of order teaches nothing.
        Interrupted: `is_stopped` said so.
    """
    recipe = open_recipe(config, sandbox)
    data = recipe.load(root, tokenizer or load_tokenizer(config.tokenizer or config.model))
    check_examples(config, data)
    if notice := notice_of_dropped(config, data):
        on_notice(notice)
    runs = Runs(output_dir or root / OUTPUT)
    name = run_id or run_id_of(config, root)
    backend = nullcontext(service) if service else TinkerSDKClient(api_key, base_url, deadline_s=config.deadline_s)
    with runs.alone(name), backend as client:
        run = _record(runs, name, config, data, client)
        if not run.is_over:
            with open_trackers(
                config.tracking, name, deciding(config), runs.folder / "tracking" / name, root
            ) as trackers:

                def shown(metrics: StepMetrics, total: int) -> None:
                    trackers.step(metrics.step, figures_of(metrics))
                    on_step(metrics, total)

                TrainingLoop(config, recipe, data, runs, run, client, shown, is_stopped, clock).go_on()
                trackers.summary({"status": run.status, "tokens": run.tokens, "held_out_loss": run.held_out_loss})
    return TinkerTrainingResult(name, runs.path(name), run)


def run_id_of(config: TinkerTrainingConfig, root: Path) -> str:
    """Return what the run of this configuration on its files below `root` is called.

    Raises:
        DataError: a file cannot be read.
    """
    return f"{config.recipe}-{digest([config_digest(config), config.digests(root)])[:12]}"


def _record(
    runs: Runs, name: str, config: TinkerTrainingConfig, data: TrainingData, client: TrainingService
) -> TrainingRun:
    wanted = config_digest(config)
    run = runs.find(name)
    if run is None:
        return TrainingRun(
            run_id=name,
            recipe=config.recipe,
            config=config.model_dump(mode="json"),
            config_digest=wanted,
            dataset=data.digests,
            examples=len(data.train),
            dropped=dict(data.dropped),
            versions={package: metadata.version(package) for package in _PACKAGES},
            backend=client.base_url,
            total_steps=total_steps(config, len(data.train)),
        )
    if run.config_digest != wanted or run.dataset != data.digests:
        what = "another configuration" if run.config_digest != wanted else "other data"
        raise ConfigError(
            f"run {name!r} was begun with {what}; leave the run id out for a run of its own, or name another"
        )
    return run


logger = logging.getLogger(__name__)

_PROBE_EXAMPLES = 4


@dataclass(frozen=True, slots=True)
class _Sent:
    """A step on its way."""

    step: int
    batch: list[int]
    """Numbers of its examples."""
    learning_rate: float
    gradients: Gradients
    update: Any
    """None where there are no gradients."""


class TrainingLoop:
    """One attempt at a run."""

    def __init__(
        self,
        config: TinkerTrainingConfig,
        recipe: Recipe,
        data: TrainingData,
        runs: Runs,
        run: TrainingRun,
        service: TrainingService,
        on_step: OnStep,
        is_stopped: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._config, self._recipe, self._data, self._runs, self._run = config, recipe, data, runs, run
        self._service, self._on_step, self._is_stopped, self._clock = service, on_step, is_stopped, clock
        self._sent: deque[_Sent] = deque()
        self._answered_at = perf_counter()
        self._trainer: Any = None

    def go_on(self) -> None:
        """Train from the newest checkpoint to the end."""
        run = self._run
        run.status, run.error, run.host = "running", "", socket.gethostname()
        for attempt in run.attempts:
            attempt.ended_by = attempt.ended_by or "killed"
        # before anything is asked for that costs: whoever looks sees that it goes on
        self._write()
        try:
            training = self._begin()
            run.attempts.append(
                Attempt(
                    training_run=str(self._trainer.model_id),
                    from_step=run.next_step,
                    started_at=self._clock().isoformat(),
                    computed_with=self._service.computed_with(),
                )
            )
            self._write()
            is_early = self._steps(training)
            self._finish()
        except (Interrupted, KeyboardInterrupt) as error:
            self._end("interrupted", "interrupted")
            raise Interrupted(f"run {run.run_id!r} was interrupted at step {run.next_step} of {run.total_steps}; "
                              "the same command goes on from there") from error  # fmt: skip
        except GraftlineError as error:
            self._end("failed", str(error))
            raise
        except BaseException as error:  # what ends a process in the middle; the record is not to say that it goes on
            self._end("interrupted", type(error).__name__)
            raise
        self._end("stopped_early" if is_early else "done", "")

    def _end(self, status: Any, error: str) -> None:
        run = self._run
        run.status, run.error = status, error
        if run.attempts and not run.attempts[-1].ended_at:
            run.attempts[-1].ended_at = self._clock().isoformat()
            run.attempts[-1].ended_by = error or status
        self._write()

    # where it begins

    def _begin(self) -> Training:
        """Make the adapter, or load it from the newest checkpoint that is still there."""
        run = self._run
        while run.checkpoints:
            newest = run.checkpoints[-1]
            try:
                self._service.weights_info(newest.path)
            except TrainingError as error:
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                    raise
                logger.warning("%s; the run goes on from the checkpoint before it", error)
                run.checkpoints.pop()
                continue
            self._trainer = self._service.from_state(newest.path, with_optimizer=True, user_metadata=self._labels())
            self._check_probe(newest)
            known = self._runs.known(run.run_id)
            run.next_step = newest.step
            break
        else:
            run.next_step = 0
            self._trainer = self._new()
            known = self._recipe.prepare(self._service, self._trainer, self._data)
            self._runs.write_known(run.run_id, known)
        training = Training(run.run_id, self._service, self._trainer, self._data, known)
        if not run.checkpoints and self._data.held_out:
            run.base_held_out_loss = self._recipe.look(training, self._data.held_out)
        self._runs.keep_steps(run.run_id, run.next_step)
        return training

    def _new(self) -> Trainer:
        """Return a new adapter, or one with the weights that it is to start from."""
        config, lora = self._config, self._config.lora
        if config.start_from:
            try:
                self._service.weights_info(config.start_from)
            except TrainingError as error:
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                    raise
                raise TrainingError(
                    f"{config.start_from}: the checkpoint that this run starts from is not there any more ({error}); train"
                    " the run that it is of again, or name another one by start_from"
                ) from None
            return self._service.from_state(config.start_from, with_optimizer=False, user_metadata=self._labels())
        return self._service.create_training_client(
            config.model, lora.rank, lora.seed, lora.train_mlp, lora.train_attn, lora.train_unembed, self._labels()
        )

    def _check_probe(self, checkpoint: CheckpointNote) -> None:
        found, wanted = self._probe_loss(), checkpoint.probe_loss
        if abs(found - wanted) > self._config.probe_tolerance * max(abs(wanted), 1e-6):
            raise TrainingError(
                f"checkpoint {checkpoint.path} was loaded, but the loss of the probe is {found:g} and not {wanted:g} as it was"
                " when it was saved; the run does not go on from there: remove it from the record to use the one before"
            )

    def _labels(self) -> dict[str, str]:
        return {"run_id": self._run.run_id, "recipe": self._config.recipe}

    def _write(self) -> None:
        """Write the record, with what the steps there are come to."""
        run, steps = self._run, self._runs.steps(self._run.run_id)
        run.tokens = sum(step.tokens for step in steps)
        run.trained_tokens = sum(step.trained_tokens for step in steps)
        run.first_loss = steps[0].loss if steps else None
        run.last_loss = steps[-1].loss if steps else None
        run.held_out_loss = next((step.held_out_loss for step in steps[::-1] if step.held_out_loss is not None), None)
        price = self._config.usd_per_million_tokens
        run.cost_usd = None if price is None else round(price * run.tokens / 1e6, 6)
        self._runs.write(run)

    # steps

    def _steps(self, training: Training) -> bool:
        """Take the steps that are left; return whether the run ends before all are taken."""
        run, config = self._run, self._config
        for step in range(run.next_step, run.total_steps):
            if self._is_stopped():
                self._checkpoint(step)
                raise Interrupted
            if self._is_hopeless():
                self._checkpoint(step)
                return True
            self._send(training, step)
            while len(self._sent) > config.submit_ahead:
                self._receive()
            is_last = step + 1 == run.total_steps
            if self._data.held_out and ((step + 1) % config.eval_every == 0 or is_last):
                self._look(training)
            if (step + 1) % config.save_every == 0 or is_last:
                self._checkpoint(step + 1)
        return False

    def _send(self, training: Training, step: int) -> None:
        from tinker import types

        config = self._config
        batch = batch_of(config, len(self._data.train), step)
        rate = learning_rate(config, step, self._run.total_steps)
        # both at once: the backend works on them in this order, without waiting for us in between
        gradients = self._recipe.gradients(training, step, batch)
        update = None
        if gradients.future is not None:
            update = self._trainer.optim_step(
                types.AdamParams(
                    learning_rate=rate, weight_decay=config.weight_decay, grad_clip_norm=config.grad_clip_norm
                )
            )
        self._sent.append(_Sent(step, batch, rate, gradients, update))

    def _receive(self, held_out: float | None = None) -> None:
        """Wait for the oldest step on its way, and write it down."""
        sent = self._sent.popleft()
        loss, norm = 0.0, None
        if sent.gradients.future is not None:
            answer = self._service.result(sent.gradients.future, f"the gradients of step {sent.step}")
            update = self._service.result(sent.update, f"the update of step {sent.step}")
            loss = self._recipe.loss(answer, sent.gradients, sent.batch)
            norms = [value for key, value in (update.metrics or {}).items() if key.startswith("grad_norm")]
            norm = float(norms[0]) if norms else None
        if not math.isfinite(loss):
            raise DataError(
                f"the loss of step {sent.step} is {loss}; lower the learning rate, which is {sent.learning_rate:g}"
            )
        now = perf_counter()
        metrics = StepMetrics(
            step=sent.step,
            loss=loss,
            tokens=sent.gradients.tokens,
            trained_tokens=sent.gradients.trained_tokens,
            learning_rate=sent.learning_rate,
            grad_norm=norm,
            held_out_loss=held_out,
            metrics=dict(sent.gradients.metrics),
            seconds=round(now - self._answered_at, 3),
        )
        self._answered_at = now
        self._runs.add_step(self._run.run_id, metrics)
        self._on_step(metrics, self._run.total_steps)

    def _look(self, training: Training) -> None:
        """Look at the held-out loss after the step that was sent last."""
        while len(self._sent) > 1:
            self._receive()
        self._receive(self._recipe.look(training, self._data.held_out))

    def _is_hopeless(self) -> bool:
        """Return whether the held-out loss has not got better for too long."""
        if self._config.patience is None:
            return False
        looks = [step.held_out_loss for step in self._runs.steps(self._run.run_id)]
        values = [look for look in looks if look is not None]
        return bool(values) and len(values) - 1 - values.index(min(values)) >= self._config.patience

    def _probe_loss(self) -> float:
        return mean_nll(self._service, self._trainer, self._data.train[:_PROBE_EXAMPLES])

    # checkpoints

    def _checkpoint(self, step: int) -> None:
        """Save weights that hold exactly `step` steps, and then write the record that says so."""
        while self._sent:
            self._receive()
        run, config = self._run, self._config
        if run.checkpoints and run.checkpoints[-1].step == step:
            return
        ttl = config.checkpoint_ttl_s
        now = self._clock()
        future = self._trainer.save_state(f"step-{step:06}", ttl_seconds=ttl, overwrite=True)
        path = str(self._service.result(future, f"the checkpoint of step {step}").path)
        expires = (now + timedelta(seconds=ttl)).isoformat() if ttl is not None else None
        run.checkpoints.append(CheckpointNote(step=step, path=path, expires_at=expires, probe_loss=self._probe_loss()))
        old = run.checkpoints[: -config.keep_checkpoints]
        run.checkpoints = run.checkpoints[-config.keep_checkpoints :]
        run.next_step = step
        self._runs.sync_steps(run.run_id)
        self._write()
        for checkpoint in old:
            try:
                self._service.delete_checkpoint(checkpoint.path)
            except TrainingError as error:
                logger.warning("%s is not deleted: %s", checkpoint.path, error)

    def _finish(self) -> None:
        """Save what is sampled from, and what is downloaded."""
        run = self._run
        sampler = self._trainer.save_weights_for_sampler("final")
        run.sampler_path = str(self._service.result(sampler, "the weights to sample from").path)
        export = self._trainer.save_weights_external("final")
        run.export_path = str(self._service.result(export, "the weights to download").path)
        newest = run.checkpoints[-1]
        try:
            # other runs may go on from it at any time
            self._service.set_ttl(newest.path, None)
            newest.expires_at = None
        except TrainingError as error:
            logger.warning("%s expires at %s: %s", newest.path, newest.expires_at, error)
