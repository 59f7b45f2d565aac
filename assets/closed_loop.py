"""`closed_loop_results`: whether adapters beat a larger model, read from the evaluations that say so.

What it reads is made by runs over the recipes and the evaluations of `configs/closed_loop.yaml`, one after the other:
`python -m orchestration.run_jobs closed_loop` goes through them, and the sensor `closed_loop` requests them. Not here: what is
trained and judged (`graftline.pipeline.stages.closed_loop`).
https://docs.dagster.io/guides/build/partitions-and-backfills/defining-dependencies-between-partitioned-assets
"""

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.descriptions import describe_asset
from assets.harbor import EVALUATION, EVALUATION_GROUP
from assets.outcome import materialize, metadata_of
from assets.reports.plots import bars, embed_png
from assets.training import GROUP as TRAINING
from assets.training import NAMES
from graftline.core.build import Built
from graftline.core.paths import Paths
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.closed_loop import (
    REPORT,
    RESULTS,
    closed_loop_results,
    load_closed_loop,
)
from resources.artifacts import needs, stages_of

GROUP = "closed_loop"
NAME = closed_loop_results.__name__
JOBS: Mapping[str, str] = {NAMES[-1]: TRAINING, EVALUATION: EVALUATION_GROUP}
"""The job that makes a step, by its stage."""


def define_closed_loop_assets(paths: Paths) -> list[dg.AssetsDefinition]:
    """Return the asset; nothing where no file says what the loop is."""
    file = load_closed_loop(paths)
    if file is None:
        return []
    read = {NAMES[-1]: file.recipes, EVALUATION: tuple(file.evaluations)}
    deps = [
        dg.AssetDep(name, partition_mapping=dg.SpecificPartitionsPartitionMapping(list(partitions)))
        for name, partitions in read.items()
    ]

    @dg.asset(
        name=NAME,
        deps=deps,
        group_name=GROUP,
        code_version=stage_code("closed_loop"),
        kinds={"markdown"},
        owners=["team:ml"],
        description=closed_loop_results.__doc__,
        metadata=describe_asset(closed_loop_results),
        required_resource_keys=needs(),
    )
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        lineage = stages_of(context)
        return materialize(context, lineage, lambda: closed_loop_results(lineage), _shown)

    return [asset]


def _list_solved_shares(built: Built) -> list[dict[str, Any]]:
    """Return the share of the tasks of every evaluation that each solver solves, where it is known."""
    lines = json.loads((built.folder / RESULTS).read_text("utf-8"))
    shares = {
        (line["about"], line[which]): line[f"of_{which}"]
        for line in lines
        if line["measure"] == "verified"
        for which in ("first", "second")
    }
    return [
        {"tasks": about, "solver": name, "solved": share}
        for (about, name), share in sorted(shares.items())
        if share is not None
    ]


def _shown(built: Built) -> Mapping[str, Any]:
    report = built.folder / REPORT
    return {
        **metadata_of(built),
        "results": dg.MetadataValue.md(report.read_text("utf-8")),
        "plot": dg.MetadataValue.md(
            embed_png("solved", bars(_list_solved_shares(built), ["tasks", "solver"], "solved"))
        ),
        "report": dg.MetadataValue.path(str(report)),
    }
