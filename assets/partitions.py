"""The partitions of assets: language by split, and the files of configuration that a stage is over.

Files are dynamic partitions of the instance of Dagster, so that a new one needs no reload: the sensor `partitions` adds them, and so
do `python -m assets.training`, `python -m assets.harbor` and `python -m assets.closed_loop` for runs that no sensor looks after.
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
import sys
from collections.abc import Sequence
from typing import cast

import dagster as dg

from graftline.astgrep.binding import Language
from graftline.core.paths import Paths
from graftline.datasets.catalog import Catalog
from graftline.datasets.splits import SPLITS, Split
from graftline.pipeline.stages.evaluation import deployment_evaluation_names, evaluation_names
from graftline.pipeline.stages.harbor_deployment import deployment_names
from graftline.pipeline.stages.model_evaluation import model_evaluation_names
from graftline.pipeline.stages.sft_dataset import recipes_of_run

RECIPES = dg.DynamicPartitionsDefinition(name="recipes")
"""Files of `configs/recipes` that have `data`; those on demand only where they were asked for."""
DEPLOYMENTS = dg.DynamicPartitionsDefinition(name="deployments")
"""Files of `configs/harbor`."""
EVALUATED_DEPLOYMENTS = dg.DynamicPartitionsDefinition(name="evaluated_deployments")
"""Files of `configs/harbor` that ask for an evaluation."""
EVALUATIONS = dg.DynamicPartitionsDefinition(name="evaluations")
"""Files of `configs/evaluations`."""


def load_partitions(paths: Paths) -> list[tuple[dg.DynamicPartitionsDefinition, list[str]]]:
    """Return the partitions that the files of configuration stand for, but for recipes on demand.

    Raises:
        ConfigError: a file cannot be read, or two evaluations have the same name.
    """
    evaluation_names(paths)
    return [
        (RECIPES, recipes_of_run(paths)),
        (DEPLOYMENTS, deployment_names(paths)),
        (EVALUATED_DEPLOYMENTS, deployment_evaluation_names(paths)),
        (EVALUATIONS, model_evaluation_names(paths)),
    ]


def add_partitions(*partitions: tuple[dg.DynamicPartitionsDefinition, Sequence[str]]) -> None:
    """Add partitions to the instance of Dagster that `DAGSTER_HOME` names; those it has stay."""
    with dg.DagsterInstance.get() as instance:
        for definition, keys in partitions:
            instance.add_dynamic_partitions(str(definition.name), [*keys])


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
    keys = []
    for key in context.partition_keys:
        dimensions = cast(dg.MultiPartitionKey, key).keys_by_dimension
        language, split = dimensions["language"], dimensions["split"]
        keys.append((str(key), cast(Language, language), cast(Split, split)))
    return keys


if __name__ == "__main__":
    from graftline.core.config import load_yaml
    from graftline.core.paths import find_root

    first, last = whole_range(load_yaml(Paths(find_root()).configs / "datasets.yaml", Catalog))
    print(json.dumps(range_tags(first, last)) if "--tags" in sys.argv else f"{first}...{last}")
