"""Adds a partition for every recipe of the lineage that is not trained on demand: a new file needs no reload.

One on demand gets its partition where somebody asks for it: by the launchpad, or `python -m assets.training <name>`.
https://docs.dagster.io/guides/build/partitions-and-backfills/partitioning-assets#dynamic-partitions
"""

import dagster as dg

from assets.training import RECIPES
from graftline.core.errors import GraftlineError
from graftline.pipeline.stages.sft_dataset import recipes_of_run
from resources.artifacts import Artifacts

INTERVAL_S = 30


def recipes() -> dg.SensorDefinition:
    """Return the sensor, which is on from the start."""

    @dg.sensor(
        name="recipes",
        description="Adds a partition for every recipe that is new and not on demand.",
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext, artifacts: Artifacts) -> dg.SensorResult:
        """Add the recipes of `configs/recipes` that have no partition yet; those on demand are left out."""
        try:
            wanted = recipes_of_run(artifacts.paths)
        except GraftlineError as error:
            return dg.SensorResult(skip_reason=str(error))
        known = {*context.instance.get_dynamic_partitions(str(RECIPES.name))}
        new = [name for name in wanted if name not in known]
        return dg.SensorResult(
            skip_reason=f"new: {', '.join(new)}" if new else "every recipe has its partition",
            dynamic_partitions_requests=[RECIPES.build_add_request(new)] if new else [],
        )

    return sensor
