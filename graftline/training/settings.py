"""What a training run is made of: `configs/recipes/<name>.yaml`."""

import math
import random
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from graftline.astgrep.binding import Language
from graftline.core.config import Config
from graftline.core.hashing import digest, sha256_file
from graftline.datasets.synthetic.families import OF_FAMILY
from graftline.rollouts.task import Instructions, ToldInstructions
from graftline.training.tracking import TrackingSettings

_HOUR_S, _TEN_YEARS_S = 3600, 315_360_000


TRAIN, HELD_OUT, TASKS = "train.jsonl", "held_out.jsonl", "tasks.jsonl"
"""What a recipe trains on, what its held-out loss is taken on, and the tasks that are solved before and after."""


class _Source(Config):
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    prompt: str = "brief"
    """Of `configs/teacher_prompts.yaml`: how tasks are asked and answered."""
    examples: int = Field(default=400, ge=1)
    """Rows to train on, at most."""
    held_out: int = Field(default=40, ge=0)
    """Rows for the held-out loss, and tasks to solve before and after, at most."""
    without: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)
    """Repositories and packages of which nothing is trained on, as rows name them (`owner/name`, `pypi:name`)."""


class SyntheticSource(_Source):
    """Synthetic edits on snippets of the splits, made for the recipe, their actions applied in the sandbox."""

    kind: Literal["synthetic"] = "synthetic"
    templates: tuple[str, ...] = ()
    """Ids of docs/synthetic.md, inverses too; all if there are none."""
    most_characters: int = Field(default=240, ge=40)
    """Of a text before; longer snippets are cut into runs of whole statements."""
    per_snippet: int = Field(default=2, ge=1)
    seed: int = 0

    @model_validator(mode="after")
    def _knows_its_templates(self) -> Self:
        if unknown := sorted({*self.templates} - {*OF_FAMILY}):
            raise ValueError(f"templates: {unknown[0]!r} is unknown; docs/synthetic.md lists them")
        return self


class TrajectorySource(_Source):
    """Verified steps of the trajectories that are stored."""

    kind: Literal["trajectories"] = "trajectories"
    teachers: tuple[str, ...] = ()
    """Those of these teachers alone; of all if there are none."""
    of: Literal["all", "real", "synthetic"] = "all"
    """Kind of the edits."""
    instructions: Instructions = "answerable"
    """At which tasks: those that can be done from their instruction, or all that have one."""


class TasksSource(_Source):
    """Tasks as they are stored, whoever attempted them, with the text after as the answer: for prompts that ask for code."""

    kind: Literal["tasks"] = "tasks"
    prompt: str = "edit"
    of: Literal["all", "real", "synthetic"] = "real"
    """Kind of the edits."""
    instructions: ToldInstructions = "answerable"
    """Which of them: those that can be done from their instruction, or all that have one; `told`: also those that nobody tried,
    where the instruction or the text before has every word of the text after."""
    most_characters: int = Field(default=800, ge=40)
    """Of a text before."""
    places: int = Field(default=0, ge=0, le=6)
    """Of a text that is longer, single places that are rows in its stead, at most."""


class ChangesSource(_Source):
    """Single places of changes that span a repository, by what their authors say of them: for prompts that ask for code."""

    kind: Literal["changes"] = "changes"
    prompt: str = "edit"
    places: int = Field(default=4, ge=1, le=6)
    """Of a change, at most."""
    instructions: ToldInstructions = "answerable"
    """As of tasks."""
    most_characters: int = Field(default=800, ge=40)
    """Of the lines of a place."""


class ComposedSource(_Source):
    """Composed edits on pieces of the splits (`datasets.synthetic.composed`): every kind of change.

    A prompt that shows the instruction gets those of which rules make one.
    """

    kind: Literal["composed"] = "composed"
    most_characters: int = Field(default=140, ge=40)
    """Of a piece, and of a text before."""
    seed: int = 0


Part = Annotated[
    SyntheticSource | ComposedSource | TrajectorySource | TasksSource | ChangesSource, Field(discriminator="kind")
]


class MixtureSource(Config):
    """Several of the others together; their held-out rows and tasks too."""

    kind: Literal["mixture"] = "mixture"
    parts: tuple[Part, ...] = Field(min_length=2)
    without: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)
    """As of one of the others; those that a part names too are left out of all."""

    @property
    def prompt(self) -> str:
        """That of all parts."""
        return self.parts[0].prompt

    @property
    def languages(self) -> tuple[Language, ...]:
        """Those of any part."""
        return tuple(dict.fromkeys(language for part in self.parts for language in part.languages))

    @model_validator(mode="after")
    def _is_asked_in_one_way(self) -> Self:
        if len(prompts := sorted({part.prompt for part in self.parts})) > 1:
            raise ValueError(f"parts: are asked by {', '.join(prompts)}; name one prompt in all of them")
        return self


Source = Annotated[
    SyntheticSource | ComposedSource | TrajectorySource | TasksSource | ChangesSource | MixtureSource,
    Field(discriminator="kind"),
]


def parts_of(source: Source) -> tuple[Part, ...]:
    """Return the parts of a mixture; `source` itself where it is none."""
    return source.parts if isinstance(source, MixtureSource) else (source,)


