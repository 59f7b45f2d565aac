"""What is shown of an evaluation of solvers: tables, plots, and where its pages are.

Not here: the asset (`assets.harbor`), and what the stage does (`graftline.pipeline.stages.model_evaluation`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.outcome import metadata_of
from assets.reports.plots import bars, embed_png
from graftline.core.build import Built
from graftline.core.paths import Paths
from graftline.core.record import write_atomically
from graftline.evals.attempt import Attempt
from graftline.evals.metrics import Metrics, summarize, summarize_by
from graftline.evals.report import by_group, causes, comparisons, markdown_page, overview
from graftline.pipeline.stages.evaluation import read_summary
from graftline.pipeline.stages.model_evaluation import BROWSER, LEFT_OUT, REPORT, read_attempts
from graftline.rollouts.task import describe_left_out

_SHARE = "pass@1"


def metadata_of_contest(paths: Paths, built: Built) -> Mapping[str, Any]:
    """Return what there is to know of an evaluation; figures that nobody knows are left out, for they are not 0."""
    attempts = read_attempts(built.folder)
    overall = summarize(attempts)
    numbers = {
        f"{name}.{metrics.solver}": value
        for metrics in overall
        for name, value in (
            ("pass_at_1", metrics.pass_at[1]),
            ("coverage", metrics.coverage),
            ("cost_usd", metrics.cost_usd),
        )
        if value is not None
    }
    plots = plots_of(attempts)
    report = write_report(paths, built, attempts, plots)
    return {
        **metadata_of(built),
        "figures": dg.MetadataValue.md(overview(overall)),
        "comparisons": dg.MetadataValue.md(comparisons(attempts)),
        "classes": dg.MetadataValue.md(by_group(summarize_by(attempts, lambda attempt: attempt.edit_class))),
        "causes": dg.MetadataValue.md(causes(overall)),
        **{f"{kind}_plot": dg.MetadataValue.md(embed_png(kind, image)) for kind, image in plots.items()},
        "report": dg.MetadataValue.path(str(report)),
        "browser": dg.MetadataValue.path(str(report.with_name(BROWSER))),
        **numbers,
    }


def plots_of(attempts: Sequence[Attempt]) -> dict[str, bytes]:
    """Return PNGs by what they show: pass@1 of all solvers, and by class of edit where there are several."""
    plots = {"pass": bars(_shares(summarize(attempts)), ["solver"], _SHARE, "interval")}
    classes = summarize_by(attempts, lambda attempt: attempt.edit_class)
    if len({metrics.of for metrics in classes}) > 1:
        plots["classes"] = bars(_shares(classes), ["of", "solver"], _SHARE, "interval")
    return plots


def write_report(paths: Paths, built: Built, attempts: Sequence[Attempt], plots: Mapping[str, bytes]) -> Path:
    """Write the page with its plots below `reports/evaluations`, where it is looked for, and return where it is."""
    folder = paths.reports / "evaluations" / built.folder.name
    summary, names = read_summary(built.folder), {kind: f"{kind}.png" for kind in plots}
    page = markdown_page(
        built.record.name, str(summary["description"]), attempts, summary.get(LEFT_OUT), names,
        describe_left_out(built.record.counts),
    )  # fmt: skip
    for kind, image in plots.items():
        write_atomically(folder / f"{kind}.png", image)
    write_atomically(folder / BROWSER, (built.folder / BROWSER).read_bytes())
    # what names the others comes last
    write_atomically(folder / REPORT, page)
    return folder / REPORT


def _shares(summaries: Sequence[Metrics]) -> list[dict[str, Any]]:
    rows = [
        {"of": metrics.of, "solver": metrics.solver, _SHARE: metrics.pass_at[1], "interval": metrics.interval}
        for metrics in summaries
    ]
    return [row for row in rows if row[_SHARE] is not None]
