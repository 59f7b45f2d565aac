"""The stage `division`: which edits are kept once, and which split each is in, over all datasets together."""

from graftline.core.build import Built, Contents, Request
from graftline.datasets.split import write_division
from graftline.pipeline.lineage import Lineage, identities
from graftline.pipeline.settings import stage_code


def division(lineage: Lineage) -> Built:
    """Decide which edits are kept once, and in which split each is, over all datasets together."""
    inputs = {name: lineage.verified(lineage.paths.normalized(name), "normalized") for name in lineage.catalog.sources}
    config = {
        "splitting": lineage.catalog.splitting.model_dump(mode="json"),
        "languages": list(lineage.catalog.languages),
        "precedence": list(inputs),
    }
    request = Request("division", "all", stage_code("division"), identities(inputs), config)
    folders = {name: lineage.paths.normalized(name) for name in inputs}
    return lineage.build(
        lineage.paths.division,
        request,
        lambda folder: Contents(write_division(folders, lineage.catalog.languages, lineage.catalog.splitting, folder)),
    )
