"""Says once more why the last run failed, a sentence for each step: `python -m orchestration.why_failed`.

On a terminal, Dagster prints such a sentence between the tracebacks of everything that it went through.
"""

import sys
from collections.abc import Iterator

import dagster as dg


def why_failed(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yield step and cause of every failure of the last run; nothing where it did not fail."""
    for run in instance.get_runs(limit=1):
        events = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
        for event in (record.event_log_entry.dagster_event for record in events):
            if event is None:
                continue
            failure = event.step_failure_data
            description = failure.user_failure_data.description if failure.user_failure_data else None
            yield f"{event.step_key}: {description or (failure.error.message.strip() if failure.error else 'failed')}"


if __name__ == "__main__":
    with dg.DagsterInstance.get() as opened:
        for line in why_failed(opened):
            print(f"error: {line}", file=sys.stderr)
    sys.exit(1)
