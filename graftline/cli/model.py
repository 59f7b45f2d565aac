"""The commands below `graftline model`: the weights of language models, and the servers of a fleet."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.options import FILE, FOLDER, CommandT, Output, output_option, pass_paths, tabulate
from graftline.core.errors import ConfigError, GraftlineError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.core.progress import Progress
    from graftline.core.secrets import Secrets
    from graftline.llm.fleet import Fleet
    from graftline.llm.servers.processes import ActorStatus
    from graftline.llm.weights.merge_gguf import Packing


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@output_option
@pass_paths
def fetch(paths: "Paths", names: tuple[str, ...]) -> Output:
    """Fetch the weights of models and check them. An interrupted download goes on where it was."""
    from graftline.core.progress import progress_bars

    with progress_bars() as bars:
        results = [_fetch(name, paths, bars) for name in dict.fromkeys(names)]
    fetched = [result for result in results if not result["fault"]]
    tables = [tabulate("Models", fetched, {"name": "model", "path": "path"})] if fetched else []
    return Output({"models": results}, tables, faults=[result["fault"] for result in results if result["fault"]])


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
@output_option
@pass_paths
def list_(paths: "Paths") -> Output:
    """List the models that are known: their licenses, where they lie, and whether that was checked."""
    from graftline.llm.weights.catalog import list_models

    models = [asdict(model) for model in list_models(paths, os.environ)]
    columns = {"name": "model", "card": "card", "license": "license", "size_bytes": "bytes", "state": "state"}
    places = [
        f"{model['name']}: {model['path']}{', as safetensors ' + str(model['converted']) if model['converted'] else ''}"
        for model in models
        if model["state"] != "missing"
    ]
    return Output({"models": models}, [tabulate("Models", models, columns)], "\n".join(places))


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_option
@pass_paths
def verify(paths: "Paths", names: tuple[str, ...]) -> Output:
    """Read the weights of models, of all that are there if none is named: are they what is pinned?"""
    from graftline.llm.weights.catalog import verify_models

    checks = verify_models(names, paths, os.environ)
    rows = [(check.name, str(check.path), "NO" if check.fault else "yes") for check in checks]
    faults = [f"model {check.name!r}: {check.fault}" for check in checks if check.fault]
    value = {"checked": [asdict(check) for check in checks]}
    return Output(value, [("Models", ["model", "path", "right"], rows)], faults=faults)


@click.command()
@click.argument("name")
@click.option(
    "--python", type=FILE, required=True, help="Python of an environment with torch, transformers, accelerate and gguf."
)
@output_option
@pass_paths
def convert(paths: "Paths", name: str, python: Path) -> Output:
    """Make safetensors of the fetched weights of a model, for vLLM."""
    from graftline.llm.weights.convert import convert_model

    folder = convert_model(name, python.absolute(), paths, os.environ)
    return Output({"name": name, "path": folder}, text=str(folder))


@click.command("convert-adapter")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", required=True, help="Model of configs/models.yaml that the adapter was trained on.")
@click.option("--output", type=FOLDER, required=True, help="Folder of the artifact.")
@output_option
@pass_paths
def convert_adapter(paths: "Paths", folder: Path, base: str, output: Path) -> Output:
    """Make GGUF of the LoRA adapter in FOLDER, for llama.cpp."""
    from graftline.llm.weights.catalog import model_file
    from graftline.llm.weights.lora_gguf import convert_adapter as convert_to_gguf

    built = convert_to_gguf(folder, model_file(base, paths, os.environ), output.absolute())
    file = output / built.record.name
    return Output({"base": base, "path": file, "layers": built.record.counts["layers"]}, text=str(file))


@click.command()
@click.argument("adapter")
@click.option("--base", help="What it was trained on: a model of configs/models.yaml, or a folder with safetensors.")
@click.option("--output", type=FOLDER, required=True, help="Folder of the model.")
@output_option
@pass_paths
def merge(paths: "Paths", adapter: str, base: str | None, output: Path) -> Output:
    """Add ADAPTER, a folder or a recipe, to the weights of its base: a full model in safetensors."""
    from graftline.llm.weights.catalog import safetensors_folder
    from graftline.llm.weights.merge import merge_adapter

    folder = _find_adapter(paths, adapter)
    base = base or _read_base(folder)
    weights = Path(base) if Path(base).is_dir() else safetensors_folder(base, paths, os.environ)
    built = merge_adapter(folder, weights, output.absolute())
    return Output({"base": base, "path": output, "layers": built.record.counts["layers"]}, text=str(output))


@click.command()
@click.argument("adapter")
@click.option("--gguf", "is_gguf", is_flag=True, help="As one file in GGUF, for llama.cpp; the only form there is.")
@click.option("--base", help="What it was trained on: a model of configs/models.yaml, or a file in GGUF.")
@click.option("--output", type=FOLDER, required=True, help="Folder of the artifact.")
@click.option(
    "--packing", type=click.Choice(["f32", "f16", "bf16", "q8_0"]), default="f16", help="Of the weights that change."
)
@output_option
@pass_paths
def export(
    paths: "Paths", adapter: str, is_gguf: bool, base: str | None, output: Path, packing: "Packing"
) -> Output:  # fmt: skip
    """Add ADAPTER, a folder or a recipe, to the weights of its base, and write the whole model as a file in GGUF."""
    if not is_gguf:
        raise click.UsageError("say --gguf, the form to write; `graftline model merge` writes safetensors")
    from graftline.llm.weights.catalog import model_file
    from graftline.llm.weights.merge_gguf import export_gguf

    folder = _find_adapter(paths, adapter)
    base = base or _read_base(folder)
    weights = Path(base) if Path(base).is_file() else model_file(base, paths, os.environ)
    built = export_gguf(folder, weights, output.absolute(), packing)
    file = output / built.record.name
    return Output({"base": base, "path": file, "layers": built.record.counts["layers"]}, text=str(file))


@click.command("import")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--base", required=True, help="Model that the backend serves, of configs/models.yaml or with --folder.")
@click.option(
    "--folder", "base_folder", type=FOLDER, help="Safetensors of that model, if it is not of configs/models.yaml."
)
@click.option("--store", type=FOLDER, help="Folder of the backend's checkpoints.  [default: data/tinker]")
@output_option
@pass_paths
def import_(paths: "Paths", folder: Path, base: str, base_folder: Path | None, store: Path | None) -> Output:
    """Make a checkpoint of the PEFT adapter in FOLDER, which recipes go on training by `start_from`."""
    from graftline.llm.weights.catalog import safetensors_folder
    from graftline.training.local.peft_import import import_adapter

    weights = base_folder or safetensors_folder(base, paths, os.environ)
    path = import_adapter(folder, weights, base, store or paths.data / "tinker")
    return Output({"base": base, "path": path}, text=path)


def _find_adapter(paths: "Paths", name: str) -> Path:
    """Return the folder of an adapter, which is named itself or by the recipe that ends with it."""
    for folder in (Path(name), paths.adapter(name)):
        if folder.is_dir():
            return folder
    raise ConfigError(
        f"adapter {name!r}: is no folder, and no adapter of a recipe in {paths.adapters}; name one of them"
    )


def _read_base(folder: Path) -> str:
    """Return the name of the model that an adapter of the backend was trained on."""
    try:
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        return str(facts["base_model"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{folder}: does not say what it was trained on; name it by --base") from None


def fleet_option(command: CommandT) -> CommandT:
    """Add `--fleet`."""
    return click.option(
        "--fleet", "name", envvar="GRAFTLINE_FLEET", default="embedded", help="A fleet of configs/vllm_actors.yaml."
    )(command)


@click.command()
@fleet_option
@click.option("--timeout", "wait_s", type=click.FloatRange(0), default=900, help="Seconds to wait for health.")
@output_option
@pass_paths
def serve(paths: "Paths", name: str, wait_s: float) -> Output:
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
    return _show_statuses(name, statuses)


@click.command()
@fleet_option
@output_option
@pass_paths
def stop(paths: "Paths", name: str) -> Output:
    """Stop the actors of a fleet on this machine; what is in flight may finish."""
    from graftline.llm.servers.processes import down as stop_fleet

    outcomes = stop_fleet(paths, name)
    if not outcomes:
        _load_fleet(paths, name)  # an unknown name is a mistake, not a fleet that is down
    lines = [f"{actor}: {outcome}" for actor, outcome in outcomes.items()]
    return Output(outcomes, text="\n".join([*lines, f"{name}: {'down' if outcomes else 'nothing was up'}"]))


@click.command()
@fleet_option
@output_option
@pass_paths
def status(paths: "Paths", name: str) -> Output:
    """Show what the actors of a fleet do. Fails unless all are up."""
    from graftline.llm.servers.processes import fleet_status

    fleet = _load_fleet(paths, name)
    key = _open_secrets(paths).get(fleet.api_key) if fleet.api_key else None
    statuses = fleet_status(paths, name, fleet, key)
    return _show_statuses(name, statuses, is_failure=any(actor.phase != "up" for actor in statuses))


@click.command()
@fleet_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until interrupted.")
@click.option("-n", "--lines", type=click.IntRange(0), default=50, help="How many of the last lines.")
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
    "--output", type=FOLDER, default=Path("deploy"), help="Folder that gets systemd/*.service and supervisord.conf."
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    default=Path("/opt/graftline"),
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


def _show_statuses(name: str, actors: Sequence["ActorStatus"], is_failure: bool = False) -> Output:
    columns = ["actor", "phase", "url", "pid", "up for", "restarts", "running", "waiting", "KV", "prompt", "answer"]
    notes = [f"{actor.name}: {actor.ended}" for actor in actors if actor.phase == "failing"]
    table = (f"Fleet {name}", columns, [_status_row(actor) for actor in actors])
    return Output([asdict(actor) for actor in actors], [table], notes=notes, is_failure=is_failure)


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


COMMANDS = (list_, fetch, verify, serve, status, logs, stop, convert, convert_adapter, merge, export, import_, units)
