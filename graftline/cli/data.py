"""The commands below `graftline data`: datasets from their sources to splits, files for training, and copies elsewhere.

What they print is worked out by `graftline.pipeline.dataset_views`, `graftline.datasets.dvc` and
`graftline.datasets.publishing`.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, cast

import click

from graftline.cli.options import (
    CommandGroup,
    CommandT,
    ManifestChoice,
    Output,
    instructions_option,
    json_option,
    manifest_options,
    output_option,
    pass_paths,
    pluralize,
    print_json,
    print_lines,
    print_table,
    style_diff,
    tabulate,
)

if TYPE_CHECKING:
    from graftline.astgrep.binding import Language
    from graftline.core.paths import Paths
    from graftline.datasets.catalog import Catalog
    from graftline.datasets.splits import Split
    from graftline.pipeline.dataset_views.build import BuildReport
    from graftline.rollouts.task import Instructions


_SHOWN_FILES, _SHOWN_LINES = 3, 24
"""Of a change that spans a repository, and of each file."""


def names_argument(command: CommandT) -> CommandT:
    """Add the names of datasets."""
    return click.argument("names", nargs=-1, metavar="[NAME]...")(command)


def partition_options(command: CommandT) -> CommandT:
    """Add `--language` and `--split`."""
    splits = click.Choice(["train", "dev", "test"])
    command = click.option("--split", "part", type=splits, help="Only this split.")(command)
    return click.option("--language", metavar="LANGUAGE", help="Only this language.")(command)


@click.command("list")
@output_option
@pass_paths
def list_(paths: "Paths") -> Output:
    """List the datasets of the catalog: where they live, on what terms, and what is stored of each; and where changes of
    repositories are read from."""
    from graftline.pipeline.dataset_views.changes import list_sources, sources_table
    from graftline.pipeline.dataset_views.listing import entries, listing_table

    datasets = entries(paths, os.environ)
    changes = list_sources(paths, _load_catalog(paths))
    faults = [dataset["fault"] for dataset in datasets if dataset["fault"]]
    tables = [listing_table(datasets), *([sources_table(changes)] if changes["sources"] else [])]
    return Output({"datasets": datasets, "repository_changes": changes}, tables, faults=faults)


@click.command()
@click.argument("name")
@click.argument("source", metavar="FOLDER|FILE|URL|HUB_NAME")
@click.option("--license", "license_", metavar="SPDX", help="Of rows that do not say theirs, as MIT.")
@click.option(
    "--file", "files", multiple=True, metavar="PATTERN", help="A file of it, or all that fit; any number of times."
)
@click.option(
    "--field", "fields", multiple=True, metavar="PART=COLUMN", help="Which column is before, after or another part."
)
@click.option("--language", help="Of rows that do not say theirs, and whose path does not.")
@click.option("--reader", default="edits", help="How its rows are read; `edits` takes a text before and after.")
@click.option("--version", "revision", help="Of it, as a commit or a date; of the hub, the revision that is fetched.")
@output_option
@pass_paths
def add(
    paths: "Paths", name: str, source: str, license_: str | None, files: tuple[str, ...], fields: tuple[str, ...],
    language: str | None, reader: str, revision: str | None,
) -> Output:  # fmt: skip
    """Add a dataset to configs/datasets.yaml: your own JSON lines or Parquet, or those of the hub."""
    from graftline.core.config import to_yaml
    from graftline.datasets.catalog_entry import add_entry, describe_dataset, warnings_about

    for field in fields:
        if not all(field.partition("=")):
            raise click.UsageError(f"--field {field!r}: expected PART=COLUMN, as before=old_code")
    columns = dict(field.split("=", 1) for field in fields)
    entry = describe_dataset(source, paths.root, reader, license_, files, columns, language, revision)
    dataset = add_entry(paths, name, entry)
    text = f"{to_yaml({name: entry})}is in configs/datasets.yaml; go on with: graftline data fetch {name}"
    return Output({"name": name, **entry}, text=text, notes=warnings_about(paths, name, dataset))


@click.command()
@names_argument
@manifest_options
@output_option
@pass_paths
def fetch(paths: "Paths", names: tuple[str, ...], manifest: ManifestChoice) -> Output:
    """Fetch the raw files of datasets, those in use if none is named. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import fetch as fetch_datasets

    with progress_bars() as bars:
        making = fetch_datasets(paths, manifest.load(paths), names, bars)
    return _show_report(making, paths)


