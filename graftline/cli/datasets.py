"""The commands below `graftline datasets`: parse, load configuration, call one function, print.

What they print is worked out by `graftline.pipeline.dataset_views`, `graftline.datasets.dvc` and
`graftline.datasets.publishing`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import (
    CommandT,
    ManifestChoice,
    fail_with,
    json_option,
    manifest_options,
    pass_paths,
    print_json,
    print_lines,
    print_table,
    style_diff,
)

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.datasets.catalog import Catalog
    from graftline.pipeline.dataset_views.build import BuildReport


def names_argument(command: CommandT) -> CommandT:
    """Add the names of datasets."""
    return click.argument("names", nargs=-1, metavar="[NAME]...")(command)


def partition_options(command: CommandT) -> CommandT:
    """Add `--language` and `--split`."""
    splits = click.Choice(["train", "dev", "test"])
    command = click.option("--split", "part", type=splits, help="Only this split.")(command)
    return click.option("--language", metavar="LANGUAGE", help="Only this language.")(command)


@click.command("list")
@json_option
@pass_paths
def list_(paths: "Paths", as_json: bool) -> None:
    """List the datasets of the catalog: where they live, on what terms, and what is stored of each."""
    from graftline.pipeline.dataset_views.listing import entries, listing_table

    datasets = entries(paths, os.environ)
    if as_json:
        print_json({"datasets": datasets})
        return
    print_table(*listing_table(datasets))
    fail_with(dataset["fault"] for dataset in datasets if dataset["fault"])


@click.command()
@names_argument
@manifest_options
@json_option
@pass_paths
def fetch(paths: "Paths", names: tuple[str, ...], manifest: ManifestChoice, as_json: bool) -> None:
    """Fetch the raw files of datasets, those in use if none is named. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import fetch as fetch_datasets

    with progress_bars() as bars:
        making = fetch_datasets(paths, manifest.load(paths), names, bars)
    _print_making(making, paths, as_json)


@click.command()
@names_argument
@manifest_options
@json_option
@pass_paths
def normalize(paths: "Paths", names: tuple[str, ...], manifest: ManifestChoice, as_json: bool) -> None:
    """Make edits, labels and counted drops of fetched datasets, of those in use if none is named."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import normalize as normalize_datasets

    with progress_bars() as bars:
        making = normalize_datasets(paths, manifest.load(paths), names, bars)
    _print_making(making, paths, as_json)


@click.command()
@partition_options
@manifest_options
@json_option
@pass_paths
def split(paths: "Paths", language: str | None, part: str | None, manifest: ManifestChoice, as_json: bool) -> None:
    """Divide the edits of the datasets in use so that nothing leaks, and write the splits."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import split as split_datasets

    with progress_bars() as bars:
        making = split_datasets(paths, manifest.load(paths), language, part, bars)
    _print_making(making, paths, as_json)


@click.command()
@names_argument
@json_option
@pass_paths
def stats(paths: "Paths", names: tuple[str, ...], as_json: bool) -> None:
    """Count edits by language and split, their tokens and licenses, and what was left out why."""
    from graftline.pipeline.dataset_views.stats import stats as count_datasets
    from graftline.pipeline.dataset_views.stats import stats_tables

    datasets = count_datasets(paths, _load_catalog(paths), names)
    if as_json:
        print_json({"datasets": datasets})
        return
    for title, columns, rows in stats_tables(datasets):
        if rows:
            print_table(title, columns, rows)


@click.command()
@names_argument
@json_option
@pass_paths
def verify(paths: "Paths", names: tuple[str, ...], as_json: bool) -> None:
    """Read every stored file of datasets, of the division and of the splits: is it what its record and its pin say?"""
    from graftline.pipeline.dataset_views.verification import verification_table
    from graftline.pipeline.dataset_views.verification import verify as verify_datasets

    verification = verify_datasets(paths, _load_catalog(paths), names)
    if as_json:
        print_json(verification)
    else:
        print_table(*verification_table(verification["findings"]))
    fail_with(verification["faults"])


