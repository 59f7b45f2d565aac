"""The dbt models as assets, their tests as asset checks; built only when what they read changed.

dbt builds into a fresh DuckDB file, which then takes the place of the old one: a failed build leaves the old one
readable. https://docs.dagster.io/integrations/libraries/dbt
"""

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DagsterDbtTranslator, DagsterDbtTranslatorSettings, DbtProject, dbt_assets

from assets.outcome import readable_failure
from graftline.datasets.catalogue import Catalogue
from graftline.hashing import digest, sha256_file
from graftline.record import Built, Contents, Request, verified
from graftline.runtime.lineage import Lineage
from resources.dbt import PROJECT, Dbt

GROUP = "reports"


def report_models(catalogue: Catalogue) -> dg.AssetsDefinition:
    """Return the models of the dbt project.

    Raises:
        dagster.Failure: the project was not parsed yet.
    """
    if not PROJECT.manifest_path.exists():
        raise dg.Failure(f"{PROJECT.manifest_path}: no such file; write it with `python -m resources.dbt`")

    @dbt_assets(
        manifest=PROJECT.manifest_path,
        project=PROJECT,
        name="report_models",
        dagster_dbt_translator=_Translator(catalogue),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool="duckdb",
    )
    def models(context: dg.AssetExecutionContext, dbt: dg.ResourceParam[Dbt], lineage: dg.ResourceParam[Lineage]) -> Iterator[Any]:
        events: list[Any] = []

        def make(folder: Path) -> Contents:
            places = {"data": str(lineage.paths.data), "warehouse": str(folder / lineage.paths.warehouse.name)}
            arguments = ["build", "--vars", json.dumps(places)]
            events.extend(dbt.cli(arguments, context=context, target_path=PROJECT.project_dir / "target" / "run").stream())
            return Contents({"rows": len(context.selected_asset_keys)})

        with readable_failure():
            built = warehouse(lineage, make)
        context.log.info(f"report models: {f'made: {built.reason}' if built.is_fresh else 'unchanged'}")
        yield from events or _unchanged(context)

    return models


def _unchanged(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Yield a result without news for every selected model, after those of the models it reads."""
    waiting = set(context.selected_asset_keys)
    upstream = context.assets_def.asset_deps
    while waiting:
        ready = sorted(key for key in waiting if not upstream[key] & waiting)
        yield from (dg.MaterializeResult(asset_key=key) for key in ready)
        waiting -= set(ready)
    # a warehouse in which a test failed was never put in place
    passed = {"state": "unchanged since it passed"}
    for check in sorted(context.selected_asset_check_keys):
        yield dg.AssetCheckResult(passed=True, asset_key=check.asset_key, check_name=check.name, metadata=passed)


def warehouse(lineage: Lineage, make: Callable[[Path], Contents]) -> Built:
    """Return the warehouse, made by `make` unless inputs, models and tools are as they were."""
    stages = {"processed": "splits", "trajectories/parquet": "trajectories"}
    inputs = {
        f"{kind}/{language}/{split}": verified(folder, kind).identity
        for where, kind in stages.items()
        for language, split in lineage.partitions()
        if (folder := lineage.paths.partition(where, language, split)).exists()
    }
    for name in sorted(lineage.catalogue.datasets):
        inputs[f"normalized/{name}"] = verified(lineage.paths.normalized(name), "normalized").identity
    tools = {tool: version(tool) for tool in ("dbt-core", "dbt-duckdb", "duckdb")}
    request = Request("report_models", "warehouse", _models_version(), inputs, tools)
    return lineage.build(lineage.paths.warehouse.parent, request, make)


def _models_version() -> str:
    folder = PROJECT.project_dir
    files = [path for part in ("models", "tests") for path in sorted((folder / part).rglob("*")) if path.is_file()]
    sums = {str(path.relative_to(folder)): sha256_file(path) for path in [*files, folder / "dbt_project.yml"]}
    return digest(sums)[:16]


class _Translator(DagsterDbtTranslator):
    """Puts the models into one group, and lets those that read every dataset depend on every dataset."""

    def __init__(self, catalogue: Catalogue) -> None:
        # steps and trajectories are two files of one asset
        super().__init__(settings=DagsterDbtTranslatorSettings(enable_duplicate_source_asset_keys=True))
        self._datasets = sorted(catalogue.datasets)

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        whole = dg.AssetKey("normalized")
        deps = [dep for dep in spec.deps if dep.asset_key != whole]
        if len(deps) < len(list(spec.deps)):
            deps += [dg.AssetDep(["normalized", name]) for name in self._datasets]
        return spec.replace_attributes(deps=deps, group_name=GROUP, owners=["team:data"])
