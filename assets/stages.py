"""The partitioned stages: `splits`, `synthetic_rules`, `tasks`, `teacher_trajectories`, `trajectories`, and their checks.

Not here: what a stage does (`graftline.runtime.lineage`). https://docs.dagster.io/guides/build/assets
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field

from assets.outcome import materialized_partitions, readable_failure
from assets.partitions import partitions_of
from graftline.actions.astgrep import Language
from graftline.datasets.catalogue import Catalogue
from graftline.datasets.division import Split
from graftline.record import Built
from graftline.runtime import checks
from graftline.runtime.lineage import Lineage
from graftline.runtime.settings import stage_code


def stage_assets(catalogue: Catalogue) -> list[dg.AssetsDefinition]:
    """Return the partitioned stages over the datasets of `catalogue`."""
    normalized = [dg.AssetKey(["normalized", name]) for name in catalogue.sources]
    return [
        _stage(catalogue, Lineage.splits, ["division", *normalized], "datasets", {"jsonl", "parquet"}),
        _stage(catalogue, Lineage.synthetic_rules, [_snippets(catalogue)], "tasks", {"jsonl", "astgrep"}),
        _stage(catalogue, Lineage.tasks, ["splits", "synthetic_rules"], "tasks", {"jsonl"}),
        _teacher_trajectories(catalogue),
        _stage(catalogue, Lineage.trajectories, ["tasks", "teacher_trajectories"], "trajectories", {"parquet"}),
    ]


def _snippets(catalogue: Catalogue) -> dg.AssetDep:
    """Return the splits that synthetic edits are made on: those of the language, and of others that are also in it."""
    used_by: dict[str, list[str]] = {language: [] for language in catalogue.languages}
    for language in catalogue.languages:
        for of in catalogue.snippets_of(language):
            used_by[of].append(language)
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
    catalogue: Catalogue,
    make: Callable[[Lineage, Language, Split], Built],
    deps: Sequence[str | dg.AssetKey | dg.AssetDep],
    group: str,
    kinds: set[str],
) -> dg.AssetsDefinition:
    name = make.__name__

    @dg.asset(
        name=name,
        deps=deps,
        partitions_def=partitions_of(catalogue),
        group_name=group,
        code_version=stage_code(name),
        kinds=kinds,
        owners=["team:data"],
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def stage(context: dg.AssetExecutionContext, lineage: dg.ResourceParam[Lineage]) -> dg.MaterializeResult[Any]:
        return materialized_partitions(context, lineage, partial(make, lineage))

    return stage


class Teaching(dg.Config):
    """Which teacher makes the attempts of a run, and where."""

    ports: dict[str, Any] = Field(
        default={},
        description="Ports of the manifest to replace, as `--port` does: {teacher: openai, chat_model.fleet: gpu,"
        " queue: redis}. With the queue `redis`, workers make the attempts (`graftline actor run`).",
    )


def _teacher_trajectories(catalogue: Catalogue) -> dg.AssetsDefinition:
    make = Lineage.teacher_trajectories

    @dg.asset(
        name=make.__name__,
        deps=["tasks"],
        partitions_def=partitions_of(catalogue),
        group_name="trajectories",
        code_version=stage_code(make.__name__),
        kinds={"jsonl", "astgrep"},
        owners=["team:data"],
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def teacher_trajectories(
        context: dg.AssetExecutionContext, config: Teaching, lineage: dg.ResourceParam[Lineage]
    ) -> dg.MaterializeResult[Any]:
        with readable_failure(), lineage.with_ports(config.ports) as taught:
            return materialized_partitions(context, taught, taught.teacher_trajectories)

    return teacher_trajectories


@dg.asset_check(asset="splits", name="schema_valid", blocking=True)
def splits_schema_valid(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
    """Every line of every split is an edit, every Parquet file has the documented columns."""
    faults = checks.invalid_splits(lineage)
    return dg.AssetCheckResult(passed=not faults, metadata={"faults": faults})


@dg.asset_check(asset="splits", blocking=True)
def no_row_in_two_splits(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
    """No edit, repository or package, commit, or cluster of near-duplicates is in two splits."""
    faults = checks.leaks(lineage)
    return dg.AssetCheckResult(passed=not faults, metadata={"leaks": faults})


@dg.asset_check(asset="trajectories", name="schema_valid", blocking=True)
def trajectories_schema_valid(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
    """Every Parquet file has the documented columns, every reward is missing or between 0 and 1."""
    faults = checks.invalid_trajectories(lineage)
    return dg.AssetCheckResult(passed=not faults, metadata={"faults": faults})


@dg.asset_check(asset="trajectories", blocking=True)
def enough_verified_steps(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
    """There are as many verified steps as `configs/trajectories.yaml` requires."""
    found, required = checks.verified_steps(lineage), lineage.settings.trajectories.least_verified_steps
    return dg.AssetCheckResult(passed=found >= required, metadata={"verified_steps": found, "required": required})


STAGE_CHECKS = (splits_schema_valid, no_row_in_two_splits, trajectories_schema_valid, enough_verified_steps)
