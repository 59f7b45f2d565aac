"""Puts assets, checks, resources, jobs, schedules and sensors together; tests and other programs may replace resources.

https://docs.dagster.io/guides/build/projects-and-components/definitions
"""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.closed_loop import closed_loop_assets
from assets.datasets import dataset_assets, dataset_checks
from assets.harbor import harbor_assets
from assets.harbor_checks import harbor_checks
from assets.prompts import prompt_assets
from assets.reports.marts import report_models
from assets.reports.pages import report_assets
from assets.stages import STAGE_CHECKS, stage_assets
from assets.training import training_assets
from graftline.paths import find_root
from graftline.runtime.contest_names import contest_names
from graftline.runtime.deployments import deployment_names
from graftline.runtime.evaluations import evaluated_names, evaluation_names
from graftline.runtime.manifests import load_manifest
from graftline.runtime.prompt_files import prompt_names
from graftline.runtime.settings import load_settings
from graftline.runtime.training_data import lineage_recipes
from orchestration.executors import executor_of
from orchestration.jobs import closed_loop_job, harbor_jobs, lineage_job, prompt_job, training_job
from orchestration.schedules import daily_lineage
from resources.dbt import open_dbt
from resources.lineage import LineageResource
from resources.warehouse import Warehouse
from sensors.actor_health import actor_health
from sensors.dataset_versions import dataset_versions
from sensors.harbor_builds import harbor_builds
from sensors.lost_runs import lost_runs
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
        return _definitions(resources or {})


def _definitions(resources: Mapping[str, Any]) -> dg.Definitions:
    root = find_root(dict(os.environ), start=CHECKOUT)
    lineage = LineageResource(root=str(root), manifest=os.environ.get("GRAFTLINE_MANIFEST", "local"))
    catalogue = load_settings(lineage.paths).catalogue
    recipes = lineage_recipes(lineage.paths)
    training = training_job(recipes)
    deployments, evaluated = deployment_names(lineage.paths), evaluated_names(lineage.paths)
    contests = contest_names(lineage.paths)
    harbor = harbor_jobs(deployments, evaluation_names(lineage.paths))
    prompts = prompt_names(lineage.paths)
    closed_loop = closed_loop_assets(lineage.paths)
    return dg.Definitions(
        assets=[
            *dataset_assets(catalogue),
            *stage_assets(catalogue),
            report_models(catalogue),
            *report_assets(),
            *training_assets(recipes),
            *prompt_assets(prompts),
            *closed_loop,
            *harbor_assets(deployments, evaluated, contests, recipes),
        ],
        asset_checks=[
            *(check for name in catalogue.sources for check in dataset_checks(name)),
            *STAGE_CHECKS,
            *harbor_checks(evaluated, contests),
        ],
        jobs=[lineage_job, *training, *harbor, *prompt_job(prompts), *closed_loop_job(closed_loop)],
        schedules=[daily_lineage(lineage_job.name, catalogue)],
        sensors=[
            dataset_versions(lineage_job.name, catalogue, lineage),
            actor_health(lineage),
            lost_runs(),
            *(training_runs(job.name, lineage, recipes) for job in training),
            *([harbor_builds(harbor, lineage, deployments, evaluated)] if deployments else []),
        ],
        resources={
            "lineage": lineage,
            "dbt": open_dbt(),
            "warehouse": Warehouse(path=str(lineage.paths.warehouse)),
            **resources,
        },
        executor=executor_of(load_manifest(lineage.paths, lineage.manifest).executor),
    )
