"""The commands below `graftline actors`: parse, load configuration, call one function, print."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graftline.cli.main import json_option, paths_of, print_table
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.secrets import Secrets
    from graftline.llm.fleet import Fleet
    from graftline.llm.status import ActorStatus

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


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
    "--wait", "wait_s", type=click.FloatRange(0), default=900, show_default=True, help="Seconds to wait for health."
)
@json_option
@click.pass_obj
def up(root: Path | None, name: str, wait_s: float, as_json: bool) -> None:
    """Start the actors of a fleet that are on this machine, and wait until they are healthy."""
    from rich.console import Console

    from graftline.llm.servers.commands import weights_of
    from graftline.llm.servers.processes import up as start

    paths, fleet, console = paths_of(root), _fleet(root, name), Console(stderr=True)
    weights = weights_of(fleet, paths, os.environ)
    with console.status(f"waiting for the actors of {name}"):

        def show(actor: "ActorStatus") -> None:
            console.out(f"{actor.name}: {actor.phase}", highlight=False)

        _print(name, start(paths, name, fleet, weights, os.environ, _secrets(root), wait_s, show), as_json)


@click.command()
@fleet_option
@json_option
@click.pass_obj
def down(root: Path | None, name: str, as_json: bool) -> None:
    """Stop the actors of a fleet on this machine; what is in flight may finish."""
    from graftline.llm.servers.processes import down as stop

    stopped = stop(paths_of(root), name)
    if not stopped:
        _fleet(root, name)  # an unknown name is a mistake, not a fleet that is down
    if as_json:
        click.echo(json.dumps(stopped))
        return
    for actor, how in stopped.items():
        click.echo(f"{actor}: {how}")
    click.echo(f"{name}: {'nothing was up' if not stopped else 'down'}")


@click.command()
@fleet_option
@json_option
@click.pass_obj
def status(root: Path | None, name: str, as_json: bool) -> None:
    """Show what the actors of a fleet do. Fails unless all are up."""
    from graftline.llm.status import fleet_status

    fleet = _fleet(root, name)
    key = _secrets(root).get(fleet.api_key) if fleet.api_key else None
    found = fleet_status(paths_of(root), name, fleet, key)
    _print(name, found, as_json)
    if any(actor.phase != "up" for actor in found):
        raise click.exceptions.Exit(1)


@click.command()
@fleet_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until interrupted.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=50, show_default=True, help="How many of the last lines."
)
@click.argument("actor")
@click.pass_obj
def logs(root: Path | None, name: str, follow: bool, lines: int, actor: str) -> None:
    """Show the log of ACTOR."""
    from graftline.llm.servers.keeper_state import log_path

    path = log_path(paths_of(root), name, actor)
    if not path.is_file():
        known = ", ".join(sorted(found.stem for found in path.parent.glob("*.log"))) or "none"
        raise ConfigError(f"{path}: actor {actor!r} of fleet {name!r} has no log; those that have one: {known}")
    # with -F it goes on with the next file when the log is rotated
    os.execvp("tail", ["tail", "-n", str(lines), *(["-F"] if follow else []), str(path)])


@click.command()
@fleet_option
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
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
@click.pass_obj
def units(root: Path | None, name: str, into: Path, home: Path) -> None:
    """Write systemd units and a supervisord file for the actors of a fleet."""
    from graftline.llm.servers.commands import weights_below
    from graftline.llm.servers.units import write_units

    fleet = _fleet(root, name)
    for path in write_units(name, fleet, weights_below(home, fleet, paths_of(root)), home, into):
        click.echo(str(path))


def _fleet(root: Path | None, name: str) -> "Fleet":
    from graftline.llm.fleet import load_fleet

    return load_fleet(paths_of(root).configs, name)


def _secrets(root: Path | None) -> "Secrets":
    from graftline.core.secrets import open_secrets

    return open_secrets(os.environ, paths_of(root).root)


def _print(name: str, found: Sequence["ActorStatus"], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([asdict(actor) for actor in found]))
        return
    columns = ["actor", "phase", "url", "pid", "up for", "restarts", "running", "waiting", "KV", "prompt", "answer"]
    print_table(f"Fleet {name}", columns, [_row(actor) for actor in found])
    for actor in found:
        if actor.phase == "failing":
            click.echo(f"{actor.name}: {actor.ended}", err=True)


def _row(actor: "ActorStatus") -> tuple[str, ...]:
    load = actor.load
    known: list[object] = [
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
    return tuple("" if value is None or value is False else str(value) for value in known)


COMMANDS = (up, down, status, logs, units)
