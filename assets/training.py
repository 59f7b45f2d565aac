"""`sft_dataset` and `trained_adapter`: what each recipe of the lineage trains on, and the adapter it ends with.

A partition is a recipe of `configs/recipes/` that has `data`. The sensor `partitions` adds those that are not trained
on demand; one on demand is added where it is asked for. Not here: what the stages do
(`graftline.pipeline.stages.sft_dataset`, `graftline.pipeline.stages.trained_adapter`), and who trains (the port
`training_client`). https://docs.dagster.io/guides/build/partitions-and-backfills
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from assets.checks import evaluate_check, result_of_faults
from assets.descriptions import describe_asset
from assets.links import license_rows, model_page, shown_at
from assets.outcome import OverAll, materialize_each, metadata_of
from assets.partitions import RECIPES
from assets.reports.plots import curves, embed_png, stack_bars
from graftline.core.build import Built
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import load_models
from graftline.pipeline.checks import broken_adapters, unfit_rows
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.sft_dataset import sft_dataset
from graftline.pipeline.stages.trained_adapter import EVALUATION, STEPS, trained_adapter
from graftline.training.card import CARD
from graftline.training.runs import read_steps
from graftline.training.settings import TRAIN
from resources.artifacts import Artifacts, needs, stages_of

GROUP = "training"
_CURVES = ("reward", "groups_with_contrast", "reverse_kl", "answer_tokens")
"""Figures of steps that are shown by step, beside the loss, where a recipe has them."""
NAMES = (sft_dataset.__name__, trained_adapter.__name__)


def training_assets() -> list[dg.AssetsDefinition]:
    """Return the two assets, with a partition for each recipe."""
    # of a recipe it is not known here which partitions it is made of, so it depends on all of them
    everything = dg.AllPartitionMapping()
    deps = [dg.AssetDep(name, partition_mapping=everything) for name in ("splits", "tasks", "teacher_trajectories")]
    return [
        _asset(sft_dataset, deps, {"jsonl"}, metadata_of_rows, ("sandbox",), "sandbox", _sizes),
        _asset(
            trained_adapter, [dg.AssetDep(sft_dataset.__name__)], {"pytorch"}, metadata_of_adapter,
            ("tinker", "sandbox"), "trainer", _plot_solved,
        ),
    ]  # fmt: skip


def _asset(
    make: Callable[[Lineage, str], Built],
    deps: Sequence[dg.AssetDep],
    kinds: set[str],
    shown: Callable[[Built], Mapping[str, Any]],
    systems: Sequence[str],
    pool: str,
    over_all: OverAll,
) -> dg.AssetsDefinition:
    @dg.asset(
        name=make.__name__,
        deps=deps,
        partitions_def=RECIPES,
        group_name=GROUP,
        code_version=stage_code(make.__name__),
        kinds=kinds,
        owners=["team:ml"],
        metadata=describe_asset(make),
        required_resource_keys=needs(*systems),
        pool=pool,
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=make.__doc__,
    )
    def asset(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        lineage = stages_of(context)
        makes = {recipe: partial(make, lineage, recipe) for recipe in context.partition_keys}
        yield from materialize_each(context, lineage, makes, shown, over_all)

    return asset


def training_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks of what is stored of all recipes."""

    @dg.asset_check(asset=sft_dataset.__name__, blocking=True)
    def rows_fit(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        """There are rows to train on, and none of them is held out."""
        remedy = "delete the folder and materialize sft_dataset again"
        return evaluate_check(context, lambda: result_of_faults(unfit_rows(artifacts.stages({})), remedy))

    @dg.asset_check(asset=trained_adapter.__name__, blocking=True)
    def adapter_is_whole(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        """PEFT can load every adapter, and every loss on the way to it is a number."""
        remedy = "delete the folder and materialize trained_adapter again"
        return evaluate_check(context, lambda: result_of_faults(broken_adapters(artifacts.stages({})), remedy))

    return [rows_fit, adapter_is_whole]


def metadata_of_rows(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of training data: its rows by license, and the fields of a row."""
    counts = built.record.counts
    licenses = {name.partition(".")[2]: rows for name, rows in counts.items() if name.startswith("license.")}
    with (built.folder / TRAIN).open(encoding="utf-8") as stream:
        row = json.loads(stream.readline())
    fields = dg.TableSchema([dg.TableColumn(name, type(value).__name__) for name, value in row.items()])
    return {
        **metadata_of(built),
        "licenses": dg.MetadataValue.md(table(license_rows(licenses))),
        "dagster/column_schema": fields,
    }


def _sizes(artifacts: Mapping[str, Built]) -> Mapping[str, Any]:
    """Return how much each recipe trains on, looks at and solves, as a plot."""
    parts = {"train": "rows", "held out": "held_out", "tasks": "tasks"}
    rows = [
        {"recipe": name, **{part: built.record.counts[count] for part, count in parts.items()}}
        for name, built in artifacts.items()
    ]
    return {"plot": dg.MetadataValue.md(embed_png("sizes", stack_bars(rows, ["recipe"], [*parts], "rows and tasks")))}


def _plot_solved(artifacts: Mapping[str, Built]) -> Mapping[str, Any]:
    """Return the tasks that are solved without each adapter and with it, as a plot."""
    rows = [
        {"model": f"{name}, {when}", "solved": solved, "not solved": built.record.counts["tasks"] - solved}
        for name, built in artifacts.items()
        for when in ("before", "after")
        for solved in (built.record.counts[f"solved_{when}"],)
    ]
    return {
        "plot": dg.MetadataValue.md(embed_png("solved", stack_bars(rows, ["model"], ["solved", "not solved"], "tasks")))
    }


def _card_of(built: Built) -> dg.MetadataValue[str | None]:
    """Return the card of the model that an adapter is for."""
    name, models = built.record.config["recipe"]["model"], load_models(Paths(built.folder.parents[2])).models
    card = models[name].card if name in models else name
    return shown_at(model_page(card), card)


def metadata_of_adapter(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of an adapter: its loss as a plot, what it solves as a table, its card."""
    steps = read_steps(built.folder / STEPS)
    losses = {
        "loss": [(step.step + 1, step.loss) for step in steps],
        "held-out loss": [(step.step + 1, step.held_out_loss) for step in steps if step.held_out_loss is not None],
    }
    image = curves(losses, "step", "loss")
    metric_curves = {
        f"{name}_curve": dg.MetadataValue.md(embed_png(name, curves({name: points}, "step", name)))
        for name in _CURVES
        if (points := [(step.step + 1, step.metrics[name]) for step in steps if name in step.metrics])
    }
    rows = Paths(built.folder.parents[2]).training_set(built.record.name) / TRAIN
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
        "loss_curve": dg.MetadataValue.md(embed_png("loss", image)),
        **metric_curves,
        "last_loss": steps[-1].loss,
        "trained_on": dg.MetadataValue.path(str(rows)),
        "run": built.record.config["run_id"],
        "base_model": _card_of(built),
        "solved": dg.MetadataValue.md(table(solved)),
        "card": dg.MetadataValue.path(str(built.folder / CARD)),
        "came_from": f"graftline lineage {built.record.name}",
        "on_what_terms": f"graftline licenses {built.record.name}",
        **shares,
    }
