"""The partitions of assets: language by split, and the files of configuration that a stage is over.

Files are dynamic partitions of the instance of Dagster, so that a new one needs no reload: the sensor `partitions` adds them, and
`python -m assets.partitions` does where no sensor runs, with the names of recipes on demand if they are wanted; it prints the range of
all partitions of language and split.
https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import dagster as dg

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.paths import Paths, find_root
from graftline.datasets.catalog import Catalog
from graftline.datasets.splits import SPLITS, Split
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.evaluation import deployment_evaluation_names, evaluation_names
from graftline.pipeline.stages.harbor_deployment import deployment_names
from graftline.pipeline.stages.model_evaluation import model_evaluation_names
from graftline.pipeline.stages.sft_dataset import recipes_of_run
from graftline.training.recipes.open import load_recipe, recipe_names

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


def add_partitions(paths: Paths, definition: dg.DynamicPartitionsDefinition, names: Sequence[str]) -> None:
    """Add partitions to the instance of Dagster that `DAGSTER_HOME` names; those it has stay.

    Raises:
        ConfigError: there is no such file, or a recipe has no `data`.
    """
    configured = recipe_names(paths) if definition is RECIPES else dict(load_partitions(paths))[definition]
    for name in names:
        if name not in configured:
            raise ConfigError(f"{name!r} is none of the {definition.name}; known: {', '.join(configured) or 'none'}")
        if definition is RECIPES and load_recipe(paths, name).data is None:
            raise ConfigError(
                f"recipe {name!r}: has no `data`, so the lineage makes nothing for it; `graftline train run` does"
            )
    with dg.DagsterInstance.get() as instance:
        instance.add_dynamic_partitions(str(definition.name), [*names])


def use_instance_of_checkout() -> None:
    """Where `DAGSTER_HOME` names no instance, take the one that `make run` and `make ui` have, `.dagster` of the checkout."""
    if not os.environ.get("DAGSTER_HOME"):
        home = Path(__file__).resolve().parents[1] / ".dagster"
        home.mkdir(exist_ok=True)
        os.environ["DAGSTER_HOME"] = str(home)


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


def keys_of(context: dg.AssetExecutionContext) -> list[tuple[str, Language, Split]]:
    """Return every partition key of this run, with its language and split."""
    keys = []
    for key in context.partition_keys:
        dimensions = cast(dg.MultiPartitionKey, key).keys_by_dimension
        language, split = dimensions["language"], dimensions["split"]
        keys.append((str(key), cast(Language, language), cast(Split, split)))
    return keys


def main(recipes: Sequence[str]) -> None:
    """Print the range of all partitions of language and split; add those of files, and of `recipes`, which may be on demand."""
    use_instance_of_checkout()
    paths = Paths(find_root())
    for definition, names in load_partitions(paths):
        add_partitions(paths, definition, [*names, *(recipes if definition is RECIPES else ())])
    print("...".join(whole_range(load_settings(paths).catalog)))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (GraftlineError, dg.DagsterError) as error:
        sys.exit(f"error: {error}")
