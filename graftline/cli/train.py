"""The commands below `graftline train`: parse, load configuration, call one function, print."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import click

from graftline.cli.main import changes_of, json_option, paths_of, print_table

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.training.runs import Runs, RunState, TrainingRun
    from graftline.training.settings import TinkerTrainingConfig
    from graftline.training.train import TinkerTrainingResult

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _config_options(command: CommandT) -> CommandT:
    """Add the recipe and what is changed in it."""
    recipe = click.argument("recipe", metavar="RECIPE")
    changed = click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="A value in place of the recipe's, as learning_rate=1e-3.",
    )
    return recipe(changed(command))


def _backend_options(command: CommandT) -> CommandT:
    """Add the address of the backend."""
    return click.option(
        "--base-url", envvar="TINKER_BASE_URL", help="Of the backend, as `graftline tinker serve` prints it; the service if not given."
    )(command)  # fmt: skip


@click.command()
@_config_options
@json_option
@click.pass_obj
def estimate(root: Path | None, recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Check and render what RECIPE trains on, and count examples, tokens, steps and cost; nothing is sent or paid."""
    _print_estimate(root, recipe, changes, as_json)


@click.command()
@_config_options
@json_option
@click.pass_obj
def upload(root: Path | None, recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Do what `estimate` does: Tinker stores no datasets, every step of `run` sends its own examples."""
    click.echo(
        f"nothing is uploaded: Tinker stores no datasets, and `graftline train run {recipe}` sends the examples of every step"
        " with it; this is what `graftline train estimate` says",
        err=True,
    )
    _print_estimate(root, recipe, changes, as_json)


@click.command()
@_config_options
@_backend_options
@click.option("--run-id", help="Of the run; made of recipe and data if not given.")
@click.option(
    "--download/--no-download", "is_downloading", default=True, show_default=True, help="Fetch the adapter at the end."
)
@json_option
@click.pass_obj
def run(
    root: Path | None,
    recipe: str,
    changes: tuple[str, ...],
    base_url: str | None,
    run_id: str | None,
    is_downloading: bool,
    as_json: bool,
) -> None:
    """Train by RECIPE, a file below configs/recipes/; what was interrupted goes on from its last checkpoint."""
    from graftline.harbor.address import is_loopback
    from graftline.pipeline.recipe_models import resolved, store_of
    from graftline.training.open import LocalBackendConfig
    from graftline.training.sdk import checked_url

    paths = paths_of(root)
    is_here = is_loopback(urlsplit(checked_url(base_url)).hostname or "")
    store = store_of(LocalBackendConfig(), paths.root) if is_here else None
    config = resolved(_config(paths, recipe, changes), paths, runs_of(paths.root), has_checkpoints=True, store=store)
    _train(paths, config, base_url, run_id, is_downloading, as_json)


@click.command()
@click.argument("run_id")
@_backend_options
@click.option(
    "--download/--no-download", "is_downloading", default=True, show_default=True, help="Fetch the adapter at the end."
)
@json_option
@click.pass_obj
def resume(root: Path | None, run_id: str, base_url: str | None, is_downloading: bool, as_json: bool) -> None:
    """Go on with a run, from its last checkpoint."""
    from graftline.training.recipes.open import restored

    paths = paths_of(root)
    known = runs_of(paths.root).get(run_id)
    # older records name what was followed beside the checkpoint that stands for it
    config = restored({**known.config, "follows": ""}, f"run {run_id}")
    _train(paths, config, base_url or known.backend, run_id, is_downloading, as_json)


@click.command()
@click.argument("run_id")
@_backend_options
@json_option
@click.pass_obj
def status(root: Path | None, run_id: str, base_url: str | None, as_json: bool) -> None:
    """Say how far a run is: what its record says, and what the backend does."""
    print_status(runs_of(root), run_id, base_url, as_json)


def print_status(runs: "Runs", run_id: str, base_url: str | None, as_json: bool) -> None:
    """Print what the record of a run says, and what the backend does."""
    from graftline.core.errors import GraftlineError
    from graftline.training.tinker import TinkerSDKClient

    known = runs.get(run_id)
    state = runs.state(known)
    service = "not asked, for no attempt was made"
    if known.attempts:
        try:
            with TinkerSDKClient(None, base_url or known.backend, deadline_s=30.0) as client:
                found = client.training_run(known.attempts[-1].training_run)
            service = (
                f"last asked {found.last_request_time:%Y-%m-%d %H:%M:%S}, {'corrupted' if found.corrupted else 'well'}"
            )
        except GraftlineError as error:
            service = str(error)
    if as_json:
        click.echo(json.dumps({**_as_json(known, state), "service": service}))
        return
    expires_at = known.checkpoints[-1].expires_at if known.checkpoints else None
    print_table(
        f"Run {run_id}",
        ["", "is"],
        [*_rows(known, state), ("checkpoint expires", expires_at or "never"), ("backend", service)],
    )


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """List the runs there are records of."""
    runs = runs_of(root)
    states = [(run, runs.state(run)) for run in runs.all()]
    if as_json:
        click.echo(json.dumps({"runs": [_as_json(run, state) for run, state in states]}))
        return
    rows = [
        (run.run_id, run.recipe, state.status, f"{run.next_step} of {run.total_steps}", _loss(run.last_loss))
        for run, state in states
    ]
    print_table("Runs", ["run", "recipe", "status", "steps", "loss"], rows)


@click.command()
@click.argument("run_id")
@_backend_options
@json_option
@click.pass_obj
def download(root: Path | None, run_id: str, base_url: str | None, as_json: bool) -> None:
    """Fetch the adapter of a finished run, in the layout of PEFT."""
    paths = paths_of(root)
    folder = _download(paths, runs_of(paths.root).get(run_id), base_url)
    click.echo(json.dumps({"run_id": run_id, "folder": str(folder)}) if as_json else str(folder))


def _train(
    paths: "Paths",
    config: "TinkerTrainingConfig",
    base_url: str | None,
    run_id: str | None,
    is_downloading: bool,
    as_json: bool,
) -> None:
    from graftline.training.datums import load_tokenizer
    from graftline.training.open import tokenizer_place
    from graftline.training.terminal import asked_to_stop, steps_shown
    from graftline.training.train import Interrupted, train_on_tinker

    tokenizer = load_tokenizer(tokenizer_place(config, paths, os.environ))
    with steps_shown() as shown, asked_to_stop() as is_stopped:
        try:
            result = train_on_tinker(
                config,
                root=paths.root,
                tokenizer=tokenizer,
                base_url=base_url,
                run_id=run_id,
                on_step=shown,
                on_notice=partial(click.echo, err=True),
                is_stopped=is_stopped,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    folder = _download(paths, result.run, base_url) if is_downloading else None
    _print_result(result, folder, as_json)


def _print_result(result: "TinkerTrainingResult", folder: Path | None, as_json: bool) -> None:
    from graftline.training.runs import RunState

    said = {"run_id": result.run_id, "record": str(result.metadata_path), "adapter": str(folder) if folder else None}
    if as_json:
        click.echo(json.dumps({**said, "run": result.run.model_dump(mode="json")}))
        return
    state = RunState(result.run.status, result.run.error)
    print_table(f"Run {result.run_id}", ["", "is"], [*_rows(result.run, state), ("record", str(result.metadata_path))])
    if folder:
        click.echo(str(folder))


def _download(paths: "Paths", known: "TrainingRun", base_url: str | None) -> Path:
    from graftline.core.progress import progress_bars
    from graftline.llm.weights.catalog import find_weights
    from graftline.training.adapter import download_adapter
    from graftline.training.tinker import TinkerSDKClient

    with TinkerSDKClient(None, base_url or known.backend) as client, progress_bars() as bars:
        bars.start("model", known.run_id)
        try:
            weights = find_weights(known.config["model"], paths)
            folder = download_adapter(runs_of(paths.root), known, client, weights, bars.advance)
        except BaseException:
            bars.fail()
            raise
        bars.finish("fetched")
    return folder


def _print_estimate(root: Path | None, recipe: str, changes: tuple[str, ...], as_json: bool) -> None:
    from graftline.training.datums import load_tokenizer
    from graftline.training.examples import estimate_training, notice_of_dropped
    from graftline.training.open import tokenizer_place
    from graftline.training.recipes.open import open_recipe

    paths = paths_of(root)
    config = _config(paths, recipe, changes)
    data = open_recipe(config).load(paths.root, load_tokenizer(tokenizer_place(config, paths, os.environ)))
    estimate = estimate_training(config, data)
    if notice := notice_of_dropped(config, data):
        click.echo(notice, err=True)
    if as_json:
        click.echo(json.dumps(estimate))
        return
    print_table(
        f"Training data of {recipe}",
        ["", "is"],
        [(key.replace("_", " "), _shown(value)) for key, value in estimate.items()],
    )


def _config(paths: "Paths", recipe: str, changes: tuple[str, ...]) -> "TinkerTrainingConfig":
    from graftline.training.recipes.open import load_recipe

    return load_recipe(paths, recipe, changes_of(changes))


def runs_of(root: Path | None, output: Path | None = None) -> "Runs":
    """Return the records of runs in the folder `output`, or where they are in a checkout."""
    from graftline.training.runs import Runs
    from graftline.training.train import OUTPUT

    return Runs(output or paths_of(root).root / OUTPUT)


def _as_json(run: "TrainingRun", state: "RunState") -> dict[str, Any]:
    return {**run.model_dump(mode="json"), "status": state.status, "status_detail": state.detail}


def _rows(known: "TrainingRun", state: "RunState") -> list[tuple[str, str]]:
    return [
        ("status", state.status + (f": {state.detail}" if state.detail else "")),
        ("steps", f"{known.next_step} of {known.total_steps}"),
        ("loss, first and last", f"{_loss(known.first_loss)}, {_loss(known.last_loss)}"),
        ("held-out loss, before and after", f"{_loss(known.base_held_out_loss)}, {_loss(known.held_out_loss)}"),
        ("examples", f"{known.examples:,}"),
        ("tokens", f"{known.tokens:,}"),
        ("cost in USD", "-" if known.cost_usd is None else f"{known.cost_usd:.2f}"),
        ("attempts", str(len(known.attempts))),
    ]


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _shown(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "-" if value is None or value == {} else str(value)


COMMANDS = (estimate, upload, run, status, resume, list_, download)
