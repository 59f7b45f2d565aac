"""`raw/<dataset>` and `normalized/<dataset>`: two assets and a check for each entry of `configs/datasets.yaml`.

Not here: reading rows (`graftline.datasets.sources`) and what is dropped (`graftline.datasets.ingest`).
https://docs.dagster.io/guides/build/assets
"""

from typing import Any

import dagster as dg

from assets.outcome import materialized
from graftline.datasets.catalogue import Dataset
from graftline.runtime.checks import invalid_edits
from graftline.runtime.lineage import Lineage
from graftline.runtime.settings import stage_code


def dataset_assets(name: str, dataset: Dataset) -> list[dg.AssetsDefinition]:
    """Return the two assets of the dataset called `name`."""

    @dg.asset(
        key=["raw", name],
        group_name="datasets",
        code_version=stage_code("raw"),
        kinds={"jsonl"},
        owners=["team:data"],
        tags={"licence": "per-row"},
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"home": dataset.home, "version": dataset.version, "license": dataset.license},
        description=f"The untouched files of {name}, with source, version, licence and checksum.",
    )
    def raw(context: dg.AssetExecutionContext, lineage: dg.ResourceParam[Lineage]) -> dg.MaterializeResult[Any]:
        return materialized(context, lineage, lambda: lineage.raw(name))

    @dg.asset(
        key=["normalized", name],
        deps=[raw],
        group_name="datasets",
        code_version=stage_code("normalized"),
        kinds={"jsonl", "parquet"},
        owners=["team:data"],
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=f"The rows of {name} as edits; those that are none are counted, with file and line.",
    )
    def normalized(context: dg.AssetExecutionContext, lineage: dg.ResourceParam[Lineage]) -> dg.MaterializeResult[Any]:
        return materialized(context, lineage, lambda: lineage.normalized(name))

    return [raw, normalized]


def dataset_check(name: str) -> dg.AssetChecksDefinition:
    """Return the check that every line of the normalised dataset is an edit."""

    @dg.asset_check(asset=dg.AssetKey(["normalized", name]), name="schema_valid", blocking=True)
    def schema_valid(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
        faults = invalid_edits(lineage, name)
        return dg.AssetCheckResult(passed=not faults, metadata={"faults": faults})

    return schema_valid
