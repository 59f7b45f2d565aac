"""The stage `splits`: the edits of one language and split."""

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents, Request
from graftline.core.errors import RecordError
from graftline.datasets.splits import Split, write_assignments, write_split
from graftline.pipeline.lineage import Lineage, identities
from graftline.pipeline.settings import stage_code


def splits(lineage: Lineage, language: Language, split: Split) -> Built:
    """Write the edits of one language and split."""
    folder = lineage.paths.division
    division = lineage.read_input(folder, "division")
    inputs = {"division": lineage.read_part(folder, division, f"{language}.parquet")}
    folders = {name: lineage.paths.normalized(name) for name in lineage.catalog.sources}
    records = {name: lineage.read_input(normalized, "normalized") for name, normalized in folders.items()}
    if division.inputs != identities(records):
        # its rows are those of the normalized files in their order, and would be taken for those of others
        raise RecordError(f"{folder}: was made from other normalized edits; materialize its asset again")
    for name, record in records.items():
        if names := [file for file in record.files if file.startswith(f"{language}-")]:
            inputs[f"normalized/{name}"] = lineage.read_part(folders[name], record, *sorted(names))
    config = {"tokenizer": lineage.catalog.cleaning.tokenizer}
    request = Request("splits", f"{language}/{split}", stage_code("splits"), inputs, config)
    return lineage.build(
        lineage.paths.partition("processed", language, split),
        request,
        lambda partial: Contents(write_split(folder, folders, language, split, partial)),
    )


def division(lineage: Lineage) -> Built:
    """Decide which edits are kept once, and in which split each is, over all datasets together."""
    inputs = {
        name: lineage.read_input(lineage.paths.normalized(name), "normalized") for name in lineage.catalog.sources
    }
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
        lambda folder: Contents(
            write_assignments(folders, lineage.catalog.languages, lineage.catalog.splitting, folder)
        ),
    )