def left_out_of(source: Source) -> frozenset[str]:
    """Return the repositories and packages of which nothing is trained on, in small letters."""
    return frozenset(name.lower() for named in (source, *parts_of(source)) for name in named.without)


class LoraSettings(Config):
    """Which layers get an adapter; its alpha is 32 whatever its rank, as that of the service is."""

    rank: int = Field(default=8, ge=1, le=512)
    seed: int = 0
    """Of its first weights."""
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = False
    """The output layer. Where it is the embedding as well, such an adapter cannot be merged into the model."""


class TinkerTrainingConfig(Config):
    """What all recipes have; a recipe adds what is its own."""

    recipe: str
    description: str = ""
    """What tells it from other configurations of the same recipe, in one line."""
    model: str
    """As the backend calls it: a name of `configs/models.yaml`, or one with a slash that a service has."""
    start_from: str = ""
    """A checkpoint of the backend, as that of another run: its weights are what is trained on; a new adapter if not given."""
    follows: str = ""
    """Another recipe of the lineage: its adapter is what is trained on, in place of `start_from`."""
    is_on_demand: bool = False
    """Whether the lineage trains it only where it is asked for by name: no part of `make run` and `graftline run`."""
    tokenizer: str = ""
    """A folder of transformers, or a model of `configs/models.yaml`; `model` if it is not given."""
    data: Source | None = None
    """What the lineage makes to train on (`training.settings`); then `dataset` and `held_out` need not be said."""
    dataset: str = ""
    """A file of `graftline data export`, or what `data` makes; below the root."""
    held_out: str = ""
    """Another one, on which the loss is taken every `eval_every` steps."""
    answer_tokens: int = Field(default=96, ge=1)
    """Of an answer that is sampled, at most."""
    tracking: TrackingSettings = TrackingSettings()
    renderer: str = "role_colon"
    max_tokens: int = Field(default=2048, ge=2)
    """Of one example; longer ones are dropped and counted."""
    epochs: int = Field(default=1, ge=1, le=10_000)
    max_steps: int | None = Field(default=None, ge=1)
    """Where it ends, if that is sooner than after its epochs."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    order_seed: int = 0
    """Of the order of examples, which is another one in every epoch."""
    learning_rate: float = Field(default=5e-4, gt=0, le=1)
    lr_schedule: Literal["linear", "cosine", "constant"] = "linear"
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip_norm: float = Field(default=1.0, ge=0)
    """0 for none."""
    lora: LoraSettings = LoraSettings()
    submit_ahead: int = Field(default=1, ge=0, le=16)
    """Steps that are sent before the one before them is answered."""
    save_every: int = Field(default=20, ge=1)
    """Steps between checkpoints that the run can go on from."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """The newest so many; the others are deleted."""
    checkpoint_ttl_s: int | None = Field(default=7 * 24 * _HOUR_S, ge=_HOUR_S, le=_TEN_YEARS_S)
    """After which the service removes them; the last one of a run that is done stays, for others may follow it."""
    eval_every: int = Field(default=20, ge=1)
    patience: int | None = Field(default=None, ge=1)
    """Held-out losses in a row without a better one, after which the run ends early."""
    probe_tolerance: float = Field(default=1e-3, ge=0)
    """By how much the loss of the probe may differ after a checkpoint was loaded, relative to what it was."""
    deadline_s: float = Field(default=600.0, gt=0)
    """For every answer of the backend."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Of steps; what a run costs is not known without it."""

    @model_validator(mode="after")
    def _has_data(self) -> Self:
        if self.follows and self.start_from:
            raise ValueError("follows and start_from: both say what is trained on; name one of them")
        if not self.dataset and self.data is None:
            raise ValueError("dataset: name a file, or say under data what the lineage is to make")
        return self

    def digests(self, root: Path) -> dict[str, str]:
        """Return SHA-256 of the files that are named, below `root`, by what they are."""
        files = {"dataset": self.dataset, "held_out": self.held_out}
        return {kind: sha256_file(root / name) for kind, name in files.items() if name}


def deciding(config: TinkerTrainingConfig) -> dict[str, Any]:
    """Return what of `config` decides about the weights: not where checkpoints go, nor how long is waited."""
    excluded = {
        "description",
        "save_every",
        "keep_checkpoints",
        "checkpoint_ttl_s",
        "deadline_s",
        "submit_ahead",
        "usd_per_million_tokens",
        "tracking",
        "is_on_demand",
        # what they are stands in `start_from` and `teacher_path` when it is trained
        "follows",
        "teacher_recipe",
        # its files tell what it made
        "data",
    }
    return config.model_dump(mode="json", exclude=excluded)


def config_digest(config: TinkerTrainingConfig) -> str:
    """Return the digest of what decides about the weights."""
    return digest(deciding(config))


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
    return _order(config.order_seed, epoch, examples)[number * config.batch_size :][: config.batch_size]


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, examples: int) -> list[int]:
    order = list(range(examples))
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return order


def learning_rate(config: TinkerTrainingConfig, step: int, total: int) -> float:
    """Return the learning rate of a step."""
    from tinker_cookbook.utils.lr_scheduling import compute_schedule_lr_multiplier

    return float(config.learning_rate * compute_schedule_lr_multiplier(config.lr_schedule, step, total))
