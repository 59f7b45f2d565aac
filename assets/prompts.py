"""`optimized_prompt`: the prompts of `configs/prompts`, made better by what their answers were worth.

A partition is a file of that folder. Not here: how prompts are found (`graftline.prompts`), what is kept of them
(`graftline.pipeline.stages.optimized_prompt`), and which model answers (the port `chat_model`). A teacher that is to be asked by one
names it `optimized/<name>`. https://docs.dagster.io/guides/build/partitions-and-backfills
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import dagster as dg

from assets.descriptions import describe_asset
from assets.outcome import materialize_each, metadata_of
from assets.reports.plots import curves, embed_png
from graftline.core.build import Built
from graftline.core.markdown import table
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.optimized_prompt import BEST, PAGE, front_rows, optimized_prompt, read_outcome
from graftline.prompts.candidates import mean
from graftline.prompts.outcome import Outcome
from resources.artifacts import needs, stages_of

GROUP = "prompts"
NAME = optimized_prompt.__name__
_MOST_ROWS = 20


def prompt_assets(names: Sequence[str]) -> list[dg.AssetsDefinition]:
    """Return the asset with a partition for each of `names`; nothing where there is none."""
    if not names:
        return []
    # a file says itself which tasks it is about
    tasks = dg.AssetDep("tasks", partition_mapping=dg.AllPartitionMapping())

    @dg.asset(
        name=NAME,
        deps=[tasks],
        partitions_def=dg.StaticPartitionsDefinition(list(names)),
        group_name=GROUP,
        code_version=stage_code(NAME),
        kinds={"yaml"},
        owners=["team:ml"],
        pool="actors",
        backfill_policy=dg.BackfillPolicy.single_run(),
        description=optimized_prompt.__doc__,
        metadata=describe_asset(optimized_prompt),
        required_resource_keys=needs("sandbox", "actors"),
    )
    def asset(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        lineage = stages_of(context)
        makes = {name: partial(optimized_prompt, lineage, name) for name in context.partition_keys}
        yield from materialize_each(context, lineage, makes, _metadata)

    return [asset]


def _metadata(built: Built) -> Mapping[str, Any]:
    """Return what there is to know of a prompt: the front as a table, the prompt itself, its score against rollouts."""
    outcome = read_outcome(built.folder)
    gain = outcome.gain
    numbers: dict[str, Any] = {"score": outcome.best_score, "gain": None if gain is None else gain[0]}
    if gain is not None and gain[1] is not None:
        numbers |= {"gain_low": gain[1][0], "gain_high": gain[1][1]}
    if outcome.not_judged:
        numbers["not_judged"] = outcome.not_judged
    return {
        **metadata_of(built),
        "front": dg.MetadataValue.md(table(front_rows(outcome)[:_MOST_ROWS])),
        "best_prompt": dg.MetadataValue.md((built.folder / BEST).read_text("utf-8")),
        "score_by_rollouts": dg.MetadataValue.md(embed_png("score", _plot(outcome))),
        "report": dg.MetadataValue.path(str(built.folder / PAGE)),
        "proposer": outcome.proposer,
        "ended_by": outcome.ending,
        "judged_on": outcome.summary()["judged_on"],
        "rollouts": outcome.rollouts,
        "prompt_name": f"optimized/{built.record.name}",
        **{name: value for name, value in numbers.items() if value is not None},
    }


def _plot(outcome: Outcome) -> bytes:
    """Return every prompt's score at the rollouts it took to find, and the best so far."""
    points = [(float(prompt.asked), score) for prompt in outcome.prompts if (score := mean(prompt.scores)) is not None]
    best = [*zip([at for at, _ in points], accumulate((score for _, score in points), max), strict=True)]
    return curves({"best so far": best, "found": points}, "rollouts", "score on the front")
