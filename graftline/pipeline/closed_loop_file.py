"""The file of the closed loop, `configs/closed_loop.yaml`, and what can be told of it before anything is trained."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field

from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.evals.evaluation_file import EvaluationFile, load_evaluation
from graftline.pipeline.contest_names import contest_names
from graftline.training.recipes.open import load_recipe

_ROLES = ("base", "candidate", "reinforced", "rival")


class Step(NamedTuple):
    """What has to be made before the results say anything."""

    stage: Literal["trained_adapter", "evaluation"]
    name: str
    """Of the recipe, or of the evaluation."""


class ClosedLoopFile(Config):
    """The file."""

    recipes: tuple[str, ...] = Field(min_length=1)
    """Trained in this order."""
    evaluations: dict[str, str] = Field(min_length=1)
    """Of `configs/evaluations`, and what each is about."""
    base: str
    """The contestant that is the model without an adapter."""
    candidate: str
    """The one with it."""
    reinforced: str
    """The one after the round of reinforcement."""
    rival: str
    """The larger model."""

    @property
    def steps(self) -> list[Step]:
        """What is made, in its order."""
        return [
            *(Step("trained_adapter", name) for name in self.recipes),
            *(Step("evaluation", name) for name in self.evaluations),
        ]


def closed_loop_file(paths: Paths) -> ClosedLoopFile | None:
    """Return the file of a root; None where there is none.

    Raises:
        ConfigError: it does not fit.
    """
    path = paths.configs / "closed_loop.yaml"
    return load_yaml(path, ClosedLoopFile) if path.exists() else None


def checked_closed_loop(paths: Paths) -> tuple[ClosedLoopFile, Mapping[str, EvaluationFile]]:
    """Return the file with the evaluations it names, once every name in it is known to mean something.

    Raises:
        ConfigError: there is no such file; a recipe, an evaluation or a contestant is unknown; or one of them does not fit.
    """
    path = paths.configs / "closed_loop.yaml"
    file, where, known = load_yaml(path, ClosedLoopFile), paths.relative(path), contest_names(paths)
    for name in file.recipes:
        if load_recipe(paths, name).data is None:
            raise ConfigError(f"{where}: recipes: {name!r} has no `data`, so the lineage makes nothing for it")
    for name in file.evaluations:
        if name not in known:
            raise ConfigError(
                f"{where}: evaluations: {name!r} is none of configs/evaluations; known: {', '.join(known) or 'none'}"
            )
    contests = {name: load_evaluation(paths.contests / f"{name}.yaml") for name in file.evaluations}
    entered = dict.fromkeys(each for contest in contests.values() for each in contest.contestants)
    for role in _ROLES:
        if (name := getattr(file, role)) not in entered:
            raise ConfigError(
                f"{where}: {role}: {name!r} is a contestant of none of the evaluations; known: {', '.join(entered)}"
            )
    return file, contests
