"""Goes on with the closed loop: once a run has made one step of it, the next step is requested, and at last the results.

A step is a run over a recipe or an evaluation, whoever launched it. One that failed ends the sequence; launched again, it goes on
from there. https://docs.dagster.io/guides/automate/run-status-sensors
"""

from typing import Any

import dagster as dg

from assets.closed_loop import GROUP, JOBS
from graftline.pipeline.stages.closed_loop import load_closed_loop
from resources.artifacts import Artifacts

NAME = "closed_loop"
_PARTITION, _RANGE_START, _RANGE_END = (
    "dagster/partition",
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
)


def define_closed_loop_sensor(jobs: list[Any]) -> dg.SensorDefinition:
    """Return the sensor over those of `jobs` that make steps, and that of the results. It is off until it is switched on."""
    steps = [job for job in jobs if job.name in JOBS.values()]

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=NAME,
        monitored_jobs=steps,
        request_jobs=[*steps, *(job for job in jobs if job.name == GROUP)],
        description="Requests the next step of the closed loop once a run has made one, and at last its results.",
    )
    def sensor(context: dg.RunStatusSensorContext, artifacts: Artifacts) -> dg.RunRequest | dg.SkipReason:
        run = context.dagster_run
        file = load_closed_loop(artifacts.paths)
        finished = run.job_name, _partition_of(run.tags)
        planned = [(JOBS[step.stage], step.name) for step in (file.steps if file else [])]
        if finished not in planned:
            return dg.SkipReason(
                f"{finished[0]} of {finished[1] or 'several partitions'} is no step of the closed loop"
            )
        following = [*planned, (GROUP, None)][planned.index(finished) + 1]
        return dg.RunRequest(run_key=run.run_id, job_name=following[0], partition_key=following[1])

    return sensor


def _partition_of(tags: dict[str, str]) -> str | None:
    """Return the one partition that a run is over; None where it is over several."""
    first, last = tags.get(_RANGE_START), tags.get(_RANGE_END)
    return tags.get(_PARTITION) or (first if first == last else None)
