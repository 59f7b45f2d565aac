"""The jobs: `lineage` brings everything up to trajectories and reports up to date, `training` the adapters of recipes.

They are two, for a run is over partitions of one kind. https://docs.dagster.io/guides/build/jobs
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.training import GROUP, NAMES

lineage_job = dg.define_asset_job("lineage", selection=dg.AssetSelection.all() - dg.AssetSelection.groups(GROUP))


def training_job(recipes: Sequence[str]) -> list[Any]:
    """Return the job over the adapters of `recipes`; none where there are none, for a job is of something."""
    if not recipes:
        return []
    return [dg.define_asset_job("training", selection=[*NAMES])]
