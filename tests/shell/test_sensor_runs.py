"""The sensor and the schedule with a real instance: what they request is launched once, and works."""

from datetime import UTC, datetime
from typing import Any

import dagster as dg

from assets.descriptions import source_key
from graftline.core.paths import Paths
from graftline.core.progress import progress_bars
from graftline.core.record import load_record
from graftline.pipeline.run import run_all
from graftline.pipeline.run_log import last_run
from orchestration.build import resources_for
from tests.shell.watched_sources import FOLLOWED, WatchedSources


def evaluate(sources: WatchedSources, instance: dg.DagsterInstance, cursor: str | None) -> Any:
    """Evaluate the sensor of the definitions, as the code location does for the daemon."""
    sensor = sources.repository.get_sensor_def("dataset_versions")
    resources = {name: resources_for(Paths(sources.root), "local")[name] for name in ("artifacts", "dataset_sources")}
    with dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        repository_def=sources.repository,
        sensor_name=sensor.name,
        resources=resources,
    ) as context:
        return sensor.evaluate_tick(context)


def execute(sources: WatchedSources, instance: dg.DagsterInstance, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
    """Execute what was requested, up to Parquet: the models and reports behind it are tests of their own."""
    graph = sources.repository.asset_graph
    selection = [key for key in request.asset_selection or [] if graph.get(key).group_name != "reports"]
    job = sources.definitions.resolve_job_def("lineage")
    return job.execute_in_process(
        instance=instance, asset_selection=selection, tags=dict(request.tags), raise_on_error=False
    )


def made(sources: WatchedSources) -> set[str]:
    """Return the artifacts that the last run made anew."""
    return {f"{outcome.stage}/{outcome.name}" for outcome in last_run(Paths(sources.root)) if outcome.reason}


def test_the_requested_run_brings_what_depends_on_a_new_revision_up_to_date(
    sources: WatchedSources, instance: dg.DagsterInstance
) -> None:
    sources.configure(languages=("python",))
    with progress_bars() as bars:
        run_all(Paths(sources.root), "local", {}, bars)
    first = evaluate(sources, instance, None)
    newest = sources.server.put(FOLLOWED, {"rows.jsonl": sources.content(0, 1)})
    second = evaluate(sources, instance, first.cursor)
    [request] = second.run_requests
    part = execute(sources, instance, request)
    assert (first.run_requests, part.success) == ([], True)
    assert load_record(Paths(sources.root).raw("followed")).inputs == {"source": newest}
    assert {"raw/followed", "normalized/followed", "division/all"} <= made(sources)
    assert not {name for name in made(sources) if name.endswith(("/pinned", "/plain"))}
    assert evaluate(sources, instance, second.cursor).run_requests == []
    # the checks of what was made again have run, and those of the others have not
    checks = {found.asset_key.to_user_string() for found in part.get_asset_check_evaluations()}
    assert {"normalized_followed", "splits"} <= checks
    assert "normalized_pinned" not in checks


def test_what_was_observed_is_in_the_catalog_of_assets(sources: WatchedSources, instance: dg.DagsterInstance) -> None:
    for event in evaluate(sources, instance, None).asset_events:
        instance.report_runless_asset_event(event)
    found = instance.fetch_observations(source_key("pinned"), limit=5).records
    [observation] = [record.asset_observation for record in found]
    assert observation is not None
    assert {key: observation.metadata[key].value for key in ("newest revision", "newer than pinned")} == {
        "newest revision": sources.first_pin,
        "newer than pinned": "no",
    }


def test_the_schedule_is_off_and_requests_one_run_a_day_over_all_partitions(
    sources: WatchedSources, instance: dg.DagsterInstance
) -> None:
    schedule = sources.repository.get_schedule_def("daily_lineage")
    days = [datetime(2030, 1, day, 3, tzinfo=UTC) for day in (1, 1, 2)]
    requests = []
    for day in days:
        context = dg.build_schedule_context(instance, scheduled_execution_time=day, repository_def=sources.repository)
        [request] = schedule.evaluate_tick(context).run_requests or []
        requests.append(request)
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert [request.run_key for request in requests] == [
        "2030-01-01T03:00:00+00:00", "2030-01-01T03:00:00+00:00", "2030-01-02T03:00:00+00:00",
    ]  # fmt: skip
    ends = [requests[0].tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")]
    assert ends == ["java|train", "python|test"]
    assert requests[0].asset_selection is None