@click.command()
@names_argument
@partition_options
@manifest_options
@output_option
@pass_paths
def build(
    paths: "Paths", names: tuple[str, ...], language: str | None, part: str | None, manifest: ManifestChoice
) -> Output:
    """Make edits of fetched datasets, and splits of those in use. With names, only the edits of those are made."""
    from graftline.core.progress import progress_bars
    from graftline.pipeline.dataset_views.build import build as build_datasets

    if names and (language or part):
        raise click.UsageError(
            "--language and --split choose splits, which are of all datasets in use; name no dataset"
        )
    with progress_bars() as bars:
        report = build_datasets(paths, manifest.load(paths), names, language, part, bars)
    return _show_report(report, paths)


@click.command()
@names_argument
@output_option
@pass_paths
def stats(paths: "Paths", names: tuple[str, ...]) -> Output:
    """Count edits by language and split, their tokens and licenses, and what was left out why; and changes of repositories.

    NAME is that of a dataset, or repository_changes."""
    from graftline.pipeline.dataset_views import changes
    from graftline.pipeline.dataset_views.stats import stats as count_datasets
    from graftline.pipeline.dataset_views.stats import stats_tables

    chosen = [name for name in names if name != changes.NAME]
    datasets = count_datasets(paths, _load_catalog(paths), chosen) if chosen or not names else []
    is_named = changes.NAME in names
    counts = changes.change_stats(paths, is_needed=is_named) if is_named or not names else None
    tables = [*stats_tables(datasets), *(changes.change_tables(counts) if counts else [])]
    value = {"datasets": datasets, **({"repository_changes": counts} if counts else {})}
    return Output(value, [table for table in tables if table[2]])


@click.command()
@names_argument
@output_option
@pass_paths
def verify(paths: "Paths", names: tuple[str, ...]) -> Output:
    """Read every stored file of datasets, of the division and of the splits: is it what its record and its pin say?"""
    from graftline.pipeline.dataset_views.verification import verification_table
    from graftline.pipeline.dataset_views.verification import verify as verify_datasets

    verification = verify_datasets(paths, _load_catalog(paths), names)
    return Output(verification, [verification_table(verification["findings"])], faults=verification["faults"])


