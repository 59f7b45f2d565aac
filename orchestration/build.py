"""Puts assets, checks, resources, jobs, schedules and sensors together; tests and other programs may replace resources.

https://docs.dagster.io/guides/build/projects-and-components/definitions
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.closed_loop import define_closed_loop_assets
from assets.datasets import changes_schema_valid, dataset_assets, dataset_checks, source_assets
from assets.harbor import harbor_assets
from assets.harbor_checks import harbor_checks
from assets.prompts import prompt_assets
from assets.reports.adapters import adapter_report
from assets.reports.marts import report_models
from assets.reports.pages import report_assets
from assets.stages import STAGE_CHECKS, stage_assets
from assets.training import training_assets, training_checks
from graftline.core.paths import Paths, find_root
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.model_evaluation import model_evaluation_names
from graftline.pipeline.stages.optimized_prompt import prompt_names
from orchestration.executors import executor_of
from orchestration.jobs import (
    define_closed_loop_job,
    deployment_evaluation_job,
    evaluation_job,
    harbor_job,
    lineage_job,
    prompts_job,
    training_job,
)
from orchestration.schedules import daily_lineage
from resources.artifacts import Artifacts
from resources.dbt import open_dbt
from resources.forms import fill_form
from resources.systems import systems_of
from resources.warehouse import Warehouse
from sensors.actor_health import actor_health
from sensors.closed_loop import define_closed_loop_sensor
from sensors.dataset_versions import dataset_versions
from sensors.harbor_builds import harbor_builds
from sensors.lost_runs import lost_runs
from sensors.partitions import partitions
from sensors.training_runs import training_runs

CHECKOUT = Path(__file__).resolve().parents[1]


def build_definitions(resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Return the definitions of the checkout, or of the folder that `GRAFTLINE_ROOT` names.

    Raises:
        ConfigError: a configuration file does not fit.
    """
    with warnings.catch_warnings():
        # without this policy a range of partitions cannot be one run
        warnings.filterwarnings("ignore", "Parameter `backfill_policy`", dg.BetaWarning)
        # what a dataset is at its source is observed, and not made
        warnings.filterwarnings("ignore", "Function `multi_observable_source_asset`", dg.BetaWarning)
        return _definitions(resources or {})


def _definitions(resources: Mapping[str, Any]) -> dg.Definitions:
    root = find_root(dict(os.environ), start=CHECKOUT)
    paths, name = Paths(root), os.environ.get("GRAFTLINE_MANIFEST", "local")
    catalog = load_settings(paths).catalog
    prompts = prompt_names(paths)
    closed_loop = define_closed_loop_assets(paths)
    jobs = [
        lineage_job,
        training_job,
        harbor_job,
        deployment_evaluation_job,
        evaluation_job,
        *prompts_job(prompts),
        *define_closed_loop_job(closed_loop),
    ]
    return dg.Definitions(
        assets=[
            *source_assets(catalog),
            *dataset_assets(catalog),
            *stage_assets(catalog),
            report_models(catalog),
            *report_assets(),
            *training_assets(),
            adapter_report(model_evaluation_names(paths)),
            *prompt_assets(prompts),
            *closed_loop,
            *harbor_assets(),
        ],
        asset_checks=[
            *(check for name in catalog.sources for check in dataset_checks(name)),
            changes_schema_valid,
            *STAGE_CHECKS,
            *training_checks(),
            *harbor_checks(),
        ],
        jobs=jobs,
        schedules=[daily_lineage(lineage_job.name, catalog)],
        sensors=[
            dataset_versions(lineage_job.name, catalog),
            actor_health(),
            lost_runs(),
            partitions(),
            training_runs(training_job.name),
            *([define_closed_loop_sensor(jobs)] if closed_loop else []),
            harbor_builds([harbor_job, deployment_evaluation_job]),
        ],
        resources={**resources_for(paths, name), **resources},
        executor=executor_of(load_manifest(paths, name).executor),
    )


def resources_for(paths: Paths, manifest: str) -> dict[str, Any]:
    """Return the resources of the deployment that a manifest wires.

    Raises:
        ConfigError: there is no such manifest, or it does not fit.
    """
    wired = load_manifest(paths, manifest)
    return {
        "artifacts": Artifacts(root=str(paths.root), manifest=manifest, settings=fill_form(wired.artifacts)),
        **systems_of(wired, paths, os.environ),
        "warehouse": Warehouse(path=str(paths.warehouse)),
        "dbt": open_dbt(),
    }
