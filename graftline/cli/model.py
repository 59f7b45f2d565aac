"""The commands below `graftline model`: the weights of language models, and the servers of a fleet."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.options import (
    FILE,
    FOLDER,
    CommandT,
    fail_with,
    json_option,
    pass_paths,
    print_json,
    print_table,
)
from graftline.core.errors import ConfigError, GraftlineError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.core.progress import Progress
    from graftline.core.secrets import Secrets
    from graftline.llm.fleet import Fleet
    from graftline.llm.servers.processes import ActorStatus


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@json_option
@pass_paths
def fetch(paths: "Paths", names: tuple[str, ...], as_json: bool) -> None:
    """Fetch the weights of models and check them. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars

    with progress_bars() as bars:
        results = [_fetch(name, paths, bars) for name in dict.fromkeys(names)]
    if as_json:
        print_json({"models": results})
    elif rows := [(result["name"], result["path"]) for result in results if not result["fault"]]:
        print_table("Models", ["model", "path"], rows)
    fail_with(result["fault"] for result in results if result["fault"])


def _fetch(name: str, paths: "Paths", bars: "Progress") -> dict[str, str]:
    from graftline.llm.weights.fetch import fetch_model

    places: list[str] = []
    bars.start("model", name)
    try:
        path = fetch_model(name, paths, os.environ, bars.advance, places.append)
    except GraftlineError as error:
        bars.fail()
        return {"name": name, "path": "", "place": "", "fault": str(error)}
    place = places[-1] if places else ""
    bars.finish(place and f"from {place}")
    return {"name": name, "path": str(path), "place": place, "fault": ""}


@click.command("list")
@json_option
@pass_paths
def list_(paths: "Paths", as_json: bool) -> None:
    """List the models that are known: their licenses, where they lie, and whether that was checked."""
    from graftline.llm.weights.catalog import list_models

    models = list_models(paths, os.environ)
    if as_json:
        print_json({"models": [asdict(model) for model in models]})
        return
    columns = ["model", "card", "license", "bytes", "state"]
    rows = [(model.name, model.card, model.license, f"{model.size_bytes:,}", model.state) for model in models]
    print_table("Models", columns, rows)
    for model in models:
        if model.state != "missing":
            click.echo(f"{model.name}: {model.path}{f', as safetensors {model.converted}' if model.converted else ''}")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@json_option
@pass_paths
def verify(paths: "Paths", names: tuple[str, ...], as_json: bool) -> None:
    """Read the weights of models, of all that are there if none is named: are they what is pinned?"""
    from graftline.llm.weights.catalog import verify_models

    checks = verify_models(names, paths, os.environ)
    if as_json:
        print_json({"checked": [asdict(check) for check in checks]})
    else:
        rows = [(check.name, str(check.path), "NO" if check.fault else "yes") for check in checks]
        print_table("Models", ["model", "path", "right"], rows)
    fail_with(f"model {check.name!r}: {check.fault}" for check in checks if check.fault)


@click.command()
@click.argument("name")
@click.option(
    "--python", type=FILE, required=True, help="Python of an environment with torch, transformers, accelerate and gguf."
)
@json_option
@pass_paths
def convert(paths: "Paths", name: str, python: Path, as_json: bool) -> None:
    """Make safetensors of the fetched weights of a model, for vLLM."""
    from graftline.llm.weights.convert import convert_model

    folder = convert_model(name, python.absolute(), paths, os.environ)
    if as_json:
        print_json({"name": name, "path": str(folder)})
    else:
        click.echo(folder)


@click.command("convert-adapter")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", required=True, help="Model of configs/models.yaml that the adapter was trained on.")
@click.option("--output", type=FOLDER, required=True, help="Folder of the artifact.")
@json_option
@pass_paths
def convert_adapter(paths: "Paths", folder: Path, base: str, output: Path, as_json: bool) -> None:
    """Make GGUF of the LoRA adapter in FOLDER, for llama.cpp."""
    from graftline.llm.weights.catalog import model_file
    from graftline.llm.weights.lora_gguf import convert_adapter as convert_to_gguf

    built = convert_to_gguf(folder, model_file(base, paths, os.environ), output.absolute())
    file = output / built.record.name
    if as_json:
        print_json({"base": base, "path": str(file), "layers": built.record.counts["layers"]})
    else:
        click.echo(file)


def fleet_option(command: CommandT) -> CommandT:
    """Add `--fleet`."""
    return click.option(
        "--fleet",
        "name",
        envvar="GRAFTLINE_FLEET",
        default="embedded",
        show_default=True,
        help="A fleet of configs/vllm_actors.yaml.",
    )(command)


