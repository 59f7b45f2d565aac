"""The commands below `graftline train`: recipes, and the runs of training that follow them."""

import json
import os
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from graftline.cli.options import (
    FOLDER,
    CommandT,
    Output,
    Table,
    changes_option,
    find_paths,
    format_cell,
    manifest_option,
    output_option,
    pass_paths,
    port_rows,
    tabulate,
)

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.pipeline.runtime import ExperimentSpec
    from graftline.training.runs import Runs, RunState, TrainingRun
    from graftline.training.settings import TinkerTrainingConfig

_PORT = "training_client"
_LISTENS_WITHIN_S = 2.0
download_option = click.option(
    "--download/--no-download", "is_downloading", default=True, help="Fetch the adapter at the end."
)
url_option = click.option(
    "--url",
    help="Address of the service that trains, in place of the manifest's; TINKER_BASE_URL names another for `local`.",
)
ports_option = changes_option("A port in place of the manifest's, as training_client=tinker, or a setting of one.")


def backend_options(command: CommandT) -> CommandT:
    """Add what says where a run is trained."""
    return manifest_option(url_option(command))


@click.command("list")
@output_option
@pass_paths
def list_(paths: "Paths") -> Output:
    """List the recipes below configs/recipes/, and the runs there are records of."""
    from graftline.pipeline.runtime import description_of
    from graftline.training.recipes.open import load_recipe, recipe_names

    recipes = [
        {"name": name, "recipe": config.recipe, "model": config.model, "description": description_of(config)}
        for name, config in ((name, load_recipe(paths, name)) for name in recipe_names(paths))
    ]
    records = _open_runs(paths)
    runs = [_as_dict(run, records.state(run)) for run in records.all()]
    rows = [{**run, "steps": f"{run['next_step']} of {run['total_steps']}"} for run in runs]
    columns = {"run_id": "run", "recipe": "recipe", "status": "status", "steps": "steps", "last_loss": "loss"}
    tables = [
        tabulate("Recipes", recipes, {"name": "name", "recipe": "recipe", "model": "model", "description": "does"}),
        tabulate("Runs", rows, columns),
    ]
    return Output({"recipes": recipes, "runs": runs}, tables)


@click.command()
@click.argument("recipe")
@output_option
@pass_paths
def show(paths: "Paths", recipe: str) -> Output:
    """Show RECIPE with all its values, and what it is worked out after."""
    from graftline.pipeline.runtime import Runtime

    spec = Runtime.build_spec(recipe, root=paths.root)
    return Output(spec.model_dump(mode="json"), [_spec_table(spec)], _describe_spec(spec))


@click.command()
@click.argument("recipe")
@changes_option("A value in place of the recipe's, as learning_rate=1e-3.")
@output_option
@pass_paths
def estimate(paths: "Paths", recipe: str, changes: dict[str, Any]) -> Output:
    """Check and render what RECIPE trains on, and count examples, tokens, steps and cost; nothing is sent or paid."""
    from graftline.training.datums import load_tokenizer
    from graftline.training.examples import estimate_training, notice_of_dropped
    from graftline.training.open import tokenizer_source
    from graftline.training.recipes.open import load_recipe, open_recipe

    config = load_recipe(paths, recipe, changes)
    data = open_recipe(config).load(paths.root, load_tokenizer(tokenizer_source(config, paths, os.environ)))
    counts = estimate_training(config, data)
    if notice := notice_of_dropped(config, data):
        click.echo(notice, err=True)
    rows = [
        (key.replace("_", " "), f"{value:,}" if isinstance(value, int) else "-" if value in (None, {}) else str(value))
        for key, value in counts.items()
    ]
    return Output(counts, [(f"Training data of {recipe}", ["", "is"], rows)])


