"""Runs of assets in the process of a test."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.partitions import range_tags, whole_range
from graftline.core.paths import Paths
from graftline.pipeline.settings import load_settings
from orchestration.build import build_definitions

_OF_ONE_DATASET = ("raw", "normalized")


def stage_of(key: dg.AssetKey) -> str:
    """Return the stage that makes an asset, in whose name a dataset may be."""
    if key.path[0] == "reports":
        return key.to_user_string()
    return next((stage for stage in _OF_ONE_DATASET if key.path[0].startswith(f"{stage}_")), key.path[0])


def materialize(
    root: Path,
    instance: dg.DagsterInstance,
    wanted: dg.AssetSelection | Collection[str] | None = None,
    config: Mapping[str, Any] | None = None,
    **resources: Any,
) -> dg.ExecuteInProcessResult:
    """Materialize assets over all partitions, by their stages or as selected, or the whole lineage."""
    definitions = build_definitions(resources)
    graph = definitions.resolve_asset_graph()
    if wanted is None:
        job = definitions.resolve_job_def("lineage")
    else:
        keys = (
            wanted.resolve(graph)
            if isinstance(wanted, dg.AssetSelection)
            else {key for key in graph.materializable_asset_keys if stage_of(key) in wanted}
        )
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
    return job.execute_in_process(
        instance=instance,
        tags=range_tags(*whole_range(load_settings(Paths(root)).catalog)),
        raise_on_error=False,
        run_config={"resources": {name: {"config": one} for name, one in (config or {}).items()}},
    )


def materializations(result: dg.ExecuteInProcessResult) -> list[dg.AssetMaterialization]:
    """Return what was made, without the bare events that Dagster itself logs of partitions."""
    made = [event.step_materialization_data.materialization for event in result.get_asset_materialization_events()]
    return [one for one in made if one.metadata]


def failure_of(result: dg.ExecuteInProcessResult) -> str:
    failures = [event.step_failure_data for event in result.get_step_failure_events()]
    return "\n".join(str(one.user_failure_data.description if one.user_failure_data else one.error) for one in failures)
