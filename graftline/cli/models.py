"""The commands below `graftline models`: parse, call one function of `graftline.llm.weights`, print."""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import json_option, paths_of, print_table
from graftline.core.errors import GraftlineError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.core.progress import Progress


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@click.pass_obj
def fetch(root: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Fetch the weights of models and check them. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars

    paths = paths_of(root)
    with progress_bars() as bars:
        found = [_fetched(name, paths, bars) for name in dict.fromkeys(names)]
    if as_json:
        _print_json({"models": found})
    elif made := [(one["name"], one["path"]) for one in found if not one["fault"]]:
        print_table("Models", ["model", "path"], made)
    _print_faults([one["fault"] for one in found if one["fault"]])


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """List the models that are known: their licences, where they lie, and whether that was checked."""
    from graftline.llm.weights.stored import stored_models

    found = stored_models(paths_of(root), os.environ)
    if as_json:
        _print_json({"models": [asdict(one) for one in found]})
        return
    columns = ["model", "card", "licence", "bytes", "state", "path", "safetensors"]
    rows = [
        (one.name, one.card, one.licence, f"{one.size_bytes:,}", one.state, str(one.path), str(one.converted or ""))
        for one in found
    ]
    print_table("Models", columns, rows)


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@click.pass_obj
def verify(root: Path | None, names: tuple[str, ...], as_json: bool) -> None:
    """Read the weights of models, of all that are there if none is named: are they what is pinned?"""
    from graftline.llm.weights.stored import verify_models

    found = verify_models(names, paths_of(root), os.environ)
    if as_json:
        _print_json({"checked": [asdict(one) for one in found]})
    else:
        rows = [(one.name, str(one.path), "NO" if one.fault else "yes") for one in found]
        print_table("Models", ["model", "path", "right"], rows)
    _print_faults([f"model {one.name!r}: {one.fault}" for one in found if one.fault])


@click.command()
@click.argument("name")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    help="Python of an environment with torch, transformers, accelerate and gguf.",
)
@json_option
@click.pass_obj
def convert(root: Path | None, name: str, python: Path, as_json: bool) -> None:
    """Make safetensors of the fetched weights of a model, for vLLM."""
    from graftline.llm.weights.convert import convert_model

    folder = convert_model(name, python.absolute(), paths_of(root), os.environ)
    if as_json:
        _print_json({"name": name, "path": str(folder)})
    else:
        click.echo(folder)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", required=True, help="Model of configs/models.yaml that the adapter was trained on.")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), required=True, help="Folder of the artifact.")
@json_option
@click.pass_obj
def adapter(root: Path | None, folder: Path, base: str, into: Path, as_json: bool) -> None:
    """Make GGUF of the LoRA adapter in FOLDER, for llama.cpp."""
    from graftline.llm.weights.lora_gguf import convert_adapter
    from graftline.llm.weights.stored import model_file

    built = convert_adapter(folder, model_file(base, paths_of(root), os.environ), into.absolute())
    file = into / built.record.name
    if as_json:
        _print_json({"base": base, "path": str(file), "layers": built.record.counts["layers"]})
    else:
        click.echo(file)


COMMANDS = (fetch, list_, verify, convert, adapter)


def _fetched(name: str, paths: "Paths", bars: "Progress") -> dict[str, str]:
    from graftline.llm.weights.fetch import fetch_model

    asked: list[str] = []
    bars.start("model", name)
    try:
        path = fetch_model(name, paths, os.environ, bars.advance, asked.append)
    except GraftlineError as error:
        bars.fail()
        return {"name": name, "path": "", "place": "", "fault": str(error)}
    place = asked[-1] if asked else ""
    bars.finish(place and f"from {place}")
    return {"name": name, "path": str(path), "place": place, "fault": ""}


def _print_json(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value, default=str))


def _print_faults(faults: Iterable[str]) -> None:
    """Print what is wrong to standard error, and end with exit code 1 if anything is."""
    found = list(faults)
    for fault in found:
        click.echo(f"error: {fault}", err=True)
    if found:
        raise click.exceptions.Exit(1)
