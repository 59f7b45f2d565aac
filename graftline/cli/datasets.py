"""The commands below `graftline datasets`: parse, load configuration, call one function, print.

What they print is found by `graftline.pipeline.dataset_views`, `graftline.datasets.dvc` and
`graftline.datasets.publishing`.
"""

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import CommandT, json_option, manifest_options, overrides_of, paths_of, print_table

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.datasets.catalog import Catalog
    from graftline.pipeline.dataset_views.build import Making
    from graftline.pipeline.dataset_views.samples import SampledEdit
    from graftline.pipeline.manifests import Manifest

_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def _names(command: CommandT) -> CommandT:
    return click.argument("names", nargs=-1, metavar="[NAME]...")(command)


def _partition_options(command: CommandT) -> CommandT:
    command = click.option("--split", "part", type=click.Choice(["train", "dev", "test"]), help="Only this split.")(
        command
    )
    return click.option("--language", metavar="LANGUAGE", help="Only this language.")(command)


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """List the datasets of the catalog: where they live, on what terms, and what is stored of each."""
    from graftline.pipeline.dataset_views.listing import entries
    from graftline.pipeline.dataset_views.tables import shelf_table

    found = entries(paths_of(root), os.environ)
    if as_json:
        _print_json({"datasets": [asdict(entry) for entry in found]})
        return
    print_table(*shelf_table(found))
    _print_faults([entry.fault for entry in found if entry.fault])


