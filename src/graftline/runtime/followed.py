"""What a recipe that `follows` another goes on from: the newest checkpoint that the adapter of that one was made of."""

from graftline.errors import ConfigError, RecordError
from graftline.paths import Paths
from graftline.record import load_record
from graftline.training.runs import Runs
from graftline.training.settings import TinkerTrainingConfig


def resolved(config: TinkerTrainingConfig, paths: Paths, runs: Runs, has_checkpoints: bool) -> TinkerTrainingConfig:
    """Return `config` as it is trained: what it follows is said by `start_from`, which decides which run it is.

    Args:
        config: One that follows nothing is returned as it is.
        paths: Of the checkout, where the adapter is.
        runs: Where the run of the adapter is written down.
        has_checkpoints: Whether what trains keeps them.

    Raises:
        ConfigError: there is nothing to go on from.
    """
    if not config.follows:
        return config
    if not has_checkpoints:
        raise ConfigError("follows: the training service `memory` forgets what it trained; use `local` or `tinker`")
    folder = paths.adapter(config.follows)
    try:
        adapter = load_record(folder)
    except RecordError:
        raise ConfigError(
            f"follows: recipe {config.follows!r} has no adapter in {paths.relative(folder)} yet; materialize its"
            " trained_adapter first, or name a checkpoint by start_from in place of it"
        ) from None
    run = runs.find(str(adapter.config.get("run_id", "")))
    if run is None or not run.checkpoints:
        raise ConfigError(
            f"follows: the checkpoint that the adapter of {config.follows!r} was made of is not known, so nothing can be"
            " trained on it; materialize its trained_adapter again"
        )
    return config.model_copy(update={"start_from": run.checkpoints[-1].path, "follows": ""})
