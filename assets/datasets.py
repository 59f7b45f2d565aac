"""`raw_<dataset>` and `normalized_<dataset>` for each dataset in use, then `division`, `repository_changes` and
`label_tasks` over all of them.

Not here: reading rows (`graftline.datasets.readers`) and what is dropped (`graftline.datasets.ingest`).
https://docs.dagster.io/guides/build/assets
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg

from assets.checks import evaluate_check, result_of_faults
from assets.descriptions import WEEKLY, columns_of, describe_asset, fields_of, key_of, source_key
from assets.links import shown_at, source_page
from assets.outcome import DATA_VERSION, materialize, metadata_of, readable_failure
from graftline.core.build import Built
from graftline.datasets.catalog import Catalog, Dataset
from graftline.datasets.edit import DIVISION, NORMALIZED
from graftline.datasets.losses import main_losses
from graftline.datasets.repository_changes.change import CHANGES
from graftline.pipeline.checks import invalid_changes, invalid_edits
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.normalized import normalized as normalized_stage
from graftline.pipeline.stages.raw import raw as raw_stage
from graftline.pipeline.stages.repository_changes import repository_changes
from graftline.pipeline.stages.splits import division
from graftline.pipeline.stages.tasks import label_tasks
from graftline.rollouts.task import OpenTask
from resources.artifacts import Artifacts, needs, stages_of

_INPUT_VERSION = "dagster/input_data_version/"
"""The tag of an event that says of which version of an input it was made, before the key of that."""


def dataset_assets(catalog: Catalog) -> list[dg.AssetsDefinition]:
    """Return the assets of the datasets in use, and those over all of them together."""
    evaluations = [_raw(name, dataset) for name, dataset in catalog.used.items() if dataset.is_evaluation]
    assets = list(evaluations)
    for name, dataset in catalog.sources.items():
        raw = _raw(name, dataset)
        assets += [raw, _define_normalized(name, dataset, [raw, *evaluations])]
    normalized = [key_of("normalized", name) for name in catalog.sources]
    return [
        *assets,
        _over_all(division, normalized, "datasets", {"parquet"}, columns_of(DIVISION)),
        _over_all(repository_changes, ["division", *normalized], "datasets", {"jsonl", "parquet"}, columns_of(CHANGES)),
        _over_all(label_tasks, normalized, "tasks", {"jsonl"}, fields_of(OpenTask)),
    ]


def source_assets(catalog: Catalog) -> list[dg.AssetsDefinition]:
    """Return the datasets in use as their sources have them: made elsewhere, and observed by the sensor
    `dataset_versions`.
    """
    return [_source(name, dataset) for name, dataset in catalog.used.items()]


def _source(name: str, dataset: Dataset) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        source_key(name),
        group_name="datasets",
        kinds={_kind(dataset)},
        owners=["team:data"],
        metadata=_links(dataset),
        description=f"{name} at its source, or the mirror. Its data version is the revision that a run would fetch.",
    )

    @dg.multi_observable_source_asset(
        name=f"source_{name}", specs=[spec], required_resource_keys=needs("dataset_sources")
    )
    def source(context: dg.AssetExecutionContext) -> dg.ObserveResult:
        hub = stages_of(context).ports.dataset_hub
        with readable_failure():
            return dg.ObserveResult(spec.key, data_version=dg.DataVersion(hub.revision(name, dataset)))

    return source


def _kind(dataset: Dataset) -> str:
    return "huggingface" if (dataset.url or "").startswith("hf://") else "file"


def _raw(name: str, dataset: Dataset) -> dg.AssetsDefinition:
    def shown(built: Built) -> Mapping[str, Any]:
        return {**metadata_of(built), **_links(dataset)}

    @dg.asset(
        key=key_of("raw", name),
        deps=[source_key(name)],
        group_name="datasets",
        code_version=stage_code("raw", dataset.reader),
        kinds={_kind(dataset)},
        owners=["team:data"],
        tags={"license": "per-row", "dataset": name},
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={
            **_links(dataset),
            "version": dataset.version,
            "license": dataset.license,
            **describe_asset(raw_stage),
        },
        required_resource_keys=needs("dataset_sources"),
        # one that is pinned has nothing new to offer
        freshness_policy=WEEKLY if dataset.follow else None,
        description=f"The untouched files of {name}, with source, version, license and checksum.",
    )
    def raw(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        lineage = stages_of(context)
        result = materialize(context, lineage, lambda: raw_stage(lineage, name), shown)
        revision = lineage.record(lineage.paths.raw(name)).inputs.get("source")
        if not revision:
            return result
        # what was fetched may be newer than what was seen when the run began
        context.log_event(dg.AssetObservation(source_key(name), tags={DATA_VERSION: revision}))
        tags = {f"{_INPUT_VERSION}{source_key(name).to_user_string()}": revision}
        return dg.MaterializeResult(metadata=result.metadata, data_version=result.data_version, tags=tags)

    return raw


def _define_normalized(name: str, dataset: Dataset, deps: list[dg.AssetsDefinition]) -> dg.AssetsDefinition:
    @dg.asset(
        key=key_of("normalized", name),
        deps=deps,
        group_name="datasets",
        code_version=stage_code("normalized", dataset.reader),
        kinds={"jsonl", "parquet"},
        owners=["team:data"],
        tags={"dataset": name},
        metadata=describe_asset(normalized_stage, columns_of(NORMALIZED)),
        required_resource_keys=needs(),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=f"The rows of {name} as edits and labels; those that are neither are counted, with file and line.",
    )
    def asset(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        lineage = stages_of(context)
        return materialize(context, lineage, lambda: normalized_stage(lineage, name))

    return asset


def _links(dataset: Dataset) -> dict[str, Any]:
    """Return where people read about a dataset, and accept its terms."""
    source = dataset.url or "unknown"
    terms = {"terms_page": shown_at(dataset.terms)} if dataset.terms else {}
    return {"source": shown_at(source_page(source), source), **terms}


def _over_all(
    make: Callable[[Lineage], Built],
    deps: Sequence[str | dg.AssetKey],
    group: str,
    kinds: set[str],
    rows: dg.TableSchema,
) -> dg.AssetsDefinition:
    @dg.asset(
        name=make.__name__,
        deps=deps,
        group_name=group,
        code_version=stage_code(make.__name__),
        kinds=kinds,
        owners=["team:data"],
        metadata=describe_asset(make, rows),
        required_resource_keys=needs(),
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def over_all(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        lineage = stages_of(context)
        return materialize(context, lineage, lambda: make(lineage))

    return over_all


def dataset_checks(name: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks that every line of a normalized dataset is an edit or a label, and that most rows are kept."""

    @dg.asset_check(asset=key_of("normalized", name), name="schema_valid", blocking=True)
    def schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        """Every line is an edit, and every line of `labels.jsonl` a label."""
        remedy = f"delete the folder and materialize normalized_{name} again"
        return evaluate_check(context, lambda: result_of_faults(invalid_edits(artifacts.stages({}), name), remedy))

    @dg.asset_check(asset=key_of("normalized", name), name="most_rows_kept")
    def most_rows_kept(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        """No more than half of the rows are rejected for one reason, when they are fetched or normalized."""

        def evaluate() -> dg.AssetCheckResult:
            lineage = artifacts.stages({})
            losses = main_losses(
                lineage.record(folder) for folder in (lineage.paths.raw(name), lineage.paths.normalized(name))
            )
            return dg.AssetCheckResult(
                passed=not losses,
                # the rows that are kept are as good as others
                severity=dg.AssetCheckSeverity.WARN,
                description=" ".join(f"{loss}." for loss in losses) or None,
                metadata={loss.reason: loss.rejected for loss in losses},
            )

        return evaluate_check(context, evaluate)

    return [schema_valid, most_rows_kept]


@dg.asset_check(asset="repository_changes", name="schema_valid", blocking=True)
def changes_schema_valid(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
    """Every line is a change of a repository, in the one split that its repository has among changes and edits."""
    remedy = "materialize division and repository_changes again"
    return evaluate_check(context, lambda: result_of_faults(invalid_changes(artifacts.stages({})), remedy))
