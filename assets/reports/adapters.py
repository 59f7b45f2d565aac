"""`reports/adapters`: all adapters on one page, side by side: what each learnt from, how its loss went, what it solves.

Not here: the page of one adapter (`assets.training`), and how an adapter is judged (`graftline.pipeline.stages.model_evaluation`).
https://docs.dagster.io/guides/build/assets/metadata-and-tags
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.descriptions import describe_asset
from assets.outcome import materialize, metadata_of
from assets.reports.marts import WHEN_READY
from assets.reports.plots import bars, curves, embed_png
from graftline.core.build import Built, Contents, Request
from graftline.core.errors import RecordError
from graftline.core.hashing import code_version, digest
from graftline.core.markdown import table
from graftline.core.record import ArtifactRecord
from graftline.evals.metrics import summarize
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.model_evaluation import read_attempts
from graftline.pipeline.stages.sft_dataset import lineage_recipes
from graftline.pipeline.stages.trained_adapter import STEPS
from graftline.training.runs import read_steps
from resources.artifacts import needs, stages_of

PAGE = "adapters.md"


def adapter_report(evaluations: Sequence[str]) -> dg.AssetsDefinition:
    """Return the report on all adapters, and on the evaluations of solvers."""
    of_all = dg.AllPartitionMapping()
    above = ["trained_adapter", *(["evaluation"] if evaluations else [])]

    @dg.asset(
        key=["reports", "adapters"],
        deps=[dg.AssetDep(name, partition_mapping=of_all) for name in above],
        group_name="training",
        kinds={"markdown"},
        owners=["team:ml"],
        code_version=_code(),
        metadata=describe_asset(_report),
        automation_condition=WHEN_READY,
        backfill_policy=dg.BackfillPolicy.single_run(),
        required_resource_keys=needs(),
    )
    def adapters(context: dg.AssetExecutionContext) -> dg.MaterializeResult[Any]:
        """All adapters side by side: what each was trained on, its loss by step, what it solves, and what evaluations say."""
        lineage = stages_of(context)
        return materialize(context, lineage, lambda: _report(lineage, evaluations), _shown)

    return adapters


def _report(lineage: Lineage, evaluations: Sequence[str]) -> Built:
    adapters = _load_stored_records(
        lineage, {name: lineage.paths.adapter(name) for name in lineage_recipes(lineage.paths)}
    )
    judged = _load_stored_records(lineage, {name: lineage.paths.evaluation(name) for name in evaluations})
    inputs = {
        **{f"trained_adapter.{name}": record.identity for name, record in adapters.items()},
        **{f"evaluation.{name}": record.identity for name, record in judged.items()},
    }
    request = Request("adapter_report", "adapters", _code(), inputs)

    def make(folder: Path) -> Contents:
        rows = [_row(lineage, name, record) for name, record in adapters.items()]
        losses = {name: _losses(lineage.paths.adapter(name) / STEPS) for name in adapters}
        if rows:
            (folder / "losses.png").write_bytes(curves(losses, "step", "loss"))
            (folder / "solved.png").write_bytes(bars(_shares(rows), ["recipe", "when"], "solved"))
        of_evaluations = [row for name in judged for row in _summarize_evaluation(lineage, name)]
        (folder / PAGE).write_text(_page(rows, of_evaluations), "utf-8")
        return Contents({"rows": len(rows), "evaluations": len(judged)})

    return lineage.build(lineage.paths.reports / "adapters", request, make)


def _load_stored_records(lineage: Lineage, folders: Mapping[str, Path]) -> dict[str, ArtifactRecord]:
    """Return the records of what is there."""
    records = {}
    for name, folder in folders.items():
        try:
            records[name] = lineage.record(folder)
        except RecordError:
            continue
        lineage.pull(folder)
    return records


def _row(lineage: Lineage, name: str, record: ArtifactRecord) -> dict[str, Any]:
    recipe, counts = record.config["recipe"], record.counts
    steps = read_steps(lineage.paths.adapter(name) / STEPS)
    rewards = [step.metrics["reward"] for step in steps if "reward" in step.metrics]
    held_out = [step.held_out_loss for step in steps if step.held_out_loss is not None]
    return {
        "adapter": name,
        "learns by": recipe["recipe"],
        "model": recipe["model"],
        "examples": counts["examples"],
        "steps": len(steps),
        "last loss": round(steps[-1].loss, 4) if steps else None,
        "held-out loss": round(held_out[-1], 4) if held_out else None,
        "last reward": round(rewards[-1], 4) if rewards else None,
        "tasks": counts.get("tasks"),
        "solved before": counts.get("solved_before"),
        "solved after": counts.get("solved_after"),
        "rows": f"`{lineage.paths.relative(lineage.paths.training_set(name))}`",
    }


def _losses(path: Path) -> list[tuple[float, float]]:
    return [(step.step + 1, step.loss) for step in read_steps(path)]


def _shares(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"recipe": row["adapter"], "when": when, "solved": row[f"solved {when}"] / row["tasks"]}
        for row in rows
        for when in ("before", "after")
        if row["tasks"] and row[f"solved {when}"] is not None
    ]


def _summarize_evaluation(lineage: Lineage, evaluation: str) -> list[dict[str, Any]]:
    return [
        {
            "evaluation": evaluation,
            "solver": metrics.solver,
            "tasks": metrics.tasks,
            "solved": None if metrics.pass_at[1] is None else f"{metrics.pass_at[1]:.0%}",
            "95 % interval": "-"
            if metrics.interval is None
            else f"{metrics.interval[0]:.0%} to {metrics.interval[1]:.0%}",
            "coverage": f"{metrics.coverage:.0%}",
        }
        for metrics in summarize(read_attempts(lineage.paths.evaluation(evaluation)))
    ]


def _page(rows: Sequence[Mapping[str, Any]], judged: Sequence[Mapping[str, Any]]) -> str:
    pictures = "\n![losses](losses.png)\n\n![solved](solved.png)\n" if rows else ""
    note = "Tasks are of packages and repositories held out: none of the rows is of them. Before is the model without the adapter.\n"
    return f"# Adapters\n\n{note}\n{table(rows)}{pictures}\n## Evaluations\n\n{table(judged)}"


def _shown(built: Built) -> Mapping[str, Any]:
    page = "\n".join(
        line for line in (built.folder / PAGE).read_text("utf-8").splitlines() if not line.startswith("![")
    )
    plots = {
        path.stem: dg.MetadataValue.md(embed_png(path.stem, path.read_bytes())) for path in built.folder.glob("*.png")
    }
    return {**metadata_of(built), "page": dg.MetadataValue.md(page), **plots}


def _code() -> str:
    own = [Path(__file__).read_text("utf-8"), Path(__file__).with_name("plots.py").read_text("utf-8")]
    return digest([*map(code_version, ("graftline.core.markdown", "graftline.evals.metrics")), own])[:16]
