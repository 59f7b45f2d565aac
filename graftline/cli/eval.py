"""The commands below `graftline eval`: parse, load configuration, call one function, print."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.main import json_option, manifest_options, overrides_of, paths_of, print_table
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.build import Built
    from graftline.core.paths import Paths
    from graftline.evals.attempt import Attempt
    from graftline.pipeline.lineage import Lineage


@click.command()
@click.argument("name")
@manifest_options
@json_option
@click.pass_obj
def run(root: Path | None, name: str, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Make the evaluation NAME, of configs/evaluations or of a deployment; what counts of it is not made again."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.stages.evaluation import evaluation, evaluation_names

    paths = paths_of(root)
    if name not in evaluation_names(paths):
        raise ConfigError(f"evaluation {name!r} is unknown; known: {', '.join(evaluation_names(paths)) or 'none'}")
    with progress_bars() as bars, _opened(paths, manifest, ports) as lineage:
        lineage.advance = bars.advance
        bars.start("evaluation", name)
        built = evaluation(lineage, name)
        bars.finish(built.reason)
    _print_built(paths, built, as_json)


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """Show the evaluations there are, and what is stored of them."""
    from graftline.pipeline.stages.evaluation import evaluated_names, evaluation_names
    from graftline.pipeline.stages.model_evaluation import contest_file, contest_names

    paths = paths_of(root)
    evaluation_names(paths)
    rows = [
        {
            "name": name,
            "contestants": [*contest_file(paths, name).contestants],
            "stored": _stored_counts(paths.contest(name)),
        }
        for name in contest_names(paths)
    ]
    rows += [
        {"name": name, "contestants": ["the deployment"], "stored": _stored_counts(paths.harbor("evaluations", name))}
        for name in evaluated_names(paths)
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    shown = [(str(row["name"]), ", ".join(row["contestants"]), str(row["stored"] or "not made yet")) for row in rows]
    print_table("Evaluations", ["name", "contestants", "stored"], shown)


@click.command()
@click.argument("name")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write report.md and attempts.html into this folder instead of printing.",
)
@manifest_options
@click.pass_obj
def report(root: Path | None, name: str, output: Path | None, manifest: str, ports: tuple[str, ...]) -> None:
    """Print the report of an evaluation of contestants, as Markdown."""
    from graftline.core.record import write_atomically
    from graftline.evals.report import browser_page, markdown_page
    from graftline.pipeline.stages.model_evaluation import BROWSER, REPORT, contest_file, read_cases

    paths = paths_of(root)
    file, (folder, attempts) = contest_file(paths, name), _stored(paths, name, manifest, ports)
    page = markdown_page(name, file.description, attempts)
    if output is None:
        click.echo(page)
        return
    write_atomically(output / BROWSER, browser_page(name, read_cases(folder), attempts))
    write_atomically(output / REPORT, page)
    click.echo(f"{output / REPORT}\n{output / BROWSER}")


@click.command()
@click.argument("name")
@click.argument("first", metavar="CONTESTANT")
@click.argument("second", metavar="AGAINST")
@manifest_options
@json_option
@click.pass_obj
def compare(
    root: Path | None, name: str, first: str, second: str, manifest: str, ports: tuple[str, ...], as_json: bool
) -> None:
    """Show whether one contestant of an evaluation is better than another, with 95 % intervals."""
    from graftline.evals.report import compare_in_detail, comparison_row

    _, attempts = _stored(paths_of(root), name, manifest, ports)
    try:
        found = compare_in_detail(attempts, first, second)
    except ValueError as error:
        raise ConfigError(f"evaluation {name!r}: {error}") from None
    if as_json:
        click.echo(json.dumps([one.as_dict() for one in found]))
        return
    rows = [comparison_row(one) for one in found]
    columns = ["of", "measure", "tasks", "its own", "the other's", "difference", "95 % interval", "verdict"]
    print_table(f"{first} against {second}", columns, [tuple(str(row[key]) for key in columns) for row in rows])


@click.command()
@click.argument("adapter", metavar="RECIPE")
@manifest_options
@json_option
@click.pass_obj
def deploy(root: Path | None, adapter: str, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Record that the adapter of RECIPE is the deployed one, which candidates are compared with."""
    from graftline.pipeline.deployed_adapter import deploy as record

    with _opened(paths_of(root), manifest, ports) as lineage:
        found = record(lineage, adapter)
    text = f"{found.adapter} is deployed, as it is now: {found.identity[:12]}"
    click.echo(json.dumps(found.as_dict()) if as_json else text)


def _print_built(paths: "Paths", built: "Built", as_json: bool) -> None:
    counts = built.record.counts
    if as_json:
        said = {"name": built.record.name, "reason": built.reason, "folder": str(built.folder), **counts}
        click.echo(json.dumps(said))
        return
    print_table(built.record.name, ["count of", "number"], [(name, f"{count:,}") for name, count in counts.items()])
    click.echo(f"{built.reason or 'unchanged'}; files are in {paths.relative(built.folder)}")


def _stored(paths: "Paths", name: str, manifest: str, ports: tuple[str, ...]) -> "tuple[Path, list[Attempt]]":
    """Return where an evaluation of contestants is, and its attempts.

    Raises:
        ConfigError: it is none, or not made yet.
        RecordError: it was altered since it was made.
    """
    from graftline.pipeline.stages.model_evaluation import contest_file, read_attempts, stored_contest

    contest_file(paths, name)
    with _opened(paths, manifest, ports) as lineage:
        stored = stored_contest(lineage, name)
    if stored is None:
        raise ConfigError(f"evaluation {name!r}: is not made yet; `graftline eval run {name}` makes it")
    return stored[1], read_attempts(stored[1])


@contextmanager
def _opened(paths: "Paths", manifest: str, ports: tuple[str, ...]) -> "Iterator[Lineage]":
    from graftline.pipeline.lineage import open_lineage
    from graftline.pipeline.manifests import load_manifest

    opened = load_manifest(paths, manifest, overrides_of(ports))
    with open_lineage(paths, opened, f"eval-{uuid.uuid4().hex[:8]}") as lineage:
        yield lineage


def _stored_counts(folder: Path) -> str:
    """Return how many attempts are stored, and how many of them count; empty where there is nothing."""
    from graftline.core.errors import RecordError
    from graftline.core.record import load_record

    try:
        counts = load_record(folder).counts
    except RecordError:
        return ""
    return f"{counts.get('valid', 0):,} of {counts.get('rows', 0):,} attempts count"


COMMANDS = (run, list_, report, compare, deploy)
