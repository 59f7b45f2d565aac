"""The partitioned stages: `splits`, `synthetic_rules`, `tasks`, `teacher_trajectories`, `trajectories`, and their checks.

Not here: what a stage does (`graftline.pipeline.stages`). https://docs.dagster.io/guides/build/assets
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.checks import evaluate_check, result_of_faults
from assets.descriptions import columns_of, describe_asset, fields_of, key_of
from assets.outcome import OverAll, materialize_partitions
from assets.partitions import partitions_of
from assets.pictures import rows_by_partition
from assets.reports.plots import embed_png, stack_bars
from graftline.astgrep.binding import Language
from graftline.core.build import Built
from graftline.datasets.catalog import Catalog
from graftline.datasets.edit import EDITS, Edit
from graftline.datasets.splits import Split
from graftline.pipeline import checks
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.splits import splits
from graftline.pipeline.stages.tasks import synthetic_rules, tasks
from graftline.pipeline.stages.trajectories import teacher_trajectories, trajectories
from graftline.rollouts.exports.parquet import STEPS
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory
from resources.artifacts import Artifacts, needs, stages_of


def stage_assets(catalog: Catalog) -> list[dg.AssetsDefinition]:
    """Return the partitioned stages over the datasets of `catalog`."""
    normalized = [key_of("normalized", name) for name in catalog.sources]
    return [
        _stage(catalog, splits, ["division", *normalized], "datasets", {"jsonl", "parquet"}),
        _stage(
            catalog, synthetic_rules, [_snippets(catalog)], "tasks", {"jsonl", "astgrep"}, ("sandbox",)
        ),
        _stage(catalog, tasks, ["splits", "synthetic_rules"], "tasks", {"jsonl"}, ("sandbox", "actors")),
        _stage(
            catalog, teacher_trajectories, ["tasks"], "trajectories", {"jsonl", "astgrep"},
            ("teacher", "sandbox", "actors", "queue"), "actors", _endings,
        ),
        _stage(
            catalog, trajectories, ["tasks", "teacher_trajectories"], "trajectories", {"parquet"},
            over_all=_endings,
        ),
    ]  # fmt: skip


def _snippets(catalog: Catalog) -> dg.AssetDep:
    """Return the splits that synthetic edits are made on: those of the language, and of others that are also in it."""
    used_by: dict[str, list[str]] = {language: [] for language in catalog.languages}
    for language in catalog.languages:
        for source in catalog.snippets_of(language):
            used_by[source].append(language)
    dimensions = {
        "language": dg.DimensionPartitionMapping("language", dg.StaticPartitionMapping(used_by)),
        "split": dg.DimensionPartitionMapping("split", dg.IdentityPartitionMapping()),
    }
    with warnings.catch_warnings():
        # that its form may change concerns us, not who loads the definitions
        warnings.simplefilter("ignore", dg.BetaWarning)
        mapping = dg.MultiPartitionMapping(dimensions)
    return dg.AssetDep("splits", partition_mapping=mapping)


def _stage(
    catalog: Catalog,
    make: Callable[[Lineage, Language, Split], Built],
    deps: Sequence[str | dg.AssetKey | dg.AssetDep],
    group: str,
    kinds: set[str],
    systems: Sequence[str] = (),
    pool: str | None = None,
    over_all: OverAll = rows_by_partition,
) -> dg.AssetsDefinition:
    name = make.__name__

    @dg.asset(
        name=name,
        deps=deps,
        partitions_def=partitions_of(catalog),
        group_name=group,
        code_version=stage_code(name),
        kinds=kinds,
        owners=["team:data"],
        metadata=describe_asset(make, _rows_of(name)),
        # one run at a time uses the first of the systems, unless it is to be another one
        pool=pool or next(iter(systems), None),
        required_resource_keys=needs(*systems),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def stage(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        lineage = stages_of(context)
        yield from materialize_partitions(context, lineage, partial(make, lineage), over_all)

    return stage


def _rows_of(stage: str) -> dg.TableSchema:
    """Return the columns, or the fields, of the rows that a stage makes."""
    match stage:
        case "splits":
            return columns_of(EDITS)
        case "synthetic_rules":
            return fields_of(Edit)
        case "tasks":
            return fields_of(Task)
        case "teacher_trajectories":
            return fields_of(Trajectory)
        case _:
            return columns_of(STEPS)


def _endings(artifacts: Mapping[str, Built]) -> Mapping[str, Any]:
    """Return how the attempts of every partition ended, as a plot; one without a reward is none that failed."""
    parts = ("verified", "not verified", "no reward")
    rows: list[dict[str, Any]] = []
    for key, built in artifacts.items():
        counts = built.record.counts
        verified, unknown = counts["verified"], counts["no_reward"]
        ended = (verified, counts["rows"] - verified - unknown, unknown)
        if counts["rows"]:
            rows.append({"partition": key, **dict(zip(parts, ended, strict=True))})
    image = stack_bars(rows, ["partition"], parts, "attempts") if rows else b""
    return {"plot": dg.MetadataValue.md(embed_png("attempts", image))} if rows else {}


@dg.asset_check(asset="splits", name="schema_valid", blocking=True)
def splits_schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """Every line of every split is an edit, every Parquet file has the documented columns."""
    remedy = "delete the folder and materialize splits again"
    return evaluate_check(context, lambda: result_of_faults(checks.invalid_splits(artifacts.stages({})), remedy))


@dg.asset_check(asset="splits", blocking=True)
def no_row_in_two_splits(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """No edit, repository or package, commit, or cluster of near-duplicates is in two splits."""
    remedy = "materialize division and all partitions of splits again"
    return evaluate_check(context, lambda: result_of_faults(checks.leaks(artifacts.stages({})), remedy, "leaks"))


@dg.asset_check(asset="tasks", name="schema_valid", blocking=True)
def tasks_schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """Every line is a task, and no task is in two partitions."""
    remedy = "delete the folder and materialize tasks again"
    return evaluate_check(context, lambda: result_of_faults(checks.invalid_tasks(artifacts.stages({})), remedy))


@dg.asset_check(asset="teacher_trajectories", name="schema_valid", blocking=True)
def attempts_schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """Every line is an attempt, every reward is missing or between 0 and 1."""
    remedy = "delete the folder and materialize teacher_trajectories again"
    return evaluate_check(context, lambda: result_of_faults(checks.invalid_attempts(artifacts.stages({})), remedy))


@dg.asset_check(asset="trajectories", name="schema_valid", blocking=True)
def trajectories_schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """Every Parquet file has the documented columns, every reward is missing or between 0 and 1."""
    remedy = "delete the folder and materialize trajectories again"
    return evaluate_check(context, lambda: result_of_faults(checks.invalid_trajectories(artifacts.stages({})), remedy))


@dg.asset_check(asset="trajectories", blocking=True)
def enough_verified_steps(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """There are as many verified steps as `configs/trajectories.yaml` requires."""

    def evaluate() -> dg.AssetCheckResult:
        lineage = artifacts.stages({})
        steps, required = checks.count_verified_steps(lineage), lineage.settings.trajectories.least_verified_steps
        lack = (
            f"trajectories: {steps} verified steps, but least_verified_steps of configs/trajectories.yaml is {required}"
        )
        return dg.AssetCheckResult(
            passed=steps >= required,
            description=None if steps >= required else f"{lack}; add tasks, ask another teacher, or lower it",
            metadata={"verified_steps": steps, "required": required},
        )

    return evaluate_check(context, evaluate)


STAGE_CHECKS = (
    splits_schema_valid, no_row_in_two_splits, tasks_schema_valid, attempts_schema_valid, trajectories_schema_valid,
    enough_verified_steps,
)  # fmt: skip
