"""`closed_loop_results`: the whole way from splits to adapters that are judged, in one run.

Adapters and evaluations are assets of their own, with partitions of other kinds, which one run cannot span; what is made of
them here is reported as theirs. Not here: what is done (`graftline.runtime.closed_loop`).
https://docs.dagster.io/guides/build/assets/metadata-and-tags
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import dagster as dg

from assets.described import described
from assets.harbor import metadata_of_evaluation
from assets.outcome import DATA_VERSION, materialized, metadata_of
from assets.reports.plots import bars, embedded
from assets.training import metadata_of_adapter, metadata_of_rows
from graftline.building import Built
from graftline.paths import Paths
from graftline.runtime.closed_loop import REPORT, RESULTS, closed_loop
from graftline.runtime.closed_loop_file import closed_loop_file
from graftline.runtime.settings import stage_code
from resources.artifacts import needs, stages_of

GROUP = "closed_loop"
NAME = "closed_loop_results"
_OF_STAGES: Mapping[str, Callable[[Paths, Built], Mapping[str, Any]]] = {
    "sft_dataset": lambda paths, built: metadata_of_rows(built),
    "trained_adapter": lambda paths, built: metadata_of_adapter(built),
    "evaluation": metadata_of_evaluation,
}
"""What is shown of what is made on the way, as where it is made on its own."""


def closed_loop_assets(paths: Paths) -> list[dg.AssetsDefinition]:
    """Return the asset; nothing where no file says what the loop is."""
    if closed_loop_file(paths) is None:
        return []
    everything = dg.AllPartitionMapping()
    deps = [dg.AssetDep(name, partition_mapping=everything) for name in ("splits", "tasks", "teacher_trajectories")]

    @dg.asset(
        name=NAME,
        deps=deps,
        group_name=GROUP,
        code_version=stage_code("closed_loop"),
        kinds={"pytorch", "markdown"},
        owners=["team:ml"],
        pool="trainer",
        description=closed_loop.__doc__,
        metadata=described(closed_loop),
        required_resource_keys=needs("sandbox", "actors", "teacher", "tinker", "harbor"),
    )
    def made(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        lineage = stages_of(context)

        def reported(stage: str, partition: str, built: Built) -> None:
            metadata = dict(_OF_STAGES[stage](lineage.paths, built))
            tags = {DATA_VERSION: built.record.identity}
            context.log_event(dg.AssetMaterialization(stage, metadata=metadata, partition=partition, tags=tags))

        return materialized(context, lineage, lambda: closed_loop(lineage, reported), _shown)

    return [made]


def _solved(built: Built) -> list[dict[str, Any]]:
    """Return the share of the tasks of every evaluation that each contestant solves, where it is known."""
    lines = json.loads((built.folder / RESULTS).read_text("utf-8"))
    shares = {
        (line["about"], line[which]): line[f"of_{which}"]
        for line in lines
        if line["measure"] == "verified"
        for which in ("first", "second")
    }
    return [
        {"tasks": about, "contestant": name, "solved": share}
        for (about, name), share in sorted(shares.items())
        if share is not None
    ]


def _shown(built: Built) -> Mapping[str, Any]:
    report = built.folder / REPORT
    return {
        **metadata_of(built),
        "results": dg.MetadataValue.md(report.read_text("utf-8")),
        "plot": dg.MetadataValue.md(embedded("solved", bars(_solved(built), ["tasks", "contestant"], "solved"))),
        "report": dg.MetadataValue.path(str(report)),
    }
