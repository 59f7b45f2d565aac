"""Watches the runs that train the recipes of the lineage, whoever began them, and brings them to their end.

A run writes down that it goes on before it asks for anything that costs (`graftline.training.train`), and is held by the process
that trains it. One that is held is left alone and told of; one that was killed or interrupted is gone on with, from its last
checkpoint; one that ended elsewhere, as by `graftline train run`, is fetched. One that failed is left to people.
https://docs.dagster.io/guides/automate/sensors
"""

import json
from dataclasses import dataclass
from typing import Any, Literal

import dagster as dg

from assets.training import NAMES, RECIPES
from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.pipeline.recipe_models import resolve_checkpoints
from graftline.pipeline.stages.sft_dataset import lineage_recipes
from graftline.pipeline.stages.trained_adapter import output_of
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import Runs, TrainingRun
from graftline.training.train import MEMORY_OUTPUT, run_id_of
from resources.artifacts import Artifacts
from resources.systems import TinkerResource
from sensors.cursor import read_object

INTERVAL_S = 30
_ADAPTER = dg.AssetKey(NAMES[-1])


@dataclass(frozen=True, slots=True)
class _RecipeRun:
    """The run of one recipe."""

    recipe: str
    run: TrainingRun
    state: Literal["held", "left", "ended", "fetched", "failed"]
    steps: int
    loss: float | None


def training_runs(job_name: str) -> dg.SensorDefinition:
    """Return the sensor over the runs of all recipes; the job called `job_name` makes their adapters."""

    @dg.sensor(
        name="training_runs",
        job_name=job_name,
        minimum_interval_seconds=INTERVAL_S,
        description="Requests the adapter of every recipe whose run was left or ended, and observes the runs that go on.",
    )
    def sensor(context: dg.SensorEvaluationContext, artifacts: Artifacts, tinker: TinkerResource) -> dg.SensorResult:
        recipe_runs, faults = [], []
        for recipe in lineage_recipes(artifacts.paths):
            try:
                if (recipe_run := _look(artifacts, tinker, recipe)) is not None:
                    recipe_runs.append(recipe_run)
            except GraftlineError as error:
                context.log.warning(str(error))
                faults.append(f"{recipe}: {error}")
        shown = {
            recipe_run.recipe: f"{recipe_run.run.run_id}/{recipe_run.state}/{recipe_run.steps}"
            for recipe_run in recipe_runs
        }
        previous = read_object(context.cursor)
        requests = [
            # one for each attempt, so that a run that is killed again and again is not asked for twice at the same time
            dg.RunRequest(
                run_key=f"{recipe_run.run.run_id}/{recipe_run.state}/{len(recipe_run.run.attempts)}",
                partition_key=recipe_run.recipe,
                asset_selection=[_ADAPTER],
            )
            for recipe_run in recipe_runs
            if recipe_run.state in ("left", "ended")
        ]
        states = "; ".join([*(f"{recipe_run.recipe}: {_describe(recipe_run)}" for recipe_run in recipe_runs), *faults])
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else states or "no recipe of the lineage was trained yet",
            asset_events=[
                _observation(recipe_run)
                for recipe_run in recipe_runs
                if previous.get(recipe_run.recipe) != shown[recipe_run.recipe]
            ],
            cursor=json.dumps(shown),
            dynamic_partitions_requests=[RECIPES.build_add_request([recipe_run.recipe for recipe_run in recipe_runs])]
            if recipe_runs
            else [],
        )

    return sensor


def _look(artifacts: Artifacts, tinker: TinkerResource, recipe: str) -> _RecipeRun | None:
    """Return what the run of a recipe on its data is at; None where there is none."""
    paths = artifacts.paths
    config = load_recipe(paths, recipe)
    if not (paths.root / config.dataset).is_file():
        return None
    output = output_of(artifacts.wire_manifest(tinker))
    runs = Runs(paths.root / output)
    try:
        config = resolve_checkpoints(config, paths, runs, has_checkpoints=output != MEMORY_OUTPUT)
    except ConfigError:
        return None  # what it goes on from is not there, so neither is a run of it
    run_id = run_id_of(config, paths.root)
    run = runs.find(run_id)
    if run is None:
        return None
    steps = runs.steps(run_id)
    loss = steps[-1].loss if steps else None
    return _RecipeRun(recipe, run, _state(paths, recipe, runs, run), len(steps), loss)


def _state(
    paths: Paths, recipe: str, runs: Runs, run: TrainingRun
) -> Literal["held", "left", "ended", "fetched", "failed"]:
    if runs.is_trained(run.run_id):
        return "held"
    if run.is_over:
        return "fetched" if _is_fetched(paths, recipe, run) else "ended"
    return "failed" if run.status == "failed" else "left"


def _is_fetched(paths: Paths, recipe: str, run: TrainingRun) -> bool:
    try:
        record = load_record(paths.adapter(recipe))
    except GraftlineError:
        return False
    return record.config.get("run_id") == run.run_id


def _describe(recipe_run: _RecipeRun) -> str:
    at = f"step {recipe_run.steps} of {recipe_run.run.total_steps}"
    return {
        "held": f"{recipe_run.run.run_id} goes on, {at}",
        "left": f"{recipe_run.run.run_id} was left at {at}",
        "ended": f"{recipe_run.run.run_id} has ended",
        "fetched": f"{recipe_run.run.run_id} is there",
        "failed": f"{recipe_run.run.run_id} failed: {recipe_run.run.error}",
    }[recipe_run.state]


def _observation(recipe_run: _RecipeRun) -> dg.AssetObservation:
    metadata: dict[str, Any] = {
        "run": recipe_run.run.run_id,
        "state": recipe_run.state,
        "step": recipe_run.steps,
        "steps": recipe_run.run.total_steps,
        "attempts": len(recipe_run.run.attempts),
    }
    if recipe_run.loss is not None:
        metadata["loss"] = recipe_run.loss
    if recipe_run.run.error:
        metadata["error"] = recipe_run.run.error
    return dg.AssetObservation(_ADAPTER, partition=recipe_run.recipe, metadata=metadata)