@click.command()
@click.argument("name", required=False)
@click.option("-n", "number", type=click.IntRange(min=1), default=5, show_default=True, help="How many, at most.")
@partition_options
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds choose equal samples.")
@click.option("--drops", metavar="REASON", help="Show what was left out for this reason, or for all.")
@json_option
@pass_paths
def sample(
    paths: "Paths", name: str | None, number: int, language: str | None, part: str | None, seed: int,
    drops: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show some edits of a dataset as diffs, of all in use if none is named, or some of what was left out."""
    from graftline.pipeline.dataset_views.samples import drops_table, sample_drops, sample_edits

    names = (name,) if name else ()
    if drops is None:
        edits = sample_edits(paths, _load_catalog(paths), names, number, language, part, seed)
        _print_sample("edits", edits, _print_edits, as_json)
    elif language or part:
        raise click.UsageError("--drops goes with neither --language nor --split: what was left out is in no split")
    else:
        rejected = sample_drops(paths, _load_catalog(paths), names, number, drops, seed)
        _print_sample("drops", rejected, lambda rows: print_table(*drops_table(rows)), as_json)


@click.command("export-dvc")
@click.option("--remote", metavar="FOLDER|URL", help="Where to; without it dvc.remote of configs/governance.yaml.")
@json_option
@pass_paths
def export_dvc(paths: "Paths", remote: str | None, as_json: bool) -> None:
    """Copy the artifacts to a DVC remote, and write a .dvc file beside each."""
    from rich.filesize import decimal

    from graftline.core.progress import progress_bars
    from graftline.datasets.dvc import export_dvc as export
    from graftline.datasets.governance import load_governance

    with progress_bars() as bars:
        result = export(paths, remote or load_governance(paths).dvc.remote, bars)
    if as_json:
        print_json(asdict(result))
    else:
        rows = [
            (
                artifact.folder, str(artifact.files), decimal(artifact.size_bytes), str(artifact.copied),
                "yes" if artifact.is_changed else "no",
            )
            for artifact in result.artifacts
        ]  # fmt: skip
        print_table(f"In {result.remote}", ["folder", "files", "size", "copied objects", ".dvc changed"], rows)
    fail_with(result.refused)


@click.command()
@json_option
@pass_paths
def publish(paths: "Paths", as_json: bool) -> None:
    """Log figures and checksums of the artifacts to W&B, as configs/governance.yaml allows it."""
    from graftline.core.secrets import open_secrets
    from graftline.datasets.governance import load_governance
    from graftline.datasets.publishing import publish as publish_datasets

    settings = load_governance(paths).wandb
    result = publish_datasets(paths, settings, open_secrets(os.environ, paths.root), os.environ)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(f"{result.mode}: {result.artifact}, digest {result.digest}, {len(result.files)} files")
    click.echo(f"send it with: wandb sync {result.run}" if result.mode == "offline" else result.run)


COMMANDS = {"datasets": (list_, fetch, normalize, split, stats, verify, sample, export_dvc, publish)}


def _load_catalog(paths: "Paths") -> "Catalog":
    from graftline.pipeline.settings import load_settings

    return load_settings(paths).catalog


def _print_making(making: "BuildReport", paths: "Paths", as_json: bool) -> None:
    if as_json:
        print_json(making.as_dict(paths))
    elif making.built:
        print_table(*making.table())
    for warning in making.warnings():
        click.echo(f"warning: {warning}", err=True)
    fail_with(making.faults)


def _print_sample(kind: str, rows: Sequence[Any], show: Callable[[Sequence[Any]], None], as_json: bool) -> None:
    if as_json:
        print_json({kind: rows})
    elif rows:
        show(rows)
    else:
        click.echo(f"There are no such {kind}.")


def _print_edits(edits: Sequence[Mapping[str, Any]]) -> None:
    from graftline.core.text_diff import escape_controls, unified_diff

    for edit in edits:
        place = "/".join(filter(None, (edit["language"], edit["split"])))
        lines = [(escape_controls(f"{edit['id']}  {place}  {edit['license']}  {edit['origin']}"), "bold")]
        lines += [(line, "italic") for line in escape_controls(edit["instruction"]).split("\n")]
        diff = [escape_controls(line[:-1]) for line in unified_diff(edit["pre"], edit["post"], "before", "after")]
        print_lines([*lines, *style_diff(diff), ("", "")])
