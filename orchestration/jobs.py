"""The jobs: what is brought up to date together. A run is over partitions of one kind, so there is one for each kind.

https://docs.dagster.io/guides/build/jobs
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.closed_loop import GROUP as CLOSED_LOOP
from assets.harbor import DEPLOYED, DEPLOYMENT_EVALUATION, EVALUATION, EVALUATION_GROUP
from assets.harbor import GROUP as HARBOR
from assets.prompts import GROUP as PROMPTS
from assets.prompts import NAME as OPTIMIZED_PROMPT
from assets.training import GROUP as TRAINING
from assets.training import NAMES

lineage_job = dg.define_asset_job(
    "lineage",
    selection=dg.AssetSelection.all()
    - dg.AssetSelection.groups(TRAINING, HARBOR, EVALUATION_GROUP, PROMPTS, CLOSED_LOOP),
    description="From the files of datasets to trajectories and reports. Trains nothing, and asks no service.",
)

training_job = dg.define_asset_job(
    "training",
    selection=[*NAMES, "reports/adapters"],
    description="What a recipe with `data` trains on, its adapter, tried on held-out tasks, and all adapters side by side.",
)

harbor_job = dg.define_asset_job(
    "harbor",
    selection=[*DEPLOYED],
    description="The deployments of configs/harbor as the Harbor service builds them, and their instances.",
)

deployment_evaluation_job = dg.define_asset_job(
    "deployment_evaluations",
    selection=[DEPLOYMENT_EVALUATION],
    description="What the deployments of configs/harbor are worth that ask for an evaluation.",
)

evaluation_job = dg.define_asset_job(
    "evaluations",
    selection=[EVALUATION],
    description="Which held-out tasks the models and teachers of configs/evaluations solve.",
)


def prompts_job(partitions: Sequence[str]) -> list[Any]:
    """Return the job over the prompts called `partitions`; none where there are none, for a job is of something."""
    description = "The prompts of configs/prompts, made better by what their answers were worth."
    job = dg.define_asset_job("prompts", selection=[OPTIMIZED_PROMPT], description=description)
    return [job] if partitions else []


def define_closed_loop_job(assets: Sequence[Any]) -> list[Any]:
    """Return the job over the closed loop; none where there is none."""
    description = (
        "Whether the adapters of configs/closed_loop.yaml beat a larger model: reads the evaluations that say so."
    )
    return [dg.define_asset_job("closed_loop", selection=[*assets], description=description)] if assets else []