@click.command()
@_names
@manifest_options
@json_option
@click.pass_obj
def fetch(root: Path | None, names: tuple[str, ...], manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Fetch the raw files of datasets, those in use if none is named. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import fetch as fetch_datasets

    paths = paths_of(root)
    with progress_bars() as bars:
        making = fetch_datasets(paths, _manifest(paths, manifest, ports), names, bars)
    _print_made(making, paths, as_json)


@click.command()
@_names
@manifest_options
@json_option
@click.pass_obj
def normalize(root: Path | None, names: tuple[str, ...], manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Make edits, labels and counted drops of fetched datasets, of those in use if none is named."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import normalize as normalize_datasets

    paths = paths_of(root)
    with progress_bars() as bars:
        making = normalize_datasets(paths, _manifest(paths, manifest, ports), names, bars)
    _print_made(making, paths, as_json)


@click.command()
@_partition_options
@manifest_options
@json_option
@click.pass_obj
def split(
    root: Path | None, language: str | None, part: str | None, manifest: str, ports: tuple[str, ...], as_json: bool
) -> None:
    """Divide the edits of the datasets in use so that nothing leaks, and write the splits."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import split as split_datasets

    paths = paths_of(root)
    with progress_bars() as bars:
        making = split_datasets(paths, _manifest(paths, manifest, ports), language, part, bars)
    _print_made(making, paths, as_json)


@click.command()
@_names
@json_option
@click.pass_obj
def stats(root: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Count edits by language and split, their tokens and licences, and what was left out why."""
    from graftline.pipeline.dataset_views.stats import stats as stats_of
    from graftline.pipeline.dataset_views.tables import stats_tables

    paths = paths_of(root)
    found = stats_of(paths, _catalog(paths), names)
    if as_json:
        _print_json({"datasets": [asdict(one) for one in found]})
        return
    for title, columns, rows in stats_tables(found):
        if rows:
            print_table(title, columns, rows)


@click.command()
@_names
@json_option
@click.pass_obj
def verify(root: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Read every stored file of datasets, of the division and of the splits: is it what its record and its pin say?"""
    from graftline.pipeline.dataset_views.tables import verification_table
    from graftline.pipeline.dataset_views.verification import verify as verify_datasets

    paths = paths_of(root)
    found = verify_datasets(paths, _catalog(paths), names)
    if as_json:
        _print_json(found.as_dict())
    else:
        print_table(*verification_table(found))
    _print_faults(found.faults)


@click.command()
@click.argument("name", required=False)
@click.option("-n", "number", type=click.IntRange(min=1), default=5, show_default=True, help="How many, at most.")
@_partition_options
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds choose equal samples.")
@click.option("--drops", metavar="REASON", help="Show what was left out for this reason, or for all.")
@json_option
@click.pass_obj
def sample(
    root: Path | None, name: str | None, number: int, language: str | None, part: str | None, seed: int,
    drops: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show some edits of a dataset as diffs, of all in use if none is named, or some of what was left out."""
    from graftline.pipeline.dataset_views.samples import sample_drops, sample_edits

    paths, names = paths_of(root), (name,) if name else ()
    if drops is None:
        edits = sample_edits(paths, _catalog(paths), names, number, language, part, seed)
        _print_sample("edits", edits, _print_edits, as_json)
    elif language or part:
        raise click.UsageError("--drops goes with neither --language nor --split: what was left out is in no split")
    else:
        found = sample_drops(paths, _catalog(paths), names, number, drops, seed)
        _print_sample("drops", found, _print_drops, as_json)


@click.command("export-dvc")
@click.option("--remote", metavar="FOLDER|URL", help="Where to; without it dvc.remote of configs/governance.yaml.")
@json_option
@click.pass_obj
def export_dvc(root: Path | None, remote: str | None, as_json: bool) -> None:
    """Copy the artifacts to a DVC remote, and write a .dvc file beside each."""
    from graftline.core.progress import progress_bars
    from graftline.datasets.dvc import export_dvc as export
    from graftline.datasets.governance import load_governance
    from graftline.pipeline.dataset_views.tables import export_table

    paths = paths_of(root)
    with progress_bars() as bars:
        exported = export(paths, remote or load_governance(paths).dvc.remote, bars)
    if as_json:
        _print_json(asdict(exported))
    else:
        print_table(*export_table(exported))
    _print_faults(exported.refused)


@click.command()
@json_option
@click.pass_obj
def publish(root: Path | None, as_json: bool) -> None:
    """Log figures and checksums of the artifacts to W&B, as configs/governance.yaml allows it."""
    from graftline.core.secrets import open_secrets
    from graftline.datasets.governance import load_governance
    from graftline.datasets.publishing import publish as publish_datasets

    paths = paths_of(root)
    settings = load_governance(paths).wandb
    published = publish_datasets(paths, settings, open_secrets(os.environ, paths.root), os.environ)
    if as_json:
        _print_json(asdict(published))
        return
    click.echo(f"{published.mode}: {published.artifact}, digest {published.digest}, {len(published.files)} files")
    click.echo(f"send it with: wandb sync {published.run}" if published.mode == "offline" else published.run)


COMMANDS = (list_, fetch, normalize, split, stats, verify, sample, export_dvc, publish)


def _manifest(paths: "Paths", name: str, ports: tuple[str, ...]) -> "Manifest":
    from graftline.pipeline.manifests import load_manifest

    return load_manifest(paths, name, overrides_of(ports))


def _catalog(paths: "Paths") -> "Catalog":
    from graftline.pipeline.settings import load_settings

    return load_settings(paths).catalog


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value))


def _print_faults(faults: Iterable[str]) -> None:
    """Print what is wrong to standard error, and end with exit code 1 if anything is."""
    found = list(faults)
    for fault in found:
        click.echo(f"error: {fault}", err=True)
    if found:
        raise click.exceptions.Exit(1)


def _print_made(making: "Making", paths: "Paths", as_json: bool) -> None:
    from graftline.pipeline.dataset_views.tables import made_table

    if as_json:
        _print_json(making.as_dict(paths))
    elif making.built:
        print_table(*made_table(making))
    for warning in making.warnings():
        click.echo(f"warning: {warning}", err=True)
    _print_faults(making.faults)


def _print_sample(what: str, found: Sequence[Any], show: Callable[[Sequence[Any]], None], as_json: bool) -> None:
    if as_json:
        _print_json({what: [asdict(one) for one in found]})
    elif found:
        show(found)
    else:
        click.echo(f"There are no such {what}.")


def _print_drops(drops: Sequence[Any]) -> None:
    from graftline.pipeline.dataset_views.tables import drops_table

    print_table(*drops_table(drops))


def _print_edits(edits: Sequence["SampledEdit"]) -> None:
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.style import Style

    from graftline.core.text_diff import escape_controls

    console = Console()
    for edit in edits:
        place = "/".join(filter(None, (edit.language, edit.split)))
        lines = [(escape_controls(f"{edit.id}  {place}  {edit.licence}  {edit.origin}"), "bold")]
        lines += [(line, "italic") for line in escape_controls(edit.instruction).split("\n")]
        lines += [(line, _STYLES.get(line[:1], "")) for line in edit.diff()]
        # as they are: tabs stay tabs, and a long line is not folded, so that the diff can be searched and applied
        segments = [Segment(line, Style.parse(style)) for line, style in (*lines, ("", ""))]
        console.print(Segments(segments, new_lines=True), soft_wrap=True, end="")
