"""The closed loop: adapters that are trained one after the other, and whether the small model beats a larger one.

`configs/closed_loop.yaml` names the recipes and the evaluations. Each is made by its own stage, and what is up to date is left as
it is; the stage here reads what the evaluations say, and makes nothing else.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import AliasChoices, Field

from graftline.core.build import Built, Contents
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.evals.evaluation_file import EvaluationFile
from graftline.evals.metrics import Measure, compare
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.stages.model_evaluation import load_model_evaluation, model_evaluation_names, read_attempts
from graftline.training.recipes.open import load_recipe

RESULTS, REPORT = "results.json", "report.md"
_MEASURES: Mapping[Measure, str] = {"verified": "solved", "right_on_unseen": "right on unseen code"}


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
    """The solver that is the model without an adapter."""
    candidate: str
    """The one with it."""
    improved: str = Field(validation_alias=AliasChoices("improved", "reinforced"))
    """The one after the round of improvement; files of version 0.1.0 call it `reinforced`."""
    rival: str
    """The larger model."""

    @property
    def steps(self) -> list[Step]:
        """What is made, in its order."""
        return [
            *(Step("trained_adapter", name) for name in self.recipes),
            *(Step("evaluation", name) for name in self.evaluations),
        ]


def plan_closed_loop(lineage: Lineage) -> list[Step]:
    """Return what is made for the closed loop, in its order, once all that it names can be had."""
    # loads what asks models, for whoever only wants to know the assets
    from graftline.pipeline.solvers import Solvers

    file, evaluations = check_closed_loop(lineage.paths)
    with ExitStack() as stack:
        solvers = Solvers(lineage, stack)
        for evaluation in evaluations.values():
            for entry in evaluation.solvers.values():
                # told now, and not after everything was trained
                solvers.settings(entry)
    return file.steps


def closed_loop_results(lineage: Lineage) -> Built:
    """Say whether the adapters of the closed loop are better than a larger model, with intervals; only reads evaluations."""
    file, _ = check_closed_loop(lineage.paths)
    paths = lineage.paths
    sources = (
        ("sft_dataset", file.recipes, paths.training_set),
        ("trained_adapter", file.recipes, paths.adapter),
        ("evaluation", file.evaluations, paths.evaluation),
    )
    inputs = {
        f"{stage}.{name}": lineage.read_input(folder_of(name), stage)
        for stage, names, folder_of in sources
        for name in names
    }
    request = request_of("closed_loop", "closed_loop", inputs, file.model_dump(mode="json"))

    def make(partial: Path) -> Contents:
        lines = [line for name, about in file.evaluations.items() for line in _lines(lineage.paths, file, name, about)]
        (partial / RESULTS).write_text(json.dumps(lines, indent=2) + "\n", "utf-8")
        (partial / REPORT).write_text(_page(lines), "utf-8")
        return Contents({"rows": len(lines), "recipes": len(file.recipes), "evaluations": len(file.evaluations)})

    return lineage.build(lineage.paths.data / "closed_loop", request, make)


def _lines(paths: Paths, file: ClosedLoopFile, name: str, about: str) -> list[dict[str, Any]]:
    """Return what one evaluation says of each pair that is of interest, by each measure that it has."""
    attempts = read_attempts(paths.evaluation(name))
    pairs = (
        (file.candidate, file.base), (file.candidate, file.rival),
        (file.improved, file.candidate), (file.improved, file.rival),
    )  # fmt: skip
    entered = {attempt.solver for attempt in attempts}
    comparisons = [
        compare(attempts, *pair, measure) for measure in _MEASURES for pair in pairs if entered.issuperset(pair)
    ]
    about_it = {"evaluation": name, "about": about}
    return [{**about_it, **comparison.as_dict()} for comparison in comparisons if comparison.tasks]


def _page(lines: list[dict[str, Any]]) -> str:
    rows = [
        {
            "tasks": f"{line['about']} ({line['tasks']})",
            "share": _MEASURES[line["measure"]],
            "solver": line["first"],
            "has": _percent(line["of_first"]),
            "against": line["second"],
            "which has": _percent(line["of_second"]),
            "difference": _percent(line["difference"]),
            "95 % interval": _interval(line["interval"]),
        }
        for line in lines
    ]
    return f"# The closed loop\n\nIntervals are of the difference, by paired bootstrap over tasks.\n\n{table(rows)}\n"


def _percent(value: float | None) -> str:
    return "not known" if value is None else f"{100 * value:.0f} %"


def _interval(bounds: tuple[float, float] | None) -> str:
    return "not known" if bounds is None else f"{100 * bounds[0]:+.0f} to {100 * bounds[1]:+.0f}"


_ROLES = ("base", "candidate", "improved", "rival")


def load_closed_loop(paths: Paths) -> ClosedLoopFile | None:
    """Return the file of a root; None where there is none."""
    path = paths.configs / "closed_loop.yaml"
    return load_yaml(path, ClosedLoopFile) if path.exists() else None


def check_closed_loop(paths: Paths) -> tuple[ClosedLoopFile, Mapping[str, EvaluationFile]]:
    """Return the file with the evaluations it names, once every name in it is known to mean something."""
    path = paths.configs / "closed_loop.yaml"
    file, place = load_yaml(path, ClosedLoopFile), paths.relative(path)
    for name in file.recipes:
        if load_recipe(paths, name).data is None:
            raise ConfigError(f"{place}: recipes: {name!r} has no `data`, so the lineage makes nothing for it")
    names = model_evaluation_names(paths)
    if unknown := [name for name in file.evaluations if name not in names]:
        all_names = ", ".join(names) or "none"
        raise ConfigError(f"{place}: evaluations: {unknown[0]!r} is none of configs/evaluations; known: {all_names}")
    evaluations = {name: load_model_evaluation(paths, name) for name in file.evaluations}
    entered = dict.fromkeys(solver for evaluation in evaluations.values() for solver in evaluation.solvers)
    for role in _ROLES:
        if (name := getattr(file, role)) not in entered:
            raise ConfigError(
                f"{place}: {role}: {name!r} is a solver of none of the evaluations; known: {', '.join(entered)}"
            )
    return file, evaluations
