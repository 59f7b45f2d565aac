"""Watches the homes of the datasets, and requests a run when what one holds has changed.

One dataset whose home cannot be read is reported and never keeps the others from being looked at; its last revision
is kept, for a failed look is not a change. Not here: how a home is read (`graftline.datasets.hub`).
https://docs.dagster.io/guides/automate/sensors
"""

import json

import dagster as dg

from assets.partitions import whole_range
from graftline.datasets.catalogue import Catalogue
from graftline.datasets.hub import DatasetHub
from graftline.errors import GraftlineError
from graftline.hashing import digest
from resources.lineage import LineageResource


def dataset_versions(job_name: str, lineage: LineageResource) -> dg.SensorDefinition:
    """Return the sensor; the job called `job_name` brings everything up to date."""

    @dg.sensor(name="dataset_versions", job_name=job_name, minimum_interval_seconds=300)
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        """Request a run when a home holds something new."""
        known: dict[str, str] = json.loads(context.cursor or "{}")
        found, faults = revisions(lineage.settings.catalogue, lineage.hub())
        for fault in faults:
            context.log.warning(fault)
        changed = {name: revision for name, revision in found.items() if known.get(name) != revision}
        if not changed:
            return dg.SkipReason("; ".join(faults) or f"{len(found)} datasets are as they were")
        # one run for all that changed: two would make the same artefacts side by side. What was known is part of
        # the key, or a home that returns to a former state would be taken for a run that was already requested
        request = dg.RunRequest(
            run_key=digest([known, changed]),
            tags={
                **range_tags(lineage.settings.catalogue),
                **{f"graftline/revision.{name}": revision[:16] for name, revision in sorted(changed.items())},
            },
        )
        return dg.SensorResult(run_requests=[request], cursor=json.dumps({**known, **found}, sort_keys=True))

    return sensor


def range_tags(catalogue: Catalogue) -> dict[str, str]:
    """Return the tags by which one run goes over every partition."""
    first, last = whole_range(catalogue)
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def revisions(catalogue: Catalogue, hub: DatasetHub) -> tuple[dict[str, str], list[str]]:
    """Return the revision of every dataset whose home can be read, and why the others cannot."""
    found, faults = {}, []
    for name, dataset in sorted(catalogue.datasets.items()):
        try:
            found[name] = hub.revision(dataset)
        except GraftlineError as error:
            faults.append(f"{name}: {error}")
    return found, faults
