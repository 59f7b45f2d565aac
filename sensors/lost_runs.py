"""Says of runs whose process is gone that they have failed: their slots are free then, and `run_retries` applies.

Dagster's code server says so itself within a second. Not if it was killed too, and not if Dagster's storage could not be
read just then, which ends the thread that looks (dagster 1.13, `_grpc/server.py`): such a run would be shown as started for
good. Runs say which process executes them where that is one process (`resources.slots`); of processes of other machines
nothing is known here.
"""

import dagster as dg

from resources.slots import GONE, is_gone

INTERVAL_S = 60
_UNDER_WAY = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)


def lost_runs() -> dg.SensorDefinition:
    """Return the sensor, which is on from the start."""

    @dg.sensor(
        name="lost_runs",
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports every run that is under way, and whose process is not, as failed.",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        instance, lost = context.instance, []
        for run in instance.get_runs(dg.RunsFilter(statuses=[*_UNDER_WAY])):
            if not is_gone(run):
                continue
            # a process says how its run ended before it ends
            now = instance.get_run_by_id(run.run_id)
            if now is not None and not now.is_finished:
                instance.report_run_failed(now, GONE)
                lost.append(run.run_id)
        return dg.SkipReason(f"{GONE}: {', '.join(lost)}" if lost else "no run has lost its process")

    return sensor
