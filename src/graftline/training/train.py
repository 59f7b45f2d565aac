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
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

from graftline.clock import Clock, utc_now
from graftline.errors import ConfigError, DataError, GraftlineError, TrainingError
from graftline.hashing import digest
from graftline.training.datums import load_tokenizer
from graftline.training.recipes.base import Recipe, TrainingData
from graftline.training.recipes.open import open_recipe
from graftline.training.runs import Attempt, CheckpointNote, Probe, Runs, StepMetrics, TrainingRun
from graftline.training.settings import TinkerTrainingConfig, config_digest
from graftline.training.tinker import TinkerSDKClient

logger = logging.getLogger(__name__)

OUTPUT = Path("models/adapters/tinker")
_PROBE_EXAMPLES = 4
_PACKAGES = ("tinker", "tinker-cookbook", "transformers", "graftline")

OnStep = Callable[[StepMetrics, int], None]
"""Called with a step that was answered, and how many there will be."""


class Interrupted(GraftlineError):
    """The run was asked to end before it was done; it can go on."""


@dataclass(frozen=True, slots=True)
class TinkerTrainingResult:
    """What became of a run."""

    success: bool
    run_id: str
    metadata_path: Path
    run: TrainingRun


@dataclass(frozen=True, slots=True)
class _Sent:
    """A step on its way."""

    step: int
    batch: list[int]
    """Numbers of its examples."""
    learning_rate: float
    gradients: Any
    update: Any


