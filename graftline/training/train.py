"""Training through the Tinker SDK, on the service or the backend of this machine, so that it can always resume.

Steps are sent ahead of the answers to those before them. At a checkpoint all that was sent is waited for, the weights are
saved together with the optimizer, and only then does the record say so: it names weights that hold exactly as many steps as
it says. Which examples a step is made of, and its learning rate, depend on its number alone. So a run that was killed gives
the same losses when it resumes from its record as one that was not. (`supervised.train` of tinker-cookbook 0.5.8 records a
checkpoint while later steps are on their way, and repeats them: https://github.com/thinking-machines-lab/tinker-cookbook
issues 935 and 940.)
"""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.training.datums import load_tokenizer
from graftline.training.examples import TrainingData, check_examples, notice_of_dropped
from graftline.training.loop import OnStep, TrainingLoop
from graftline.training.recipes.base import OpenSandbox
from graftline.training.recipes.open import open_recipe
from graftline.training.runs import Runs, StepMetrics, TrainingRun, metrics_of
from graftline.training.settings import TinkerTrainingConfig, config_digest, deciding, total_steps
from graftline.training.tinker import TinkerSDKClient
from graftline.training.tracking import open_trackers

logger = logging.getLogger(__name__)

OUTPUT = Path("models/adapters/tinker")
MEMORY_OUTPUT = Path("models/adapters/memory")
"""Of what the memory service trained, which must not pass for an adapter of a model."""
_PACKAGES = ("tinker", "tinker-cookbook", "transformers", "graftline")


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
    service: TinkerSDKClient | None = None,
    sandbox: OpenSandbox | None = None,
    on_step: OnStep = lambda metrics, total: None,
    on_notice: Callable[[str], None] = logger.warning,
    is_stopped: Callable[[], bool] = lambda: False,
) -> TinkerTrainingResult:
    """Train, or resume the run of the same configuration and data; one that is done is not trained again.

    Args:
        api_key: Of the backend; TINKER_API_KEY if it is None, as `base_url` is TINKER_BASE_URL, or that of the service.
        output_dir: Of the records, below `runs`; `models/adapters/tinker` below `root` if it is None.
        root: What the paths in `config` are relative to.
        tokenizer: Of the model; the one that `config` names if it is None.
        run_id: Made of the configuration and the data if it is None.
        service: The backend itself, in place of the one that key and address are of; it stays open.
        sandbox: Returns what answers are graded in, for recipes that reward; this machine's if it is None.
        on_notice: Called before the first step with what a person should know of it, such as how many rows are left out.
        is_stopped: Asked before every step whether to end, with a checkpoint; then the run is `Interrupted`.
    """
    recipe = open_recipe(config, sandbox)
    data = recipe.load(root, tokenizer or load_tokenizer(config.tokenizer or config.model))
    check_examples(config, data)
    if notice := notice_of_dropped(config, data):
        on_notice(notice)
    runs = Runs(output_dir or root / OUTPUT)
    name = run_id or run_id_of(config, root)
    backend = nullcontext(service) if service else TinkerSDKClient(api_key, base_url, deadline_s=config.deadline_s)
    with runs.lock(name), backend as client:
        run = _find_run(runs, name, config, data, client)
        if not run.is_over:
            folder = runs.folder / "tracking" / name
            with open_trackers(config.tracking, name, deciding(config), folder, root) as trackers:

                def show(metrics: StepMetrics, total: int) -> None:
                    trackers.step(metrics.step, metrics_of(metrics))
                    on_step(metrics, total)

                TrainingLoop(config, recipe, data, runs, run, client, show, is_stopped).run()
                trackers.summary({"status": run.status, "tokens": run.tokens, "held_out_loss": run.held_out_loss})
    return TinkerTrainingResult(name, runs.path(name), run)


def run_id_of(config: TinkerTrainingConfig, root: Path) -> str:
    """Return the id of the run of this configuration on its files below `root`; DataError where one cannot be read."""
    return f"{config.recipe}-{digest([config_digest(config), config.digests(root)])[:12]}"


def _find_run(
    runs: Runs, name: str, config: TinkerTrainingConfig, data: TrainingData, client: TinkerSDKClient
) -> TrainingRun:
    run, settings_digest = runs.find(name), config_digest(config)
    if run is None:
        return TrainingRun(
            run_id=name,
            recipe=config.recipe,
            config=config.model_dump(mode="json"),
            config_digest=settings_digest,
            dataset=data.digests,
            examples=len(data.train),
            dropped=dict(data.dropped),
            versions={package: metadata.version(package) for package in _PACKAGES},
            backend=client.base_url,
            total_steps=total_steps(config, len(data.train)),
        )
    if run.config_digest != settings_digest or run.dataset != data.digests:
        reason = "another configuration" if run.config_digest != settings_digest else "other data"
        raise ConfigError(
            f"run {name!r} was begun with {reason}; leave the run id out for a run of its own, or name another"
        )
    return run
