"""What a training run is made of: `configs/recipes/<name>.yaml`."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from graftline.config import Config, load_yaml
from graftline.errors import ConfigError
from graftline.hashing import digest
from graftline.paths import Paths

TrainOn = Literal["all_assistant_messages", "last_assistant_message"]
_HOUR_S, _TEN_YEARS_S = 3600, 315_360_000


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
    """`sl_basic`: cross-entropy on the answers of chats.

    The loss of a batch is the sum over its tokens of `-weight * log p(token)`, weight 1 on answers and 0 on prompts
    (https://tinker-docs.thinkingmachines.ai/losses).
    """

    recipe: Literal["sl_basic"] = "sl_basic"
    model: str
    """As the backend calls it."""
    tokenizer: str = ""
    """A folder of transformers, or a model of `configs/models.yaml`; `model` if it is not given."""
    dataset: str
    """A file of `graftline trajectories export sft`, or any with a chat in `messages` on every line; below the root."""
    held_out: str = ""
    """Another one, on which the loss is looked at every `eval_every` steps."""
    renderer: str = "role_colon"
    train_on: TrainOn = "all_assistant_messages"
    max_tokens: int = Field(default=2048, ge=2)
    """Of one example; longer ones are dropped and counted."""
    epochs: int = Field(default=1, ge=1, le=10_000)
    max_steps: int | None = Field(default=None, ge=1)
    """Where it ends, if that is sooner than after its epochs."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    order_seed: int = 0
    """Of the order of examples, which is another one in every epoch."""
    learning_rate: Annotated[float, Field(gt=0, le=1)] = 5e-4
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
    """After which the service removes them, whatever became of the run."""
    eval_every: int = Field(default=20, ge=1)
    patience: int | None = Field(default=None, ge=1)
    """Looks at the held-out loss without a better one, after which the run ends early."""
    probe_tolerance: float = Field(default=1e-3, ge=0)
    """By how much the loss of the probe may differ after a checkpoint was loaded, relative to what it was."""
    deadline_s: float = Field(default=600.0, gt=0)
    """For every answer of the backend."""
    usd_per_million_tokens: float | None = Field(default=None, ge=0)
    """Trained ones; what a run costs is not known without it."""


def load_recipe(paths: Paths, name: str, changes: Mapping[str, Any] | None = None) -> TinkerTrainingConfig:
    """Return the configuration called `name` below `configs/recipes/`, with `changes` of single values.

    Raises:
        ConfigError: there is none, or it does not fit.
    """
    folder = paths.configs / "recipes"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in known:
        raise ConfigError(f"recipe {name!r} is unknown; {folder} has {', '.join(known) or 'none'}")
    return load_yaml(folder / f"{name}.yaml", TinkerTrainingConfig, changes)


def config_digest(config: TinkerTrainingConfig) -> str:
    """Return the digest of what decides about the weights: not where checkpoints go, nor how long is waited."""
    left_out = {
        "save_every",
        "keep_checkpoints",
        "checkpoint_ttl_s",
        "deadline_s",
        "submit_ahead",
        "usd_per_million_tokens",
    }
    return digest(config.model_dump(mode="json", exclude=left_out))
