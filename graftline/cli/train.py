"""The commands below `graftline train` and `graftline recipes`: runs of training, and the recipes they follow."""

import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from graftline.cli.options import (
    CommandT,
    ManifestChoice,
    changes_option,
    find_paths,
    json_option,
    manifest_options,
    pass_paths,
    print_json,
    print_table,
    read_changes,
)

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.pipeline.runtime import ExperimentSpec, RecipeRun
    from graftline.training.runs import Runs, RunState, TrainingRun
    from graftline.training.settings import TinkerTrainingConfig

recipe_changes = changes_option("A value in place of the recipe's, as learning_rate=1e-3.")
download_option = click.option(
    "--download/--no-download", "is_downloading", default=True, show_default=True, help="Fetch the adapter at the end."
)


def recipe_options(command: CommandT) -> CommandT:
    """Add the recipe and what is changed in it."""
    return click.argument("recipe", metavar="RECIPE")(recipe_changes(command))


def backend_option(command: CommandT) -> CommandT:
    """Add the address of the backend."""
    return click.option(
        "--base-url",
        envvar="TINKER_BASE_URL",
        help="Of the backend, as `graftline tinker serve` prints it; the service if not given.",
    )(command)


@click.command()
@recipe_options
@json_option
@pass_paths
def estimate(paths: "Paths", recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Check and render what RECIPE trains on, and count examples, tokens, steps and cost; nothing is sent or paid."""
    _print_estimate(paths, recipe, changes, as_json)


@click.command()
@recipe_options
@json_option
@pass_paths
def upload(paths: "Paths", recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Do what `estimate` does: Tinker stores no datasets, every step of `run` sends its own examples."""
    click.echo(
        f"nothing is uploaded: Tinker stores no datasets, and `graftline train run {recipe}` sends the examples of every step"
        " with it; this is what `graftline train estimate` says",
        err=True,
    )
    _print_estimate(paths, recipe, changes, as_json)


@click.command()
@recipe_options
@backend_option
@click.option("--run-id", help="Of the run; made of recipe and data if not given.")
@download_option
@json_option
@pass_paths
def run(
    paths: "Paths", recipe: str, changes: tuple[str, ...], base_url: str | None, run_id: str | None,
    is_downloading: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train by RECIPE, a file below configs/recipes/; what was interrupted goes on from its last checkpoint."""
    from graftline.harbor.address import is_loopback
    from graftline.pipeline.recipe_models import resolve_checkpoints, store_of
    from graftline.training.open import LocalBackendConfig
    from graftline.training.recipes.open import load_recipe
    from graftline.training.sdk import parse_url

    is_local = is_loopback(urlsplit(parse_url(base_url)).hostname or "")
    store = store_of(LocalBackendConfig(), paths.root) if is_local else None
    config = load_recipe(paths, recipe, read_changes(changes))
    config = resolve_checkpoints(config, paths, open_runs(paths.root), has_checkpoints=True, store=store)
    _train(paths, config, base_url, run_id, is_downloading, as_json)


@click.command()
@click.argument("run_id")
@backend_option
@download_option
@json_option
@pass_paths
def resume(paths: "Paths", run_id: str, base_url: str | None, is_downloading: bool, as_json: bool) -> None:
    """Go on with a run, from its last checkpoint."""
    from graftline.training.recipes.open import restore_config

    run = open_runs(paths.root).get(run_id)
    # older records name what was followed beside the checkpoint that stands for it
    config = restore_config({**run.config, "follows": ""}, f"run {run_id}")
    _train(paths, config, base_url or run.backend, run_id, is_downloading, as_json)


@click.command()
@click.argument("run_id")
@backend_option
@json_option
@click.pass_obj
def status(root: Path | None, run_id: str, base_url: str | None, as_json: bool) -> None:
    """Say how far a run is: what its record says, and what the backend does."""
    print_status(open_runs(root), run_id, base_url, as_json)


def print_status(runs: "Runs", run_id: str, base_url: str | None, as_json: bool) -> None:
    """Print what the record of a run says, and what the backend does."""
    run = runs.get(run_id)
    state, service = runs.state(run), _ask_backend(run, base_url)
    if as_json:
        print_json({**_as_dict(run, state), "service": service})
        return
    expires_at = run.checkpoints[-1].expires_at if run.checkpoints else None
    rows = [*_run_rows(run, state), ("checkpoint expires", expires_at or "never"), ("backend", service)]
    print_table(f"Run {run_id}", ["", "is"], rows)


def _ask_backend(run: "TrainingRun", base_url: str | None) -> str:
    from graftline.core.errors import GraftlineError
    from graftline.training.tinker import TinkerSDKClient

    if not run.attempts:
        return "not asked, for no attempt was made"
    try:
        with TinkerSDKClient(None, base_url or run.backend, deadline_s=30.0) as client:
            remote = client.training_run(run.attempts[-1].training_run)
    except GraftlineError as error:
        return str(error)
    return f"last asked {remote.last_request_time:%Y-%m-%d %H:%M:%S}, {'corrupted' if remote.corrupted else 'well'}"


@click.command("list")
@json_option
@click.pass_obj
def list_runs(root: Path | None, as_json: bool) -> None:
    """List the runs there are records of."""
    runs = open_runs(root)
    states = [(run, runs.state(run)) for run in runs.all()]
    if as_json:
        print_json({"runs": [_as_dict(run, state) for run, state in states]})
        return
    rows = [
        (run.run_id, run.recipe, state.status, f"{run.next_step} of {run.total_steps}", _format_loss(run.last_loss))
        for run, state in states
    ]
    print_table("Runs", ["run", "recipe", "status", "steps", "loss"], rows)


@click.command()
@click.argument("run_id")
@backend_option
@json_option
@pass_paths
def download(paths: "Paths", run_id: str, base_url: str | None, as_json: bool) -> None:
    """Fetch the adapter of a finished run, in the layout of PEFT."""
    folder = _download(paths, open_runs(paths.root).get(run_id), base_url)
    click.echo(json.dumps({"run_id": run_id, "folder": str(folder)}) if as_json else str(folder))


def open_runs(root: Path | None, output: Path | None = None) -> "Runs":
    """Return the records of runs in the folder `output`, or where they are in a checkout."""
    from graftline.training.runs import Runs
    from graftline.training.train import OUTPUT

    return Runs(output or find_paths(root).root / OUTPUT)


@click.command("list")
@json_option
@pass_paths
def list_recipes(paths: "Paths", as_json: bool) -> None:
    """List the recipes that are recipe_names below configs/recipes/."""
    from graftline.pipeline.runtime import description_of
    from graftline.training.recipes.open import load_recipe, recipe_names

    recipes = {name: load_recipe(paths, name) for name in recipe_names(paths)}
    columns = ["name", "recipe", "model", "description"]
    rows = [(name, config.recipe, config.model, description_of(config)) for name, config in recipes.items()]
    if as_json:
        print_json({"recipes": [dict(zip(columns, row, strict=True)) for row in rows]})
    else:
        print_table("Recipes", [*columns[:3], "does"], rows)


@click.command("show")
@click.argument("name")
@json_option
@pass_paths
def show_recipe(paths: "Paths", name: str, as_json: bool) -> None:
    """Show the recipe NAME with all its values, and what it is worked out after."""
    from graftline.pipeline.runtime import Runtime

    _print_spec(Runtime.build_spec(name, root=paths.root), as_json)


@click.command("run")
@click.argument("name")
@manifest_options
@recipe_changes
@click.option("--dry-run", is_flag=True, help="Say what would be done, and stop.")
@json_option
@pass_paths
def run_recipe(
    paths: "Paths", name: str, manifest: ManifestChoice, changes: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Train by the recipe NAME with the ports of a manifest, and fetch the adapter; what was interrupted goes on."""
    from graftline.pipeline.runtime import Runtime
    from graftline.training.loop import Interrupted
    from graftline.training.terminal import step_display, stop_on_interrupt

    with step_display() as show_step, stop_on_interrupt() as is_stopped:
        try:
            result = Runtime.run(
                name,
                read_changes(changes),
                manifest=manifest.name,
                ports=manifest.overrides,
                dry_run=dry_run,
                root=paths.root,
                on_step=show_step,
                on_notice=partial(click.echo, err=True),
                is_stopped=is_stopped,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    _print_recipe_run(result, as_json)


COMMANDS = {
    "train": (estimate, upload, run, status, resume, list_runs, download),
    "recipes": (list_recipes, show_recipe, run_recipe),
}


def _train(
    paths: "Paths", config: "TinkerTrainingConfig", base_url: str | None, run_id: str | None, is_downloading: bool,
    as_json: bool,
) -> None:  # fmt: skip
    from graftline.training.datums import load_tokenizer
    from graftline.training.loop import Interrupted
    from graftline.training.open import tokenizer_source
    from graftline.training.runs import RunState
    from graftline.training.terminal import step_display, stop_on_interrupt
    from graftline.training.train import train_on_tinker

    tokenizer = load_tokenizer(tokenizer_source(config, paths, os.environ))
    with step_display() as show_step, stop_on_interrupt() as is_stopped:
        try:
            result = train_on_tinker(
                config,
                root=paths.root,
                tokenizer=tokenizer,
                base_url=base_url,
                run_id=run_id,
                on_step=show_step,
                on_notice=partial(click.echo, err=True),
                is_stopped=is_stopped,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    run, record = result.run, str(result.metadata_path)
    folder = _download(paths, run, base_url) if is_downloading else None
    if as_json:
        values = {"run_id": result.run_id, "record": record, "adapter": str(folder) if folder else None}
        print_json({**values, "run": run.model_dump(mode="json")})
        return
    rows = [*_run_rows(run, RunState(run.status, run.error)), ("record", record)]
    print_table(f"Run {result.run_id}", ["", "is"], rows)
    if folder:
        click.echo(str(folder))


def _download(paths: "Paths", run: "TrainingRun", base_url: str | None) -> Path:
    from graftline.core.progress import progress_bars
    from graftline.llm.weights.catalog import find_weights
    from graftline.training.adapter import download_adapter
    from graftline.training.tinker import TinkerSDKClient

    with TinkerSDKClient(None, base_url or run.backend) as client, progress_bars() as bars:
        bars.start("model", run.run_id)
        try:
            weights = find_weights(run.config["model"], paths)
            folder = download_adapter(open_runs(paths.root), run, client, weights, bars.advance)
        except BaseException:
            bars.fail()
            raise
        bars.finish("fetched")
    return folder


def _print_estimate(paths: "Paths", recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    from graftline.training.datums import load_tokenizer
    from graftline.training.examples import estimate_training, notice_of_dropped
    from graftline.training.open import tokenizer_source
    from graftline.training.recipes.open import load_recipe, open_recipe

    config = load_recipe(paths, recipe, read_changes(changes))
    data = open_recipe(config).load(paths.root, load_tokenizer(tokenizer_source(config, paths, os.environ)))
    estimate = estimate_training(config, data)
    if notice := notice_of_dropped(config, data):
        click.echo(notice, err=True)
    if as_json:
        print_json(estimate)
        return
    rows = [
        (key.replace("_", " "), f"{value:,}" if isinstance(value, int) else "-" if value in (None, {}) else str(value))
        for key, value in estimate.items()
    ]
    print_table(f"Training data of {recipe}", ["", "is"], rows)


def _as_dict(run: "TrainingRun", state: "RunState") -> dict[str, Any]:
    return {**run.model_dump(mode="json"), "status": state.status, "status_detail": state.detail}


def _run_rows(run: "TrainingRun", state: "RunState") -> list[tuple[str, str]]:
    return [
        ("status", state.status + (f": {state.detail}" if state.detail else "")),
        ("steps", f"{run.next_step} of {run.total_steps}"),
        ("loss, first and last", f"{_format_loss(run.first_loss)}, {_format_loss(run.last_loss)}"),
        (
            "held-out loss, before and after",
            f"{_format_loss(run.base_held_out_loss)}, {_format_loss(run.held_out_loss)}",
        ),
        ("examples", f"{run.examples:,}"),
        ("tokens", f"{run.tokens:,}"),
        ("cost in USD", "-" if run.cost_usd is None else f"{run.cost_usd:.2f}"),
        ("attempts", str(len(run.attempts))),
    ]


def _format_loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _print_spec(spec: "ExperimentSpec", as_json: bool) -> None:
    if as_json:
        click.echo(spec.model_dump_json())
        return
    click.echo(spec.description)
    rows = [(stage.name, key, _format(value)) for stage in spec.stages for key, value in stage.options.items()]
    print_table(f"Recipe {spec.recipe}", ["stage", "key", "value"], rows)
    for source in spec.sources:
        click.echo(f"see {source}")


def _print_recipe_run(recipe_run: "RecipeRun", as_json: bool) -> None:
    result = recipe_run.result
    if result is None and as_json:
        print_json({"spec": recipe_run.spec.model_dump(mode="json"), "wiring": recipe_run.wiring})
    elif result is None:
        _print_spec(recipe_run.spec, as_json)
        ports = {name: dict(settings) for name, settings in recipe_run.wiring.items()}
        rows = [
            (name, str(settings.pop("kind")), json.dumps(settings) if settings else "")
            for name, settings in ports.items()
        ]
        print_table("Ports", ["port", "implementation", "settings"], rows)
    elif as_json:
        values = {"run_id": result.run_id, "record": str(result.metadata_path), "adapter": str(recipe_run.adapter)}
        print_json({**values, "run": result.run.model_dump(mode="json")})
    else:
        run = result.run
        facts = [
            ("status", run.status),
            ("steps", f"{run.next_step} of {run.total_steps}"),
            ("loss, first and last", f"{_format(run.first_loss)}, {_format(run.last_loss)}"),
            ("held-out loss, before and after", f"{_format(run.base_held_out_loss)}, {_format(run.held_out_loss)}"),
            ("record", str(result.metadata_path)),
            ("adapter", str(recipe_run.adapter)),
        ]
        print_table(f"Run {run.run_id}", ["", "is"], facts)


def _format(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, str | int) else json.dumps(value)