def train_on_tinker(
    config: TinkerTrainingConfig,
    api_key: str | None = None,
    output_dir: Path | None = None,
    *,
    root: Path = Path(),
    tokenizer: Any = None,
    base_url: str | None = None,
    run_id: str | None = None,
    on_step: OnStep = lambda metrics, total: None,
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
        on_step: Called for every step.
        is_stopped: Asked before every step whether to end, with a checkpoint.
        clock: What attempts are stamped with.

    Raises:
        ConfigError: the configuration does not fit, or is not the one of the run called `run_id`.
        DataError: the data cannot be trained on, or the loss is not finite.
        TrainingError: the backend cannot be reached, refuses, or gives something else than it was given.
        Interrupted: `is_stopped` said so.
    """
    recipe = open_recipe(config)
    data = recipe.load(root, tokenizer or load_tokenizer(config.tokenizer or config.model))
    if not data.train:
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(data.dropped.items()))
        raise DataError(f"{config.dataset}: no example is left to train on ({why or 'the file is empty'})")
    runs = Runs(output_dir or root / OUTPUT)
    name = run_id or f"{config.recipe}-{digest([config_digest(config), data.digests])[:12]}"
    with runs.alone(name), TinkerSDKClient(api_key, base_url, deadline_s=config.deadline_s) as client:
        run = _record(runs, name, config, data, client)
        if run.status not in ("done", "stopped_early"):
            _Training(config, recipe, data, runs, run, client, on_step, is_stopped, clock).go_on()
    return TinkerTrainingResult(True, name, runs.path(name), run)


def steps_per_epoch(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many batches the examples make; the last one may be smaller."""
    return math.ceil(examples / config.batch_size)


def total_steps(config: TinkerTrainingConfig, examples: int) -> int:
    """Return how many steps a run over so many examples has."""
    steps = config.epochs * steps_per_epoch(config, examples)
    return min(steps, config.max_steps or steps)


def batch_of(config: TinkerTrainingConfig, examples: int, step: int) -> list[int]:
    """Return the numbers of the examples of a step."""
    epoch, number = divmod(step, steps_per_epoch(config, examples))
    order = list(range(examples))
    random.Random(f"{config.order_seed}/{epoch}").shuffle(order)
    return order[number * config.batch_size :][: config.batch_size]


def learning_rate(config: TinkerTrainingConfig, step: int, total: int) -> float:
    """Return the learning rate of a step."""
    from tinker_cookbook.utils.lr_scheduling import compute_schedule_lr_multiplier

    return float(config.learning_rate * compute_schedule_lr_multiplier(config.lr_schedule, step, total))


def _record(
    runs: Runs, name: str, config: TinkerTrainingConfig, data: TrainingData, client: TinkerSDKClient
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


class _Training:
    """One attempt at a run."""

    def __init__(
        self,
        config: TinkerTrainingConfig,
        recipe: Recipe,
        data: TrainingData,
        runs: Runs,
        run: TrainingRun,
        client: TinkerSDKClient,
        on_step: OnStep,
        is_stopped: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._config, self._recipe, self._data, self._runs, self._run = config, recipe, data, runs, run
        self._sdk, self._on_step, self._is_stopped, self._clock = client, on_step, is_stopped, clock
        self._sent: deque[_Sent] = deque()
        self._answered_at = perf_counter()
        self._trainer: Any = None
        self._known: dict[str, Any] = {}

    def go_on(self) -> None:
        """Train from the newest checkpoint to the end."""
        run = self._run
        run.status, run.error = "running", ""
        for attempt in run.attempts:
            attempt.ended_by = attempt.ended_by or "killed"
        try:
            self._begin()
            run.attempts.append(
                Attempt(
                    training_run=str(self._trainer.model_id),
                    from_step=run.next_step,
                    started_at=self._clock().isoformat(),
                )
            )
            self._runs.write(run)
            is_early = self._steps()
            self._finish()
        except (Interrupted, KeyboardInterrupt) as error:
            self._end("interrupted", "interrupted")
            raise Interrupted(f"run {run.run_id!r} was interrupted at step {run.next_step} of {run.total_steps}; "
                              "the same command goes on from there") from error  # fmt: skip
        except GraftlineError as error:
            self._end("failed", str(error))
            raise
        self._end("stopped_early" if is_early else "done", "")

    def _end(self, status: Any, error: str) -> None:
        run = self._run
        run.status, run.error = status, error
        if run.attempts and not run.attempts[-1].ended_at:
            run.attempts[-1].ended_at = self._clock().isoformat()
            run.attempts[-1].ended_by = error or status
        self._runs.write(run)

    # where it begins

    def _begin(self) -> None:
        """Make the adapter, or load it from the newest checkpoint that is still there."""
        run, config = self._run, self._config
        while run.checkpoints:
            newest = run.checkpoints[-1]
            try:
                self._sdk.weights_info(newest.path)
            except TrainingError as error:
                if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
                    raise
                logger.warning("%s; the run goes on from the checkpoint before it", error)
                run.checkpoints.pop()
                continue
            self._trainer = self._sdk.from_state(newest.path, with_optimizer=True, user_metadata=self._labels())
            self._check_probe(newest)
            self._known = self._runs.known(run.run_id)
            run.next_step = newest.step
            break
        else:
            run.next_step = 0
            lora = config.lora
            self._trainer = self._sdk.create_training_client(
                config.model, lora.rank, lora.seed, lora.train_mlp, lora.train_attn, lora.train_unembed, self._labels()
            )
            self._known = self._recipe.prepare(self._sdk, self._trainer, self._data)
            self._runs.write_known(run.run_id, self._known)
            if self._data.held_out:
                run.base_held_out_loss = self._recipe.look(self._sdk, self._trainer, self._data.held_out)
        self._runs.keep_steps(run.run_id, run.next_step)
        self._count_again()

    def _check_probe(self, checkpoint: CheckpointNote) -> None:
        if checkpoint.probe is None:
            return
        found, wanted = self._probe().loss, checkpoint.probe.loss
        if abs(found - wanted) > self._config.probe_tolerance * max(abs(wanted), 1e-6):
            raise TrainingError(
                f"checkpoint {checkpoint.path} was loaded, but the loss of the probe is {found:g} and not {wanted:g} as it was"
                " when it was saved; the run does not go on from there: remove it from the record to use the one before"
            )

    def _labels(self) -> dict[str, str]:
        return {"run_id": self._run.run_id, "recipe": self._config.recipe}

    def _count_again(self) -> None:
        """Work out what the record says of the steps that were kept."""
        run, steps = self._run, self._runs.steps(self._run.run_id)
        run.tokens = sum(step.tokens for step in steps)
        run.trained_tokens = sum(step.trained_tokens for step in steps)
        run.first_loss = steps[0].loss if steps else None
        run.last_loss = steps[-1].loss if steps else None
        run.held_out_loss = next((step.held_out_loss for step in steps[::-1] if step.held_out_loss is not None), None)
        self._price()

    # steps

    def _steps(self) -> bool:
        """Take the steps that are left; return whether the run ends before all are taken."""
        run, config = self._run, self._config
        for step in range(run.next_step, run.total_steps):
            if self._is_stopped():
                self._checkpoint(step)
                raise Interrupted
            self._send(step)
            while len(self._sent) > config.submit_ahead:
                self._receive()
            is_last = step + 1 == run.total_steps
            has_look = bool(self._data.held_out) and ((step + 1) % config.eval_every == 0 or is_last)
            if has_look and self._look():
                self._checkpoint(step + 1)
                return True
            if (step + 1) % config.save_every == 0 or is_last:
                self._checkpoint(step + 1)
        return False

    def _send(self, step: int) -> None:
        from tinker import types

        config = self._config
        batch = batch_of(config, len(self._data.train), step)
        rate = learning_rate(config, step, self._run.total_steps)
        # both at once: the backend works on them in this order, without waiting for us in between
        gradients = self._recipe.gradients(self._trainer, batch, self._data, self._known)
        update = self._trainer.optim_step(
            types.AdamParams(learning_rate=rate, weight_decay=config.weight_decay, grad_clip_norm=config.grad_clip_norm)
        )
        self._sent.append(_Sent(step, batch, rate, gradients, update))

    def _receive(self, held_out: float | None = None) -> StepMetrics:
        """Wait for the oldest step on its way, and write it down."""
        sent = self._sent.popleft()
        gradients = self._sdk.result(sent.gradients, f"the gradients of step {sent.step}")
        update = self._sdk.result(sent.update, f"the update of step {sent.step}")
        loss = self._recipe.loss(gradients, sent.batch, self._data)
        if not math.isfinite(loss):
            raise DataError(
                f"the loss of step {sent.step} is {loss}; lower the learning rate, which is {sent.learning_rate:g}"
            )
        now = perf_counter()
        norms = [value for key, value in (update.metrics or {}).items() if key.startswith("grad_norm")]
        metrics = StepMetrics(
            step=sent.step,
            loss=loss,
            tokens=sum(self._data.train[number].tokens for number in sent.batch),
            trained_tokens=sum(self._data.train[number].trained_tokens for number in sent.batch),
            learning_rate=sent.learning_rate,
            grad_norm=float(norms[0]) if norms else None,
            held_out_loss=held_out,
            seconds=round(now - self._answered_at, 3),
        )
        self._answered_at = now
        run = self._run
        run.tokens += metrics.tokens
        run.trained_tokens += metrics.trained_tokens
        run.first_loss = loss if run.first_loss is None else run.first_loss
        run.last_loss = loss
        self._price()
        self._runs.add_step(run.run_id, metrics)
        self._on_step(metrics, run.total_steps)
        return metrics

    def _look(self) -> bool:
        """Look at the held-out loss after the step that was sent last; return whether it is time to end."""
        while len(self._sent) > 1:
            self._receive()
        value = self._recipe.look(self._sdk, self._trainer, self._data.held_out)
        self._receive(value)
        self._run.held_out_loss = value
        looks = [step.held_out_loss for step in self._runs.steps(self._run.run_id)]
        values = [look for look in looks if look is not None]
        since = len(values) - 1 - values.index(min(values))
        return self._config.patience is not None and since >= self._config.patience

    def _probe(self) -> Probe:
        return Probe(loss=self._recipe.look(self._sdk, self._trainer, self._data.train[:_PROBE_EXAMPLES]))

    def _price(self) -> None:
        price = self._config.usd_per_million_tokens
        self._run.cost_usd = None if price is None else round(price * self._run.tokens / 1e6, 6)

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
        path = str(self._sdk.result(future, f"the checkpoint of step {step}").path)
        expires = (now + timedelta(seconds=ttl)).isoformat() if ttl is not None else None
        run.checkpoints.append(CheckpointNote(step=step, path=path, expires_at=expires, probe=self._probe()))
        old = run.checkpoints[: -config.keep_checkpoints]
        run.checkpoints = run.checkpoints[-config.keep_checkpoints :]
        run.next_step = step
        self._runs.sync_steps(run.run_id)
        self._runs.write(run)
        for checkpoint in old:
            try:
                self._sdk.delete_checkpoint(checkpoint.path)
            except TrainingError as error:
                logger.warning("%s is not deleted: %s", checkpoint.path, error)

    def _finish(self) -> None:
        """Save what is sampled from, and what is downloaded."""
        run = self._run
        sampler = self._trainer.save_weights_for_sampler("final")
        run.sampler_path = str(self._sdk.result(sampler, "the weights to sample from").path)
        export = self._trainer.save_weights_external("final")
        run.export_path = str(self._sdk.result(export, "the weights to download").path)
