"""Adds a partition for every file of configuration that a stage is over and that has none yet, so that a new file needs no reload.

A recipe on demand gets its partition where somebody asks for it: by the launchpad, or `python -m assets.partitions <name>`.
https://docs.dagster.io/guides/build/partitions-and-backfills/partitioning-assets#dynamic-partitions
"""

import dagster as dg

from assets.partitions import load_partitions
from graftline.core.errors import GraftlineError
from resources.artifacts import Artifacts

INTERVAL_S = 30


def partitions() -> dg.SensorDefinition:
    """Return the sensor, which is on from the start."""

    @dg.sensor(
        name="partitions",
        description="Adds a partition for every recipe, deployment and evaluation that is new; recipes on demand are left out.",
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
    )
    def sensor(context: dg.SensorEvaluationContext, artifacts: Artifacts) -> dg.SensorResult:
        try:
            configured = load_partitions(artifacts.paths)
        except GraftlineError as error:
            return dg.SensorResult(skip_reason=str(error))
        requests, new = [], []
        for definition, names in configured:
            stored = {*context.instance.get_dynamic_partitions(str(definition.name))}
            if missing := [name for name in names if name not in stored]:
                requests.append(definition.build_add_request(missing))
                new.append(f"{definition.name}: {', '.join(missing)}")
        reason = f"new: {'; '.join(new)}" if new else "every file has its partition"
        return dg.SensorResult(skip_reason=reason, dynamic_partitions_requests=requests)

    return sensor
