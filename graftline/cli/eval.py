"""The commands below `graftline eval`: parse, load configuration, call one function, print."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.options import FOLDER, ManifestChoice, Output, manifest_options, output_option, pass_paths
from graftline.core.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.evals.attempt import Attempt


@click.command()
@click.argument("name")
@manifest_options
@output_option
@pass_paths
def run(paths: "Paths", name: str, manifest: ManifestChoice) -> Output:
    """Make the evaluation NAME, of configs/evaluations or of a deployment; what counts of it is not made again."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.run import run_one
    from graftline.pipeline.stages.evaluation import evaluation_names

    if name not in evaluation_names(paths):
        raise ConfigError(f"evaluation {name!r} is unknown; known: {', '.join(evaluation_names(paths)) or 'none'}")
    with progress_bars() as bars:
        built = run_one(paths, manifest.load(paths), "evaluation", name, bars)
    counts = built.record.counts
    table = (built.record.name, ["count of", "number"], [(key, f"{count:,}") for key, count in counts.items()])
    value = {"name": built.record.name, "reason": built.reason, "folder": built.folder, **counts}
    return Output(value, [table], f"{built.reason or 'unchanged'}; files are in {paths.relative(built.folder)}")


@click.command("list")
@output_option
@pass_paths
def list_(paths: "Paths") -> Output:
    """Show the evaluations there are, and what is stored of them."""
    from graftline.pipeline.stages.evaluation import deployment_evaluation_names, evaluation_names
    from graftline.pipeline.stages.model_evaluation import load_model_evaluation, model_evaluation_names

    evaluation_names(paths)
    solvers = {name: [*load_model_evaluation(paths, name).solvers] for name in model_evaluation_names(paths)}
    folders = {name: paths.evaluation(name) for name in solvers}
    for name in deployment_evaluation_names(paths):
        solvers[name], folders[name] = ["the deployment"], paths.harbor("evaluations", name)
    stored = {name: _describe_stored(folder) for name, folder in folders.items()}
    rows = [(name, ", ".join(solvers[name]), stored[name] or "not made yet") for name in solvers]
    value = [{"name": name, "solvers": solvers[name], "stored": stored[name]} for name in solvers]
    return Output(value, [("Evaluations", ["name", "solvers", "stored"], rows)])


@click.command()
@click.argument("name")
@click.option("--output", type=FOLDER, help="Write report.md and attempts.html into this folder instead of printing.")
@manifest_options
@pass_paths
def report(paths: "Paths", name: str, output: Path | None, manifest: ManifestChoice) -> None:
    """Print the report of an evaluation of solvers, as Markdown."""
    from graftline.core.jsonl import read_lines
    from graftline.core.record import load_record, write_atomically
    from graftline.evals.cases import Case
    from graftline.evals.report import browser_page, markdown_page
    from graftline.pipeline.stages.evaluation import read_summary
    from graftline.pipeline.stages.model_evaluation import BROWSER, CASES, LEFT_OUT, REPORT, load_model_evaluation
    from graftline.rollouts.task import describe_left_out

    file, (folder, attempts) = load_model_evaluation(paths, name), _read_stored(paths, name, manifest)
    note = describe_left_out(load_record(folder).counts)
    page = markdown_page(name, file.description, attempts, read_summary(folder).get(LEFT_OUT), note=note)
    if output is None:
        click.echo(page)
        return
    write_atomically(output / BROWSER, browser_page(name, [*read_lines(folder / CASES, Case)], attempts))
    write_atomically(output / REPORT, page)
    click.echo(f"{output / REPORT}\n{output / BROWSER}")


@click.command()
@click.argument("name")
@click.argument("first", metavar="CONTESTANT")
@click.argument("second", metavar="AGAINST")
@manifest_options
@output_option
@pass_paths
def compare(paths: "Paths", name: str, first: str, second: str, manifest: ManifestChoice) -> Output:
    """Show whether one solver of an evaluation is better than another, with 95 % intervals."""
    from graftline.evals.report import compare_in_detail, comparison_row

    _, attempts = _read_stored(paths, name, manifest)
    try:
        differences = compare_in_detail(attempts, first, second)
    except ValueError as error:
        raise ConfigError(f"evaluation {name!r}: {error}") from None
    columns = ["of", "measure", "tasks", "its own", "the other's", "difference", "95 % interval", "verdict"]
    rows = [tuple(str(comparison_row(difference)[key]) for key in columns) for difference in differences]
    value = [difference.as_dict() for difference in differences]
    return Output(value, [(f"{first} against {second}", columns, rows)])


@click.command()
@click.argument("adapter", metavar="RECIPE")
@manifest_options
@output_option
@pass_paths
def promote(paths: "Paths", adapter: str, manifest: ManifestChoice) -> Output:
    """Record that the adapter of RECIPE is the deployed one, which candidates are compared with."""
    from graftline.pipeline.deployed_adapter import deploy
    from graftline.pipeline.lineage import open_lineage

    with open_lineage(paths, manifest.load(paths)) as lineage:
        deployed = deploy(lineage, adapter)
    return Output(asdict(deployed), text=f"{deployed.adapter} is deployed, as it is now: {deployed.identity[:12]}")


COMMANDS = (run, list_, report, compare, promote)


def _read_stored(paths: "Paths", name: str, manifest: ManifestChoice) -> "tuple[Path, list[Attempt]]":
    """Return where an evaluation is, and its attempts.

    Raises:
        ConfigError: there is no such evaluation, or it is not made yet.
        RecordError: it was altered since it was made.
    """
    from graftline.pipeline.lineage import open_lineage
    from graftline.pipeline.stages.model_evaluation import describe_outdated, load_model_evaluation, read_attempts

    load_model_evaluation(paths, name)
    folder = paths.evaluation(name)
    with open_lineage(paths, manifest.load(paths)) as lineage:
        record = lineage.find(folder, "evaluation")
        if record is None:
            raise ConfigError(f"evaluation {name!r}: is not made yet; `graftline eval run {name}` makes it")
        if change := describe_outdated(lineage, name, record):
            advice = f"`graftline eval run {name}` makes it anew"
            click.echo(f"evaluation {name!r}: this is of an earlier run, {change}; {advice}", err=True)
    return folder, read_attempts(folder)


def _describe_stored(folder: Path) -> str:
    """Return how many attempts are stored, and how many of them count; empty where there is nothing."""
    from graftline.core.record import load_record

    try:
        counts = load_record(folder).counts
    except RecordError:
        return ""
    return f"{counts.get('valid', 0):,} of {counts.get('rows', 0):,} attempts count"