@click.command()
@click.argument("name", required=False)
@click.option("-n", "number", type=click.IntRange(min=1), default=5, help="How many, at most.")
@partition_options
@click.option("--seed", type=int, help="Choose by chance, and not what is typical; equal seeds choose equal samples.")
@click.option("--random", "is_random", is_flag=True, help="Choose by chance, others every time.")
@click.option("--rejected", "drops", metavar="REASON", help="Show what was left out for this reason, or for all.")
@json_option
@pass_paths
def show(
    paths: "Paths", name: str | None, number: int, language: str | None, part: str | None, seed: int | None,
    is_random: bool, drops: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show some typical edits of a dataset as diffs, of all in use if none is named, or some of what was left out.

    NAME is that of a dataset, or repository_changes."""
    from graftline.pipeline.dataset_views import changes
    from graftline.pipeline.dataset_views.samples import drops_table, sample_drops, sample_edits

    names = (name,) if name else ()
    if is_random and seed is not None:
        raise click.UsageError("--random chooses a seed of its own; leave out --seed, or --random")
    seed = SystemRandom().randrange(2**31) if is_random else seed
    if drops is None and name == changes.NAME:
        sample = changes.sample_changes(paths, _load_catalog(paths), number, language, part, seed)
        _print_sample("changes", sample, _print_changes, as_json)
    elif drops is None:
        edits = sample_edits(paths, _load_catalog(paths), names, number, language, part, seed)
        _print_sample("edits", edits, _print_edits, as_json)
    elif language or part:
        raise click.UsageError("--rejected goes with neither --language nor --split: what was left out is in no split")
    else:
        if name == changes.NAME:
            rejected = changes.sample_rejected(paths, number, drops, seed or 0)
        else:
            rejected = sample_drops(paths, _load_catalog(paths), names, number, drops, seed or 0)
        _print_sample("drops", rejected, lambda rows: print_table(*drops_table(rows)), as_json)


@click.command()
@click.argument("format", type=click.Choice(["sft", "dpo", "rl", "srl", "atif"]))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--split", type=click.Choice(["train", "dev", "test"]), default="train", help="Whose attempts.")
@click.option("--language", "languages", multiple=True, help="Of this language only; may be given several times.")
@click.option("--teacher", "teachers", multiple=True, help="Of this teacher only; may be given several times.")
@click.option("--prompt", default="brief", help="Name of the prompt in teacher_prompts.yaml by which chats are made.")
@instructions_option
@output_option
@pass_paths
def export(
    paths: "Paths", format: str, target: Path, split: str, languages: tuple[str, ...], teachers: tuple[str, ...],
    prompt: str, instructions: str
) -> Output:  # fmt: skip
    """Write the attempts that count to the file TARGET for training, a JSON object per line."""
    from graftline.pipeline import exports
    from graftline.rollouts.task import describe_left_out

    only_languages = cast("tuple[Language, ...]", languages) or None
    chosen = cast("Split", split), only_languages, teachers or None, cast("Instructions", instructions)
    result = exports.export(paths, format, target, prompt, *chosen)
    value = {
        "file": result.file, "rows": result.rows, "attempts": result.attempts, "left_out": dict(result.left_out)
    }  # fmt: skip
    note = describe_left_out(result.left_out, "attempts")
    text = f"{result.file}: {pluralize(result.rows, 'row')} of {pluralize(result.attempts, 'attempt')}"
    return Output(value, text=text, notes=[note] if note else [])


@click.group(cls=CommandGroup)
def push() -> None:
    """Copy what is stored to a DVC remote, a bucket, or W&B."""


@push.command()
@click.option("--remote", metavar="FOLDER|URL", help="Where to; without it dvc.remote of configs/governance.yaml.")
@output_option
@pass_paths
def dvc(paths: "Paths", remote: str | None) -> Output:
    """Copy the artifacts to a DVC remote, and write a .dvc file beside each."""
    from rich.filesize import decimal

    from graftline.core.progress import progress_bars
    from graftline.datasets.dvc import export_dvc
    from graftline.datasets.governance import load_governance

    with progress_bars() as bars:
        result = export_dvc(paths, remote or load_governance(paths).dvc.remote, bars)
    columns = {
        "folder": "folder",
        "files": "files",
        "size": "size",
        "copied": "copied objects",
        "is_changed": ".dvc changed",
    }
    records = [{**asdict(artifact), "size": decimal(artifact.size_bytes)} for artifact in result.artifacts]
    return Output(asdict(result), [tabulate(f"In {result.remote}", records, columns)], faults=result.refused)


@push.command()
@output_option
@pass_paths
def wandb(paths: "Paths") -> Output:
    """Log figures and checksums of the artifacts to W&B, as configs/governance.yaml allows it."""
    from graftline.core.secrets import open_secrets
    from graftline.datasets.governance import load_governance
    from graftline.datasets.publishing import publish as publish_datasets

    settings = load_governance(paths).wandb
    result = publish_datasets(paths, settings, open_secrets(os.environ, paths.root), os.environ)
    place = f"send it with: wandb sync {result.run}" if result.mode == "offline" else result.run
    text = f"{result.mode}: {result.artifact}, digest {result.digest}, {pluralize(len(result.files), 'file')}\n{place}"
    return Output(asdict(result), text=text)


@push.command()
@manifest_options
@output_option
@pass_paths
def bucket(paths: "Paths", manifest: ManifestChoice) -> Output:
    """Copy the shards of attempts that are not there yet to the blob store of the manifest."""
    from graftline.pipeline.worker import upload_attempts

    result = upload_attempts(paths, manifest.load(paths))
    return Output(result, text=f"{result['sent']} sent ({result['sent_bytes']} bytes), {result['kept']} were there")


COMMANDS = (add, list_, fetch, build, show, stats, verify, export, push)


def _load_catalog(paths: "Paths") -> "Catalog":
    from graftline.pipeline.settings import load_settings

    return load_settings(paths).catalog


def _show_report(report: "BuildReport", paths: "Paths") -> Output:
    for warning in report.warnings():
        click.echo(f"warning: {warning}", err=True)
    return Output(report.as_dict(paths), [report.table()] if report.built else [], faults=report.faults)


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
        instruction = edit["instruction"] or "(no instruction: nothing says what to do)"
        lines += [(line, "italic") for line in escape_controls(instruction).split("\n")]
        diff = [escape_controls(line[:-1]) for line in unified_diff(edit["pre"], edit["post"], "before", "after")]
        print_lines([*lines, *style_diff(diff), ("", "")])


def _print_changes(changes: Sequence[Mapping[str, Any]]) -> None:
    from graftline.core.text_diff import escape_controls, unified_diff

    for change in changes:
        place = f"{change['language']}/{change['split']}"
        hidden = len(change["files"]) - _SHOWN_FILES
        counts = pluralize(change["places"], "place")
        lines = [
            (escape_controls(f"{change['id']}  {place}  {change['license']}  {change['origin']}  {counts}"), "bold")
        ]
        lines += [(line, "italic") for line in escape_controls(change["instruction"]).split("\n")]
        if change["answerable"] is False:
            lines.append(("(this does not say all of the change)", ""))
        for file in change["files"][:_SHOWN_FILES]:
            diff = unified_diff(file["before"], file["after"], file["path"], file["path"])
            lines += style_diff([escape_controls(line[:-1]) for line in islice(diff, _SHOWN_LINES)])
        lines += [(f"... and {pluralize(hidden, 'more file')}", "")] if hidden > 0 else []
        print_lines([*lines, ("", "")])
