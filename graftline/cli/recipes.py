"""The commands below `graftline recipes`: recipes of training, and running one with the ports of a manifest."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import changes_of, json_option, manifest_options, overrides_of, paths_of, print_table

if TYPE_CHECKING:
    from graftline.pipeline.runtime import ExperimentSpec, RecipeRun


@click.command("list")
@json_option
@click.pass_obj
def list_(root: Path | None, as_json: bool) -> None:
    """List the recipes that are configured below configs/recipes/."""
    from graftline.pipeline.runtime import description_of
    from graftline.training.recipes.open import configured, load_recipe

    paths = paths_of(root)
    configs = {name: load_recipe(paths, name) for name in configured(paths)}
    if as_json:
        rows = [
            {"name": name, "recipe": one.recipe, "model": one.model, "description": description_of(one)}
            for name, one in configs.items()
        ]
        click.echo(json.dumps({"recipes": rows}))
        return
    print_table(
        "Recipes",
        ["name", "recipe", "model", "does"],
        [(name, one.recipe, one.model, description_of(one)) for name, one in configs.items()],
    )


@click.command()
@click.argument("name")
@json_option
@click.pass_obj
def show(root: Path | None, name: str, as_json: bool) -> None:
    """Show the recipe NAME with all its values, and what it is worked out after."""
    from graftline.pipeline.runtime import Runtime

    _print_spec(Runtime.build_spec(name, root=paths_of(root).root), as_json)


@click.command()
@click.argument("name")
@manifest_options
@click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="A value in place of the recipe's, as learning_rate=1e-3.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done, and stop.")
@json_option
@click.pass_obj
def run(
    root: Path | None,
    name: str,
    manifest: str,
    ports: tuple[str, ...],
    changes: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train by the recipe NAME with the ports of a manifest, and fetch the adapter; what was interrupted goes on."""
    from graftline.pipeline.runtime import Runtime
    from graftline.training.terminal import asked_to_stop, steps_shown
    from graftline.training.train import Interrupted

    paths, overrides = paths_of(root), overrides_of(ports)
    with steps_shown() as shown, asked_to_stop() as is_stopped:
        try:
            done = Runtime.run(
                name,
                changes_of(changes),
                manifest=manifest,
                ports=overrides,
                dry_run=dry_run,
                root=paths.root,
                on_step=shown,
                on_notice=partial(click.echo, err=True),
                is_stopped=is_stopped,
            )
        except Interrupted:
            raise KeyboardInterrupt from None
    _print_run(done, as_json)


def _print_spec(spec: "ExperimentSpec", as_json: bool) -> None:
    if as_json:
        click.echo(spec.model_dump_json())
        return
    click.echo(spec.description)
    print_table(
        f"Recipe {spec.recipe}",
        ["stage", "key", "value"],
        [(stage.name, key, _shown(value)) for stage in spec.stages for key, value in stage.options.items()],
    )
    for source in spec.sources:
        click.echo(f"see {source}")


def _print_run(done: "RecipeRun", as_json: bool) -> None:
    result = done.result
    if result is None:
        if as_json:
            click.echo(json.dumps({"spec": done.spec.model_dump(mode="json"), "wiring": done.wiring}))
            return
        _print_spec(done.spec, as_json)
        ports = {name: dict(settings) for name, settings in done.wiring.items()}
        print_table(
            "Ports",
            ["port", "implementation", "settings"],
            [(name, str(one.pop("kind")), json.dumps(one) if one else "") for name, one in ports.items()],
        )
        return
    if as_json:
        said = {"run_id": result.run_id, "record": str(result.metadata_path), "adapter": str(done.adapter)}
        click.echo(json.dumps({**said, "run": result.run.model_dump(mode="json")}))
        return
    known = result.run
    print_table(
        f"Run {known.run_id}",
        ["", "is"],
        [
            ("status", known.status),
            ("steps", f"{known.next_step} of {known.total_steps}"),
            ("loss, first and last", f"{_shown(known.first_loss)}, {_shown(known.last_loss)}"),
            ("held-out loss, before and after", f"{_shown(known.base_held_out_loss)}, {_shown(known.held_out_loss)}"),
            ("record", str(result.metadata_path)),
            ("adapter", str(done.adapter)),
        ],
    )


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value) if isinstance(value, str | int) else json.dumps(value)


COMMANDS = (list_, show, run)
