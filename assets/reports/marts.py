"""The dbt models as assets, their tests as asset checks; built only when what they read changed.

dbt builds into a fresh DuckDB file, which then takes the place of the old one: a failed build leaves the old one
readable. https://docs.dagster.io/integrations/libraries/dbt
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg

from assets.descriptions import WEEKLY, key_of
from assets.outcome import readable_failure
from assets.reports.sources import Sources, open_sources
from graftline.core.build import Built, Contents, Request
from graftline.core.errors import DataError
from graftline.core.hashing import digest, sha256_file
from graftline.core.markdown import table
from graftline.datasets.catalog import Catalog
from graftline.pipeline.lineage import Lineage
from resources import warehouse as warehouse_module
from resources.artifacts import Artifacts
from resources.dbt import (
    PROJECT,
    DagsterDbtTranslator,
    DagsterDbtTranslatorSettings,
    Dbt,
    DbtProject,
    dbt_assets,
)
from resources.warehouse import Warehouse, create_sources, drop_sources

GROUP = "reports"
_OF_DBT = ("dagster_dbt/", "dagster-dbt/")
"""Beginnings of the keys by which dagster-dbt finds its way from an asset to a model; we give it the manifest ourselves."""
_TABLE = "dagster/table_name"
_MOST_ROWS, _MOST_CHARACTERS = 10, 60
_SHORT = ("VARCHAR", "BIGINT", "INTEGER", "HUGEINT", "DOUBLE", "BOOLEAN", "DATE", "TIMESTAMP")
"""Types of columns that are shown; lists and objects are left to who asks for them."""


WHEN_READY = dg.AutomationCondition.eager()
"""Reports cost nothing but time: they follow what they are about, once their automation is switched on."""


def report_models(catalog: Catalog) -> dg.AssetsDefinition:
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
        dagster_dbt_translator=_Translator(catalog),
        backfill_policy=dg.BackfillPolicy.single_run(),
        pool="duckdb",
    )
    def models(
        context: dg.AssetExecutionContext,
        dbt: dg.ResourceParam[Dbt],
        artifacts: Artifacts,
        warehouse: dg.ResourceParam[Warehouse],
    ) -> Iterator[Any]:
        lineage, failed = artifacts.stages({}), dict[str, str]()

        def make(folder: Path) -> Contents:
            for leftover in folder.iterdir():  # by a killed build: the file, what it spilled, what dbt wrote
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            path = folder / lineage.paths.warehouse.name
            create_sources(path, sources.queries)
            # without the context: it would hand on what is selected, and a file with a part of the models would
            # take the place of a whole one
            build = dbt.cli(
                ["build", "--vars", json.dumps({"warehouse": str(path)})],
                manifest=PROJECT.manifest_path,
                target_path=folder / ".dbt",
                raise_on_error=False,
            ).wait()
            failed.update(read_failures(folder / ".dbt" / "run_results.json"))
            if not build.is_successful():
                causes = [f"{name} ({message})" for name, message in failed.items()]
                raise DataError(f"dbt build failed: {', '.join(causes) or 'see its messages above'}")
            drop_sources(path)
            return Contents({"rows": len(context.assets_def.keys)})

        try:
            with readable_failure():
                sources = open_sources(lineage)
                built = build_warehouse(lineage, sources, make)
        except dg.Failure:
            # of the others nothing is known: dbt skips what stands behind a failure, or was never started
            yield from (check for check in _checks(context, failed) if not check.passed)
            raise
        context.log.info(f"report models: {f'made: {built.reason}' if built.is_fresh else 'unchanged'}")
        yield from _results(context, warehouse)
        # a warehouse in which a test failed is never put in place
        yield from _checks(context, {})

    return models


def _results(context: dg.AssetExecutionContext, warehouse: Warehouse) -> Iterator[dg.MaterializeResult[Any]]:
    """Yield a result with its row count for every selected model, after those of the models it reads."""
    waiting = set(context.selected_asset_keys)
    upstream = context.assets_def.asset_deps
    with warehouse.open() as rows:
        shown = {key: _shown(rows, warehouse.path, key.path[-1]) for key in waiting}
    while waiting:
        ready = sorted(key for key in waiting if not upstream[key] & waiting)
        for key in ready:
            yield dg.MaterializeResult(asset_key=key, metadata=shown[key])
        waiting -= set(ready)


def _shown(rows: Callable[[str], list[dict[str, Any]]], path: str, model: str) -> dict[str, Any]:
    """Return what there is to know of a model: its columns, how many rows it has, and the first of them."""
    [counted] = rows(f"select count(*) as number from {model}")
    columns = rows(f"select column_name, column_type as data_type from (describe {model})")
    shown = ", ".join(f'"{column["column_name"]}"' for column in columns if column["data_type"] in _SHORT)
    first = rows(f"select {shown} from {model} limit {_MOST_ROWS}") if shown else []
    return {
        "dagster/row_count": counted["number"],
        "dagster/column_schema": dg.TableSchema(
            [dg.TableColumn(column["column_name"], column["data_type"].lower()) for column in columns]
        ),
        "warehouse": dg.MetadataValue.path(path),
        "first_rows": dg.MetadataValue.md(
            table([{name: _cell(value) for name, value in row.items()} for row in first])
        ),
    }


def _cell(value: Any) -> Any:
    return value if not isinstance(value, str) or len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"


def _checks(context: dg.AssetExecutionContext, failed: Mapping[str, str]) -> Iterator[dg.AssetCheckResult]:
    """Yield a result for every selected dbt test, all of which passed but `failed`: messages by name."""
    for check in sorted(context.selected_asset_check_keys):
        message = failed.get(check.name)
        model = check.asset_key.to_user_string()
        description = f"{model}: {message}; materialize what the model reads again, the warehouse is as it was before"
        yield dg.AssetCheckResult(
            passed=message is None,
            description=None if message is None else description,
            asset_key=check.asset_key,
            check_name=check.name,
        )


def read_failures(results: Path) -> dict[str, str]:
    """Return what dbt says of each node that failed, by its name, from the `run_results.json` of a build."""
    if not results.exists():
        return {}
    nodes = json.loads(results.read_text("utf-8"))["results"]
    return {
        node["unique_id"].split(".")[2]: " ".join((node["message"] or node["status"]).split())
        for node in sorted(nodes, key=lambda node: str(node["unique_id"]))
        if node["status"] in ("fail", "error")
    }


def build_warehouse(lineage: Lineage, sources: Sources, make: Callable[[Path], Contents]) -> Built:
    """Return the warehouse, made by `make` unless inputs, models and tools are as they were."""
    tools = {tool: version(tool) for tool in ("dbt-core", "dbt-duckdb", "duckdb")}
    request = Request("report_models", "warehouse", _models_version(), sources.inputs, {**sources.config, **tools})
    return lineage.build(lineage.paths.warehouse.parent, request, make)


def _models_version() -> str:
    folder = PROJECT.project_dir
    files = [path for part in ("models", "tests") for path in sorted((folder / part).rglob("*")) if path.is_file()]
    files += [folder / name for name in ("dbt_project.yml", "profiles.yml", "sources.py")]
    files.append(Path(warehouse_module.__file__))
    return digest([[path.parent.name, path.name, sha256_file(path)] for path in files])[:16]


class _Translator(DagsterDbtTranslator):
    """Puts the models into one group, and lets those that read every dataset depend on every dataset."""

    def __init__(self, catalog: Catalog) -> None:
        # steps and trajectories are two files of one asset
        super().__init__(settings=DagsterDbtTranslatorSettings(enable_duplicate_source_asset_keys=True))
        self._datasets = list(catalog.sources)

    def get_asset_spec(self, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None) -> dg.AssetSpec:
        spec = super().get_asset_spec(manifest, unique_id, project)
        shown = {name: value for name, value in spec.metadata.items() if not name.startswith(_OF_DBT)}
        # the project is parsed without the file that the models are built into
        shown[_TABLE] = str(shown[_TABLE]).removeprefix("memory.")
        whole = dg.AssetKey("normalized")
        deps = [dep for dep in spec.deps if dep.asset_key != whole]
        if len(deps) < len(list(spec.deps)):
            deps += [dg.AssetDep(key_of("normalized", name)) for name in self._datasets]
        return spec.replace_attributes(
            deps=deps,
            metadata=shown,
            group_name=GROUP,
            owners=["team:data"],
            automation_condition=WHEN_READY,
            freshness_policy=WEEKLY,
        )

    def get_asset_check_spec(
        self, asset_spec: dg.AssetSpec, manifest: Mapping[str, Any], unique_id: str, project: DbtProject | None
    ) -> dg.AssetCheckSpec | None:
        """Describe the tests that dbt makes of a column, which have no words of their own."""
        spec = super().get_asset_check_spec(asset_spec, manifest, unique_id, project)
        test = manifest["nodes"][unique_id].get("test_metadata")
        return spec._replace(description=_description_of(test)) if spec and test else spec


def _description_of(test: Mapping[str, Any]) -> str:
    """Return what a test that comes with dbt holds a column to (https://docs.getdbt.com/docs/build/data-tests)."""
    arguments = test["kwargs"]
    column = f"`{arguments['column_name']}`"
    match test["name"]:
        case "not_null":
            return f"Every row has {column}."
        case "unique":
            return f"No two rows have the same {column}."
        case "accepted_values":
            return f"{column} is one of {', '.join(map(str, arguments['values']))}."
        case "relationships":
            model = arguments["to"].partition("'")[2].partition("'")[0]
            return f"Every {column} is a `{arguments['field']}` of `{model}`."
        case name:
            return f"{column} passes the test {name} of dbt."