@click.command()
@click.argument("recipe")
@changes_option("A value in place of the recipe's, as learning_rate=1e-3, or of a port, as training_client=tinker.")
@backend_options
@click.option("--run-id", help="Of the run; made of recipe and data if not given.")
@download_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and stop.")
@output_option
@pass_paths
def run(
    paths: "Paths", recipe: str, changes: dict[str, Any], manifest: str, url: str | None, run_id: str | None,
    is_downloading: bool, dry_run: bool) -> Output:  # fmt: skip
    """Train by RECIPE, a file below configs/recipes/, and fetch the adapter; what was interrupted goes on."""
    from graftline.pipeline.runtime import Runtime

    values, ports = _split_changes(changes)
    ports = _choose_backend(paths, manifest, ports, url)
    if not dry_run:
        return _train(paths, recipe, values, manifest, ports, run_id, is_downloading)
    planned = Runtime.run(recipe, values, manifest=manifest, ports=ports, dry_run=True, root=paths.root)
    tables = [_spec_table(planned.spec), ("Ports", ["port", "implementation", "settings"], port_rows(planned.wiring))]
    value = {"spec": planned.spec.model_dump(mode="json"), "wiring": planned.wiring}
    return Output(value, tables, _describe_spec(planned.spec))


@click.command()
@click.argument("run_id")
@ports_option
@backend_options
@download_option
@output_option
@pass_paths
def resume(
    paths: "Paths", run_id: str, changes: dict[str, Any], manifest: str, url: str | None, is_downloading: bool
) -> Output:
    """Go on with a run from its last checkpoint, where it was trained before."""
    from graftline.training.recipes.open import restore_config

    record = _open_runs(paths).get(run_id)
    # older records name what was followed beside the checkpoint that stands for it
    config = restore_config({**record.config, "follows": ""}, f"run {run_id}")
    ports = _choose_backend(paths, manifest, changes, url or _reachable_backend(record))
    return _train(paths, config.recipe, config, manifest, ports, run_id, is_downloading)


@click.command()
@click.argument("run_id")
@click.option("--url", help="Address of the service that trains; that of the record if not given.")
@click.option("--folder", type=FOLDER, help="Of the records; that of the checkout if not given.")
@output_option
@click.pass_obj
def status(root: Path | None, run_id: str, url: str | None, folder: Path | None) -> Output:
    """Say how far a run is: what its record says, and what the service that trains it does."""
    from graftline.training.runs import Runs

    runs = Runs(folder) if folder else _open_runs(find_paths(root))
    run = runs.get(run_id)
    state, service = runs.state(run), _ask_backend(run, url)
    expires_at = run.checkpoints[-1].expires_at if run.checkpoints else None
    rows = [*_run_rows(run, state), ("checkpoint expires", expires_at or "never"), ("backend", service)]
    return Output({**_as_dict(run, state), "service": service}, [(f"Run {run_id}", ["", "is"], rows)])


@click.command()
@click.argument("run_id")
@ports_option
@backend_options
@output_option
@pass_paths
def download(paths: "Paths", run_id: str, changes: dict[str, Any], manifest: str, url: str | None) -> Output:
    """Fetch the adapter of a finished run, in the layout of PEFT."""
    from graftline.core.progress import progress_bars
    from graftline.llm.weights.catalog import find_weights
    from graftline.pipeline.runtime import Runtime
    from graftline.training.adapter import download_adapter

    runs = _open_runs(paths)
    record = runs.get(run_id)
    model = record.config["model"]
    ports = _choose_backend(paths, manifest, changes, url or _reachable_backend(record))
    with Runtime.build_ports(manifest, ports, root=paths.root) as opened, progress_bars() as bars:
        bars.start("model", run_id)
        try:
            service = opened.training_client_for(model)
            folder = download_adapter(runs, record, service, find_weights(model, paths), bars.advance)
        except BaseException:
            bars.fail()
            raise
        bars.finish("fetched")
    return Output({"run_id": run_id, "folder": folder}, text=str(folder))


COMMANDS = (list_, show, estimate, run, resume, status, download)


def _open_runs(paths: "Paths") -> "Runs":
    from graftline.training.runs import Runs
    from graftline.training.train import OUTPUT

    return Runs(paths.root / OUTPUT)