@click.command()
@fleet_option
@click.option(
    "--timeout", "wait_s", type=click.FloatRange(0), default=900, show_default=True, help="Seconds to wait for health."
)
@json_option
@pass_paths
def serve(paths: "Paths", name: str, wait_s: float, as_json: bool) -> None:
    """Start the actors of a fleet that are on this machine, and wait until they are healthy."""
    from rich.console import Console

    from graftline.llm.servers.commands import weights_of
    from graftline.llm.servers.processes import up as start_fleet

    fleet, console = _load_fleet(paths, name), Console(stderr=True)
    weights = weights_of(fleet, paths, os.environ)
    with console.status(f"waiting for the actors of {name}"):

        def show(actor: "ActorStatus") -> None:
            console.out(f"{actor.name}: {actor.phase}", highlight=False)

        statuses = start_fleet(paths, name, fleet, weights, os.environ, _open_secrets(paths), wait_s, show)
        _print_statuses(name, statuses, as_json)


@click.command()
@fleet_option
@json_option
@pass_paths
def stop(paths: "Paths", name: str, as_json: bool) -> None:
    """Stop the actors of a fleet on this machine; what is in flight may finish."""
    from graftline.llm.servers.processes import down as stop_fleet

    outcomes = stop_fleet(paths, name)
    if not outcomes:
        _load_fleet(paths, name)  # an unknown name is a mistake, not a fleet that is down
    if as_json:
        print_json(outcomes)
        return
    for actor, outcome in outcomes.items():
        click.echo(f"{actor}: {outcome}")
    click.echo(f"{name}: {'nothing was up' if not outcomes else 'down'}")


@click.command()
@fleet_option
@json_option
@pass_paths
def status(paths: "Paths", name: str, as_json: bool) -> None:
    """Show what the actors of a fleet do. Fails unless all are up."""
    from graftline.llm.servers.processes import fleet_status

    fleet = _load_fleet(paths, name)
    key = _open_secrets(paths).get(fleet.api_key) if fleet.api_key else None
    statuses = fleet_status(paths, name, fleet, key)
    _print_statuses(name, statuses, as_json)
    if any(actor.phase != "up" for actor in statuses):
        raise click.exceptions.Exit(1)


@click.command()
@fleet_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until interrupted.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many of the last lines."
)
@click.argument("actor")
@pass_paths
def logs(paths: "Paths", name: str, follow: bool, lines: int, actor: str) -> None:
    """Show the log of ACTOR."""
    from graftline.llm.servers.supervisor import log_path

    path = log_path(paths, name, actor)
    if not path.is_file():
        names = ", ".join(sorted(log.stem for log in path.parent.glob("*.log"))) or "none"
        raise ConfigError(f"{path}: actor {actor!r} of fleet {name!r} has no log; those that have one: {names}")
    # with -F it goes on with the next file when the log is rotated
    os.execvp("tail", ["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)])


@click.command()
@fleet_option
@click.option(
    "--output",
    type=FOLDER,
    default=Path("deploy"),
    show_default=True,
    help="Folder that gets systemd/*.service and supervisord.conf.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=Path("/opt/graftline"),
    show_default=True,
    help="Where Graftline and vLLM are on the machines that run the actors.",
)
@pass_paths
def units(paths: "Paths", name: str, output: Path, home: Path) -> None:
    """Write systemd units and a supervisord file for the actors of a fleet."""
    from graftline.llm.servers.commands import weights_below, write_units

    fleet = _load_fleet(paths, name)
    for path in write_units(name, fleet, weights_below(home, fleet, paths), home, output):
        click.echo(str(path))


def _load_fleet(paths: "Paths", name: str) -> "Fleet":
    from graftline.llm.fleet import load_fleet

    return load_fleet(paths.configs, name)


def _open_secrets(paths: "Paths") -> "Secrets":
    from graftline.core.secrets import open_secrets

    return open_secrets(os.environ, paths.root)


def _print_statuses(name: str, actors: Sequence["ActorStatus"], as_json: bool) -> None:
    if as_json:
        print_json([asdict(actor) for actor in actors])
        return
    columns = ["actor", "phase", "url", "pid", "up for", "restarts", "running", "waiting", "KV", "prompt", "answer"]
    print_table(f"Fleet {name}", columns, [_status_row(actor) for actor in actors])
    for actor in actors:
        if actor.phase == "failing":
            click.echo(f"{actor.name}: {actor.ended}", err=True)


def _status_row(actor: "ActorStatus") -> tuple[str, ...]:
    load = actor.load
    cells: list[object] = [
        actor.name,
        actor.phase,
        actor.url,
        actor.pid,
        None if actor.uptime_s is None else timedelta(seconds=actor.uptime_s),
        actor.restarts if actor.pid else None,
        load and load.running,
        load and load.waiting,
        load and load.kv_use is not None and f"{load.kv_use:.0%}",
        load and load.prompt_tokens,
        load and load.completion_tokens,
    ]
    return tuple("" if cell is None or cell is False else str(cell) for cell in cells)


COMMANDS = (list_, fetch, verify, serve, status, logs, stop, convert, convert_adapter, units)
