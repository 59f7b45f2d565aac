"""The schedule that brings everything up to date once a day, for sources that the sensor cannot watch.

Off until it is switched on. Not here: what happens when a source changes (`sensors.dataset_versions`).
https://docs.dagster.io/guides/automate/schedules
"""

import dagster as dg

from assets.partitions import range_tags, whole_range
from graftline.datasets.catalog import Catalog


def daily_lineage(job_name: str, catalog: Catalog) -> dg.ScheduleDefinition:
    """Return the schedule; the job called `job_name` is everything there is."""

    @dg.schedule(
        name="daily_lineage",
        job_name=job_name,
        cron_schedule="0 3 * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Requests one run over every asset and partition of the lineage; what is unchanged is not made again.",
    )
    def schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        return dg.RunRequest(
            run_key=context.scheduled_execution_time.isoformat(), tags=range_tags(*whole_range(catalog))
        )

    return schedule
