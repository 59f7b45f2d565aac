"""Watches the sources of the datasets, and requests a run when what would be fetched has changed.

A dataset whose source cannot be read is reported, and never keeps the others from being looked at; what was known of it
is kept, for a failed look is not a change. Not here: how a source is read (`graftline.datasets.sources`), how long it is left
alone after a failure (`sensors.cursor`), how long a look may take (`sensors.looks`), and what counts as a change
(`sensors.tick`). https://docs.dagster.io/guides/automate/sensors
"""

import os
from collections.abc import Iterable

import dagster as dg

from assets.closed_loop import GROUP as CLOSED_LOOP
from assets.descriptions import key_of
from assets.harbor import EVALUATION_GROUP
from assets.harbor import GROUP as HARBOR
from assets.partitions import range_tags, whole_range
from assets.prompts import GROUP as PROMPTS
from assets.training import GROUP as TRAINING
from graftline.core.clock import Clock, utc_now
from graftline.core.hashing import digest
from graftline.datasets.catalog import Catalog
from graftline.datasets.sources.base import MIRROR_VARIABLE
from graftline.pipeline.ports import dataset_hub
from resources.artifacts import Artifacts
from resources.systems import DatasetSourcesResource
from sensors.cursor import Cursor
from sensors.looks import Looks
from sensors.tick import Tick, find_stored_datasets

INTERVAL_S = 300
WITHIN_S = 30.0
"""Dagster gives up a tick after 60."""


def dataset_versions(
    job_name: str,
    catalog: Catalog,
    clock: Clock = utc_now,
    within_s: float = WITHIN_S,
) -> dg.SensorDefinition:
    """Return the sensor over the datasets in use; the job called `job_name` is everything there is."""
    looks = Looks()

    @dg.sensor(
        name="dataset_versions",
        job_name=job_name,
        minimum_interval_seconds=INTERVAL_S,
        description="Requests one run over what depends on the datasets whose sources hold something else to fetch.",
    )
    def sensor(
        context: dg.SensorEvaluationContext, artifacts: Artifacts, dataset_sources: DatasetSourcesResource
    ) -> dg.SensorResult:
        cursor = Cursor.read(context.cursor)
        if cursor is None:
            context.log.warning("the cursor cannot be read, and is begun anew")
            cursor = Cursor()
        used = catalog.used
        tick = Tick(
            clock().timestamp(),
            find_stored_datasets(artifacts.paths, used, artifacts.records()),
            os.environ.get(MIRROR_VARIABLE, ""),
        )
        states = {name: cursor.state_of(name, dataset) for name, dataset in used.items()}
        due = {name: (used[name], state) for name, state in states.items() if state.is_due(tick.moment)}
        outcomes = looks.take(dataset_hub(artifacts.wire_manifest(dataset_sources), artifacts.paths), due, within_s)
        for name, dataset in used.items():
            tick.judge(name, dataset, states[name], outcomes.get(name))
        for fault in tick.faults:
            context.log.warning(fault)
        return dg.SensorResult(
            run_requests=[run_request(tick, catalog, context.repository_def)] if tick.changed else [],
            skip_reason=None if tick.changed else tick.summary(),
            cursor=Cursor(datasets=tick.states).text(),
            asset_events=tick.events,
        )

    return sensor


def run_request(tick: Tick, catalog: Catalog, repository: dg.RepositoryDefinition | None) -> dg.RunRequest:
    """Return the one run for all that changed: two would make the same artifacts side by side.

    What needs a dataset that is neither stored nor fetched now is left out, for it would fail.
    """
    if repository is None:
        raise ValueError("what depends on a dataset is not known without a repository; give the context one")
    selected = _depending(repository, tick.changed) - _depending(repository, tick.missing())
    return dg.RunRequest(
        # a daemon that died before it stored the cursor asks again, and for the same
        run_key=digest({name: tick.states[name].history for name in tick.changed}),
        asset_selection=sorted(selected),
        tags={
            **range_tags(*whole_range(catalog)),
            **{f"graftline/revision.{name}": tick.states[name].fetched[:16] for name in tick.changed},
        },
    )


def _depending(repository: dg.RepositoryDefinition, names: Iterable[str]) -> set[dg.AssetKey]:
    """Return the raw assets of the datasets called `names`, and all of the lineage that depends on them."""
    keys = [key_of("raw", name) for name in names]
    # adapters, evaluations and prompts have partitions of other kinds, and cost what nobody asked for
    apart = dg.AssetSelection.groups(TRAINING, HARBOR, EVALUATION_GROUP, PROMPTS, CLOSED_LOOP)
    selection = dg.AssetSelection.assets(*keys).downstream() - apart
    return set(selection.resolve(repository.asset_graph)) if keys else set()
