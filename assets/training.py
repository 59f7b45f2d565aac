"""`sft_dataset` and `trained_adapter`: what each recipe of the lineage trains on, and the adapter it ends with.

A partition is a recipe of `configs/recipes/` that has `data`; `python -m assets.training` prints the range of those
that are not trained on demand. Not here:
what the stages do (`graftline.runtime.training_data`, `graftline.runtime.trained_adapter`), and who trains (the port
`training_client`). https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.described import described
from assets.outcome import materialized_each, metadata_of
from assets.reports.plots import curves, embedded
from graftline.markdown import table
from graftline.record import Built
from graftline.runtime.lineage import Lineage
from graftline.runtime.settings import stage_code
from graftline.runtime.trained_adapter import EVALUATION, STEPS, trained_adapter
from graftline.runtime.training_data import recipes_of_run, sft_dataset
from graftline.training.card import CARD
from graftline.training.runs import read_steps
from graftline.training.sets import TRAIN

GROUP = "training"
NAMES = (sft_dataset.__name__, trained_adapter.__name__)


def training_assets(recipes: Sequence[str]) -> list[dg.AssetsDefinition]:
    """Return the two assets with a partition for each of `recipes`; nothing where there is none."""
    if not recipes:
        return []
    # of a recipe it is not known here which partitions it is made of, so it depends on all of them
    everything = dg.AllPartitionMapping()
    deps = [dg.AssetDep(name, partition_mapping=everything) for name in ("splits", "tasks", "teacher_trajectories")]
    return [
        _asset(sft_dataset, recipes, deps, {"jsonl"}, metadata_of_rows, "sandbox"),
        _asset(
            trained_adapter, recipes, [dg.AssetDep(sft_dataset.__name__)], {"pytorch"}, metadata_of_adapter, "trainer"
        ),
    ]


def _asset(
    make: Callable[[Lineage, str], Built],
    recipes: Sequence[str],
    deps: Sequence[dg.AssetDep],
    kinds: set[str],
    shown: Callable[[Built], Mapping[str, Any]],
    pool: str,
) -> dg.AssetsDefinition:
    @dg.asset(
        name=make.__name__,
        deps=deps,
        partitions_def=dg.StaticPartitionsDefinition(list(recipes)),
        group_name=GROUP,
        code_version=stage_code(make.__name__),
        kinds=kinds,
        owners=["team:ml"],
        metadata=described(make),
        pool=pool,
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def asset(context: dg.AssetExecutionContext, lineage: dg.ResourceParam[Lineage]) -> dg.MaterializeResult[Any]:
        makes = {recipe: partial(make, lineage, recipe) for recipe in context.partition_keys}
        return materialized_each(context, lineage, makes, shown)

    return asset


def metadata_of_rows(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of training data: its rows by licence, and the fields of a row."""
    counts = built.record.counts
    licences = [
        {"licence": name.partition(".")[2], "rows": number}
        for name, number in counts.items()
        if name.startswith("licence.")
    ]
    with (built.folder / TRAIN).open(encoding="utf-8") as stream:
        row = json.loads(stream.readline())
    fields = dg.TableSchema([dg.TableColumn(name, type(value).__name__) for name, value in row.items()])
    return {
        **metadata_of(built),
        "licences": dg.MetadataValue.md(table(licences)),
        "dagster/column_schema": fields,
    }


def metadata_of_adapter(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of an adapter: its loss as a plot, what it solves as a table, its card."""
    steps = read_steps(built.folder / STEPS)
    losses = {
        "loss": [(step.step + 1, step.loss) for step in steps],
        "held-out loss": [(step.step + 1, step.held_out_loss) for step in steps if step.held_out_loss is not None],
    }
    image = curves(losses, "step", "loss")
    solved = json.loads((built.folder / EVALUATION).read_text("utf-8"))
    counts = built.record.counts
    shares = {
        f"share_{which}": counts[which] / counts["tasks"]
        for which in ("solved_before", "solved_after")
        if counts.get("tasks")
    }
    return {
        **metadata_of(built),
        "dagster/row_count": counts["examples"],
        "loss_curve": dg.MetadataValue.md(embedded("loss", image)),
        "last_loss": steps[-1].loss,
        "run": built.record.config["run_id"],
        "solved": dg.MetadataValue.md(table(solved)),
        "card": dg.MetadataValue.path(str(built.folder / CARD)),
        "came_from": f"graftline lineage {built.record.name}",
        "on_what_terms": f"graftline licences {built.record.name}",
        **shares,
    }


if __name__ == "__main__":
    from graftline.paths import Paths, find_root

    if found := recipes_of_run(Paths(find_root())):
        print(f"{found[0]}...{found[-1]}")
