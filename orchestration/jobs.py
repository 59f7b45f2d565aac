"""The jobs. `lineage` brings everything up to trajectories and reports up to date, `training` the adapters of recipes,
`harbor` the deployments of `configs/harbor` and their instances, `evaluations` what those are worth, `prompts` the prompts of
`configs/prompts`, `closed_loop` all from splits to adapters that are judged.

They are six, for a run is over partitions of one kind. https://docs.dagster.io/guides/build/jobs
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.closed_loop import GROUP as CLOSED_LOOP
from assets.harbor import DEPLOYED, EVALUATION, EVALUATIONS
from assets.harbor import GROUP as HARBOR
from assets.prompts import GROUP as PROMPTS
from assets.prompts import NAME as OPTIMIZED_PROMPT
from assets.training import GROUP as TRAINING
from assets.training import NAMES

lineage_job = dg.define_asset_job(
    "lineage",
    selection=dg.AssetSelection.all() - dg.AssetSelection.groups(TRAINING, HARBOR, EVALUATIONS, PROMPTS, CLOSED_LOOP),
)


def training_job(recipes: Sequence[str]) -> list[Any]:
    """Return the job over the adapters of `recipes`; none where there are none, for a job is of something."""
    if not recipes:
        return []
    return [dg.define_asset_job("training", selection=[*NAMES])]


def harbor_jobs(names: Sequence[str], evaluated: Sequence[str]) -> list[Any]:
    """Return the job over deployments called `names`, and that over the evaluations of `evaluated`, where there are any."""
    jobs = []
    if names:
        jobs.append(dg.define_asset_job("harbor", selection=[*DEPLOYED]))
    if evaluated:
        jobs.append(dg.define_asset_job("evaluations", selection=[EVALUATION]))
    return jobs


def prompt_job(names: Sequence[str]) -> list[Any]:
    """Return the job over the prompts called `names`; none where there are none."""
    if not names:
        return []
    return [dg.define_asset_job("prompts", selection=[OPTIMIZED_PROMPT])]


def closed_loop_job(assets: Sequence[Any]) -> list[Any]:
    """Return the job over the closed loop; none where there is none."""
    return [dg.define_asset_job("closed_loop", selection=[*assets])] if assets else []
