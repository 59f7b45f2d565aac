"""What each file of `configs/harbor` is as a deployment and what that is worth, and which models solve held-out tasks.

`harbor_deployment` and `instance_batch` have a partition for every file of `configs/harbor`, `deployment_evaluation` for those that ask
for one, and `evaluation` for every file of `configs/evaluations`. `python -m assets.harbor` adds the partitions, for runs that no sensor
looks after. Not here: what the stages do (`graftline.pipeline.stages.harbor_deployment`, `graftline.pipeline.stages.evaluation`,
`graftline.pipeline.stages.model_evaluation`), what is shown of solvers (`assets.contests`), and which service is asked (the port `harbor`).
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.contests import metadata_of_contest
from assets.descriptions import describe_asset
from assets.links import shown_at
from assets.outcome import OverAll, materialize_each, metadata_of
from assets.partitions import (
    DEPLOYMENTS,
    EVALUATED_DEPLOYMENTS,
    EVALUATIONS,
)
from assets.pictures import rows_by_partition
from assets.reports.plots import bars, embed_png
from graftline.core.build import Built
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.evaluation import REPORT, RESULTS, causes, evaluation, figures, read_summary
from graftline.pipeline.stages.harbor_deployment import (
    BUILD,
    BUILD_LOG,
    SEEDS,
    TASKS,
    harbor_deployment,
    instance_batch,
    read_rows,
)
from resources.artifacts import needs, stages_of

GROUP, EVALUATION_GROUP = "harbor", "evaluations"
DEPLOYED = (harbor_deployment.__name__, instance_batch.__name__)
EVALUATION, DEPLOYMENT_EVALUATION = evaluation.__name__, "deployment_evaluation"
_OF_CONTESTS = ("sandbox", "actors", "teacher", "tinker")
"""Systems that solvers are had from."""
_MOST_ROWS = 20
_BINS = 5


def harbor_assets() -> list[dg.AssetsDefinition]:
    """Return the assets of deployments, of their evaluations, and of those of models."""
    # a file says itself which tasks it is made of, if of any
    every_partition = dg.AllPartitionMapping()
    tasks = dg.AssetDep("tasks", partition_mapping=every_partition)
    changes = dg.AssetDep("repository_changes")
    # of two sets of partitions, one in the other
    same_name = dg.IdentityPartitionMapping()
    deployed = [dg.AssetDep(name, partition_mapping=same_name) for name in DEPLOYED]
    judged = [dg.AssetDep(name, partition_mapping=every_partition) for name in ("splits", "tasks", "trained_adapter")]
    judged.append(changes)
    return [
        _asset(
            harbor_deployment, GROUP, DEPLOYMENTS, [tasks, changes], lambda paths, built: _metadata_of_deployment(built),
            rows_by_partition,
        ),
        _asset(
            instance_batch, GROUP, DEPLOYMENTS, [dg.AssetDep(harbor_deployment.__name__)],
            lambda paths, built: _metadata_of_instances(built), rows_by_partition,
        ),
        _asset(
            evaluation, EVALUATION_GROUP, EVALUATED_DEPLOYMENTS, deployed, lambda paths, built: _metadata_of_rewards(built),
            name=DEPLOYMENT_EVALUATION,
            description="What a deployment is worth: every seed once, by the policy of its file; a reward nobody knows is not 0.",
        ),
        _asset(
            evaluation, EVALUATION_GROUP, EVALUATIONS, judged, metadata_of_contest, systems=_OF_CONTESTS,
            description="Which models and teachers solve the same tasks: each attempt graded alike; what nobody knows is not 0.",
        ),
    ]  # fmt: skip


def _asset(
    make: Callable[[Lineage, str], Built],
    group: str,
    partitions: dg.DynamicPartitionsDefinition,
    deps: Sequence[dg.AssetDep],
    shown: Callable[[Paths, Built], Mapping[str, Any]],
    over_all: OverAll = lambda artifacts: {},
    systems: Sequence[str] = ("harbor",),
    name: str = "",
    description: str = "",
) -> dg.AssetsDefinition:
    @dg.asset(
        name=name or make.__name__,
        deps=deps,
        partitions_def=partitions,
        group_name=group,
        code_version=stage_code(make.__name__),
        kinds={"jsonl"},
        owners=["team:ml"],
        pool="harbor",
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=description or make.__doc__,
        metadata=describe_asset(make),
        required_resource_keys=needs(*systems),
    )
    def asset(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        lineage = stages_of(context)
        makes = {name: partial(make, lineage, name) for name in context.partition_keys}
        yield from materialize_each(context, lineage, makes, partial(shown, lineage.paths), over_all)

    return asset


def _metadata_of_deployment(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of a deployment: where it is, which version, its tasks, the end of its build's log."""
    place = json.loads((built.folder / BUILD).read_text("utf-8"))
    log = (built.folder / BUILD_LOG).read_text("utf-8").rstrip()
    return {
        **metadata_of(built),
        "service": shown_at(place["service"]),
        "deployment": place["deployment"],
        "digest": built.record.config["digest"],
        "snapshot": place["snapshot_id"] or "none",
        "tasks": dg.MetadataValue.md(table(read_rows(built.folder / TASKS)[:_MOST_ROWS])),
        "build_log": dg.MetadataValue.md(f"```text\n{log}\n```" if log else "*empty*"),
    }


def _metadata_of_instances(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of instances: where they are, and the first of them."""
    seeds = read_rows(built.folder / SEEDS)
    return {
        **metadata_of(built),
        "service": shown_at(built.record.config["service"]),
        "deployment": built.record.config["deployment"],
        "seeds": dg.MetadataValue.md(table(seeds[:_MOST_ROWS], ["seed", "task_id"])),
    }


def _metadata_of_rewards(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of the evaluation of a deployment; a figure that nobody knows is left out, for it is not 0."""
    summary, rows = read_summary(built.folder), read_rows(built.folder / RESULTS)
    rewards = [row["reward"] for row in rows if row["reward_valid"]]
    low, high = summary["interval"] or (None, None)
    numbers = {
        "mean_reward": summary["mean_reward"],
        "mean_reward_low": low,
        "mean_reward_high": high,
        "mean_normalised": summary["mean_normalised"],
        "cost_usd": summary["cost_usd"],
        "tokens": summary["tokens"],
    }
    return {
        **metadata_of(built),
        "coverage": summary["coverage"],
        "figures": dg.MetadataValue.md(figures(summary)),
        "causes": dg.MetadataValue.md(causes(rows)),
        "rewards": dg.MetadataValue.md(embed_png("rewards", bars(_shares(rewards), ["reward"], "share"))),
        "report": dg.MetadataValue.path(str(built.folder / REPORT)),
        "job": summary["job_id"],
        **{name: value for name, value in numbers.items() if value is not None},
    }


def _shares(rewards: Sequence[float]) -> list[dict[str, Any]]:
    """Return which share of rewards lies between which bounds; what is beyond 0 and 1 is with the nearest."""
    places = [min(max(int(reward * _BINS), 0), _BINS - 1) for reward in rewards]
    return [
        {"reward": f"{place / _BINS:g} to {(place + 1) / _BINS:g}", "share": places.count(place) / len(places)}
        for place in range(_BINS)
    ]
