"""The partitions of everything from the splits on: language by split.

https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
import sys
from typing import cast

import dagster as dg

from graftline.astgrep.binding import Language
from graftline.datasets.catalog import Catalog
from graftline.datasets.division import SPLITS, Split


def partitions_of(catalog: Catalog) -> dg.MultiPartitionsDefinition:
    """Return language by split, for the languages that are configured."""
    return dg.MultiPartitionsDefinition(
        {
            "language": dg.StaticPartitionsDefinition(list(catalog.languages)),
            "split": dg.StaticPartitionsDefinition(list(SPLITS)),
        }
    )


def whole_range(catalog: Catalog) -> tuple[str, str]:
    """Return the first and the last partition key; a range from one to the other holds every partition."""
    languages = catalog.languages
    return f"{languages[0]}|{SPLITS[0]}", f"{languages[-1]}|{SPLITS[-1]}"


def range_tags(first: str, last: str) -> dict[str, str]:
    """Return the tags by which one run goes over every partition from `first` to `last`."""
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def tags_of(partition: str) -> str:
    """Return the tags of a run over one partition as the command of Dagster takes them, without a blank."""
    return json.dumps({"dagster/partition": partition}, separators=(",", ":"))


def keys_of(context: dg.AssetExecutionContext) -> list[tuple[str, Language, Split]]:
    """Return every partition key of this run, with its language and split."""
    found = []
    for key in context.partition_keys:
        dimensions = cast(dg.MultiPartitionKey, key).keys_by_dimension
        language, split = dimensions["language"], dimensions["split"]
        found.append((str(key), cast(Language, language), cast(Split, split)))
    return found


if __name__ == "__main__":
    from graftline.core.config import load_yaml
    from graftline.core.paths import Paths, find_root

    first, last = whole_range(load_yaml(Paths(find_root()).configs / "datasets.yaml", Catalog))
    print(json.dumps(range_tags(first, last)) if "--tags" in sys.argv else f"{first}...{last}")