def _split_changes(changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is of the recipe, and what is of ports: no value of a recipe is called as a port is."""
    from graftline.pipeline.manifests import PORTS
    from graftline.pipeline.ports import RECIPE_PORTS

    ports = {key: value for key, value in changes.items() if key.partition(".")[0] in {*PORTS, *RECIPE_PORTS}}
    return {key: value for key, value in changes.items() if key not in ports}, ports


def _choose_backend(paths: "Paths", manifest: str, ports: dict[str, Any], url: str | None) -> dict[str, Any]:
    """Return `ports` with the service at `url` as what trains, unless they name another; see `--url`."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.training.sdk import BASE_URL_VARIABLE

    if any(key.partition(".")[0] == _PORT for key in ports):
        return ports
    if url is None and load_manifest(paths, manifest).training_client.kind == "local":
        url = os.environ.get(BASE_URL_VARIABLE)
    return {**ports, _PORT: {"kind": "tinker", "base_url": url}} if url else ports


def _reachable_backend(run: "TrainingRun") -> str | None:
    """Return the address in the record of a run; None where it was a backend of this machine that has ended."""
    from graftline.harbor.address import is_loopback

    address = urlsplit(run.backend)
    if is_loopback(address.hostname or ""):
        try:
            socket.create_connection((address.hostname, address.port or 80), _LISTENS_WITHIN_S).close()
        except OSError:
            return None
    return run.backend


def _train(
    paths: "Paths", recipe: str, values: "dict[str, Any] | TinkerTrainingConfig", manifest: str, ports: dict[str, Any],
    run_id: str | None, is_downloading: bool) -> Output:  # fmt: skip
    from graftline.pipeline.runtime import Runtime
    from graftline.rollouts.queue.worker import stop_on_signals
    from graftline.training.loop import Interrupted
    from graftline.training.runs import RunState
    from graftline.training.terminal import END_NOTICE, step_display

    with step_display() as show_step, stop_on_signals(END_NOTICE) as stop:
        try:
            recipe_run = Runtime.run(
                recipe,
                values,
                manifest=manifest,
                ports=ports,
                run_id=run_id,
                is_downloading=is_downloading,
                root=paths.root,
                on_step=show_step,
                on_notice=partial(click.echo, err=True),
                is_stopped=lambda: stop.is_asked,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    result, adapter = recipe_run.result, recipe_run.adapter
    assert result is not None
    facts = {"run_id": result.run_id, "record": result.metadata_path, "adapter": adapter}
    rows = _run_rows(result.run, RunState(result.run.status, result.run.error))
    text = f"its record: {result.metadata_path}" + (f"\n{adapter}" if adapter else "")
    return Output(
        {**facts, "run": result.run.model_dump(mode="json")}, [(f"Run {result.run_id}", ["", "is"], rows)], text
    )


def _ask_backend(run: "TrainingRun", url: str | None) -> str:
    from graftline.core.errors import GraftlineError
    from graftline.training.tinker import TinkerSDKClient

    if not run.attempts:
        return "not asked, for no attempt was made"
    try:
        with TinkerSDKClient(None, url or run.backend, deadline_s=30.0) as client:
            remote = client.training_run(run.attempts[-1].training_run)
    except GraftlineError as error:
        return str(error)
    return f"last asked {remote.last_request_time:%Y-%m-%d %H:%M:%S}, {'corrupted' if remote.corrupted else 'well'}"


def _as_dict(run: "TrainingRun", state: "RunState") -> dict[str, Any]:
    return {**run.model_dump(mode="json"), "status": state.status, "status_detail": state.detail}


def _run_rows(run: "TrainingRun", state: "RunState") -> list[tuple[str, str]]:
    return [
        ("status", state.status + (f": {state.detail}" if state.detail else "")),
        ("steps", f"{run.next_step} of {run.total_steps}"),
        ("loss, first and last", f"{format_cell(run.first_loss)}, {format_cell(run.last_loss)}"),
        (
            "held-out loss, before and after",
            f"{format_cell(run.base_held_out_loss)}, {format_cell(run.held_out_loss)}",
        ),
        ("examples", f"{run.examples:,}"),
        ("tokens", f"{run.tokens:,}"),
        ("cost in USD", "-" if run.cost_usd is None else f"{run.cost_usd:.2f}"),
        ("attempts", str(len(run.attempts))),
    ]


def _spec_table(spec: "ExperimentSpec") -> Table:
    rows = [(stage.name, key, _format(value)) for stage in spec.stages for key, value in stage.options.items()]
    return f"Recipe {spec.recipe}", ["stage", "key", "value"], rows


def _describe_spec(spec: "ExperimentSpec") -> str:
    return "\n".join([spec.description, *(f"see {source}" for source in spec.sources)])


def _format(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, str | int) else json.dumps(value)
