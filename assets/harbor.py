"""`harbor_deployment`, `instance_batch` and `evaluation`: what each file of `configs/harbor` is as a deployment, and what it is worth.

A partition is a file; `evaluation` has those that ask for one, and the files of `configs/evaluations`, so that the three are two
jobs. Not here: what the stages do (`graftline.pipeline.stages.harbor_deployment`, `graftline.pipeline.stages.evaluation`,
`graftline.pipeline.contests`), what is shown of contestants (`assets.contests`), and which service is asked (the port `harbor`).
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.contests import metadata_of_contest
from assets.described import described
from assets.links import shown_at
from assets.outcome import OverAll, materialize_each, metadata_of
from assets.pictures import rows_by_partition
from assets.reports.plots import bars, embedded
from graftline.core.build import Built
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.pipeline.contests import ATTEMPTS
from graftline.pipeline.evaluation_page import causes, figures
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.evaluation import REPORT, RESULTS, evaluation, read_summary
from graftline.pipeline.stages.harbor_deployment import BUILD, BUILD_LOG, SEEDS, TASKS, harbor_deployment, read_rows
from graftline.pipeline.stages.instance_batch import instance_batch
from resources.artifacts import needs, stages_of

GROUP, EVALUATIONS = "harbor", "evaluations"
"""Groups; each is over partitions of one kind."""
DEPLOYED = (harbor_deployment.__name__, instance_batch.__name__)
EVALUATION = evaluation.__name__
_OF_CONTESTS = ("sandbox", "actors", "teacher", "tinker")
"""Systems that contestants are had from."""
_MOST_ROWS = 20
_BINS = 5


def harbor_assets(
    names: Sequence[str], evaluated: Sequence[str], contests: Sequence[str] = ()
) -> list[dg.AssetsDefinition]:
    """Return the assets with a partition for each of `names`, evaluations for each of `evaluated` and `contests`.

    There is nothing where there is none of them.
    """
    # a file says itself which tasks it is made of, if of any
    everything = dg.AllPartitionMapping()
    tasks = dg.AssetDep("tasks", partition_mapping=everything)
    made = []
    if names:
        made += [
            _asset(
                harbor_deployment, GROUP, names, [tasks], lambda paths, built: _metadata_of_deployment(built),
                rows_by_partition,
            ),
            _asset(
                instance_batch, GROUP, names, [dg.AssetDep(harbor_deployment.__name__)],
                lambda paths, built: _metadata_of_instances(built), rows_by_partition,
            ),
        ]  # fmt: skip
    if evaluated or contests:
        same = dg.StaticPartitionMapping({name: name for name in evaluated})
        deps = [dg.AssetDep(name, partition_mapping=same) for name in DEPLOYED if evaluated]
        if contests:
            deps += [dg.AssetDep(name, partition_mapping=everything) for name in ("splits", "tasks", "trained_adapter")]
        systems = [*(["harbor"] if evaluated else []), *(_OF_CONTESTS if contests else [])]
        made.append(
            _asset(evaluation, EVALUATIONS, [*evaluated, *contests], deps, metadata_of_evaluation, systems=systems)
        )
    return made


def _asset(
    make: Callable[[Lineage, str], Built],
    group: str,
    names: Sequence[str],
    deps: Sequence[dg.AssetDep],
    shown: Callable[[Paths, Built], Mapping[str, Any]],
    over_all: OverAll = lambda made: {},
    systems: Sequence[str] = ("harbor",),
) -> dg.AssetsDefinition:
    @dg.asset(
        name=make.__name__,
        deps=deps,
        partitions_def=dg.StaticPartitionsDefinition(list(names)),
        group_name=group,
        code_version=stage_code(make.__name__),
        kinds={"jsonl"},
        owners=["team:ml"],
        pool="harbor",
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
        metadata=described(make),
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


def metadata_of_evaluation(paths: Paths, built: Built) -> Mapping[str, Any]:
    """Return what there is to know of an evaluation; figures that nobody knows are left out, for they are not 0."""
    if ATTEMPTS in built.record.files:
        return metadata_of_contest(paths, built)
    summary, rows = read_summary(built.folder), read_rows(built.folder / RESULTS)
    rewards = [row["reward"] for row in rows if row["reward_valid"]]
    low, high = summary["interval"] or (None, None)
    known = {
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
        "rewards": dg.MetadataValue.md(embedded("rewards", bars(_shares(rewards), ["reward"], "share"))),
        "report": dg.MetadataValue.path(str(built.folder / REPORT)),
        "job": summary["job_id"],
        **{name: value for name, value in known.items() if value is not None},
    }


def _shares(rewards: Sequence[float]) -> list[dict[str, Any]]:
    """Return which share of rewards lies between which bounds; what is beyond 0 and 1 is with the nearest."""
    places = [min(max(int(reward * _BINS), 0), _BINS - 1) for reward in rewards]
    return [
        {"reward": f"{place / _BINS:g} to {(place + 1) / _BINS:g}", "share": places.count(place) / len(places)}
        for place in range(_BINS)
    ]
