"""The steps of one attempt at a run; see `training.train`."""

import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from time import perf_counter
from typing import TYPE_CHECKING, Any

from graftline.core.clock import utc_now
from graftline.core.errors import DataError, GraftlineError, TrainingError
from graftline.training.examples import TrainingData
from graftline.training.recipes.base import Gradients, Recipe, Training, mean_nll
from graftline.training.runs import Attempt, CheckpointNote, Runs, StepMetrics, TrainingRun
from graftline.training.settings import TinkerTrainingConfig, batch_of, learning_rate
from graftline.training.tinker import TinkerSDKClient

if TYPE_CHECKING:
    from tinker import TrainingClient

logger = logging.getLogger(__name__)

_PROBE_EXAMPLES = 4

OnStep = Callable[[StepMetrics, int], None]
"""Called with a step that was answered, and how many there will be."""


class Interrupted(GraftlineError):
    """The run was asked to end before it was done; it can resume."""


@dataclass(frozen=True, slots=True)
class _SentStep:
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
        service: TinkerSDKClient,
        on_step: OnStep,
        is_stopped: Callable[[], bool],
    ) -> None:
        self._config, self._recipe, self._data, self._runs, self._run = config, recipe, data, runs, run
        self._service, self._on_step, self._is_stopped = service, on_step, is_stopped
        self._sent: deque[_SentStep] = deque()
        self._answered_at = perf_counter()
        self._trainer: TrainingClient

    def run(self) -> None:
        """Train from the newest checkpoint to the end."""
        run = self._run
        run.status, run.error, run.host = "running", "", socket.gethostname()
        for attempt in run.attempts:
            attempt.ended_by = attempt.ended_by or "killed"
        # before anything is asked for that costs, so that others see that it goes on
        self._write()
        try:
            training = self._begin()
            run.attempts.append(
                Attempt(
                    training_run=str(self._trainer.model_id),
                    from_step=run.next_step,
                    started_at=utc_now().isoformat(),
                    computed_with=self._service.computed_with(),
                )
            )
            self._write()
            is_early = self._take_steps(training)
            self._save_final_weights()
        except (Interrupted, KeyboardInterrupt) as error:
            self._end("interrupted", "interrupted")
            raise Interrupted(
                f"run {run.run_id!r} was interrupted at step {run.next_step} of {run.total_steps}; "
                "the same command goes on from there"
            ) from error
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
            run.attempts[-1].ended_at = utc_now().isoformat()
            run.attempts[-1].ended_by = error or status
        self._write()

    # where it begins

    def _begin(self) -> Training:
        """Make the adapter, or load it from the newest checkpoint that still exists."""
        run = self._run
        while run.checkpoints and not self._has(run.checkpoints[-1]):
            run.checkpoints.pop()
        if run.checkpoints:
            newest = run.checkpoints[-1]
            self._trainer = self._service.from_state(newest.path, with_optimizer=True, user_metadata=self._labels())
            self._check_probe(newest)
            prepared = self._runs.load_prepared(run.run_id)
            run.next_step = newest.step
        else:
            run.next_step = 0
            self._trainer = self._new_adapter()
            prepared = self._recipe.prepare(self._service, self._trainer, self._data)
            self._runs.write_prepared(run.run_id, prepared)
        training = Training(run.run_id, self._service, self._trainer, self._data, prepared)
        if not run.checkpoints and self._data.held_out:
            run.base_held_out_loss = self._recipe.evaluate(training, self._data.held_out)
        self._runs.keep_steps(run.run_id, run.next_step)
        return training

    def _has(self, checkpoint: CheckpointNote) -> bool:
        try:
            self._service.weights_info(checkpoint.path)
        except TrainingError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                raise
            logger.warning("%s; the run goes on from the checkpoint before it", error)
            return False
        return True

    def _new_adapter(self) -> "TrainingClient":
        """Return a new adapter, or one with the weights that it is to start from."""
        config, lora = self._config, self._config.lora
        if not config.start_from:
            return self._service.create_training_client(
                config.model, lora.rank, lora.seed, lora.train_mlp, lora.train_attn, lora.train_unembed, self._labels()
            )
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

    def _check_probe(self, checkpoint: CheckpointNote) -> None:
        loss, expected = self._probe_loss(), checkpoint.probe_loss
        if abs(loss - expected) > self._config.probe_tolerance * max(abs(expected), 1e-6):
            raise TrainingError(
                f"checkpoint {checkpoint.path} was loaded, but the loss of the probe is {loss:g} and not {expected:g} as it was"
                " when it was saved; the run does not go on from there: remove it from the record to use the one before"
            )

    def _labels(self) -> dict[str, str]:
        return {"run_id": self._run.run_id, "recipe": self._config.recipe}

    def _write(self) -> None:
        """Write the record, with the totals of its steps."""
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

    def _take_steps(self, training: Training) -> bool:
        """Take the remaining steps; return whether the run ends before all are taken."""
        run, config = self._run, self._config
        for step in range(run.next_step, run.total_steps):
            if self._is_stopped():
                self._save_checkpoint(step)
                raise Interrupted
            if self._should_stop_early():
                self._save_checkpoint(step)
                return True
            self._send_step(training, step)
            while len(self._sent) > config.submit_ahead:
                self._receive_step()
            is_last = step + 1 == run.total_steps
            if self._data.held_out and ((step + 1) % config.eval_every == 0 or is_last):
                # the held-out loss is that after the step that was sent last
                while len(self._sent) > 1:
                    self._receive_step()
                self._receive_step(self._recipe.evaluate(training, self._data.held_out))
            if (step + 1) % config.save_every == 0 or is_last:
                self._save_checkpoint(step + 1)
        return False

    def _send_step(self, training: Training, step: int) -> None:
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
        self._sent.append(_SentStep(step, batch, rate, gradients, update))

    def _receive_step(self, held_out_loss: float | None = None) -> None:
        """Wait for the oldest step on its way, and write it down."""
        sent = self._sent.popleft()
        loss, norm = 0.0, None
        if sent.gradients.future is not None:
            output = self._service.result(sent.gradients.future, f"the gradients of step {sent.step}")
            update = self._service.result(sent.update, f"the update of step {sent.step}")
            loss = self._recipe.loss(output, sent.gradients, sent.batch)
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
            held_out_loss=held_out_loss,
            metrics=dict(sent.gradients.metrics),
            seconds=round(now - self._answered_at, 3),
        )
        self._answered_at = now
        self._runs.add_step(self._run.run_id, metrics)
        self._on_step(metrics, self._run.total_steps)

    def _should_stop_early(self) -> bool:
        """Return whether the held-out loss has not improved for too long."""
        if self._config.patience is None:
            return False
        steps = self._runs.steps(self._run.run_id)
        losses = [step.held_out_loss for step in steps if step.held_out_loss is not None]
        return bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= self._config.patience

    def _probe_loss(self) -> float:
        return mean_nll(self._service, self._trainer, self._data.train[:_PROBE_EXAMPLES])

    # checkpoints

    def _save_checkpoint(self, step: int) -> None:
        """Save weights that hold exactly `step` steps, and then write the record that says so."""
        while self._sent:
            self._receive_step()
        run, config = self._run, self._config
        if run.checkpoints and run.checkpoints[-1].step == step:
            return
        ttl = config.checkpoint_ttl_s
        now = utc_now()
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

    def _save_final_weights(self) -> None:
        """Save what is sampled from, and what is downloaded."""
        run = self._run
        sampler = self._trainer.save_weights_for_sampler("final")
        run.sampler_path = str(self._service.result(sampler, "the weights to sample from").path)
        export = self._trainer.save_weights_external("final")
        run.export_path = str(self._service.result(export, "the weights to download").path)
        newest = run.checkpoints[-1]
        try:
            # other runs may resume from it at any time
            self._service.set_ttl(newest.path, None)
            newest.expires_at = None
        except TrainingError as error:
            logger.warning("%s expires at %s: %s", newest.path, newest.expires_at, error)
