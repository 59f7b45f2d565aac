"""The `graftline` command. Parses, loads configuration, calls one function, prints a table or one line of JSON.

The commands below a group, such as `graftline datasets`, are in the module of that name, `graftline.cli.datasets`.

Exit codes: 0 done, 1 an error with a message, 2 wrong usage, 130 interrupted.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graftline import __version__
from graftline.core.errors import ConfigError, GraftlineError

if TYPE_CHECKING:
    from graftline.core.paths import Paths

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_EXTRAS = {
    **dict.fromkeys(("jsonschema", "prometheus_client", "sqlite_vec"), "actors"),
    **dict.fromkeys(("alembic", "docker", "fastapi", "pathspec", "psycopg", "sqlalchemy"), "harbor"),
    **dict.fromkeys(("cyclonedx", "packageurl"), "bom"),
    "daytona": "daytona",
    "gepa": "optimization",
    "redis": "redis",
    **dict.fromkeys(("google", "peft", "pyrage", "safetensors", "starlette", "tinker", "tinker_cookbook"), "training"),
    **dict.fromkeys(("torch", "transformers", "uvicorn", "zstandard"), "training"),
}
"""What brings a library that is missing; all others come with `datasets`."""
_OF_COMMANDS = {"harbor": "harbor"}
"""What brings everything that a command may lack, whatever else brings it too."""
_LATER = dict.fromkeys(("licences", "lineage"), "graftline.cli.lineage")
"""Commands in modules of their own, loaded when they are asked for."""
_WIDE = 1000
_WARNING = (
    *(
        "graftline.llm.dispatcher",
        "graftline.datasets.sources",
        "graftline.core.download",
        "graftline.core.retry",
        "graftline.harbor.client",
        "graftline.llm.weights",
    ),
    "graftline.decontamination",
)
"""Loggers whose warnings are shown without `-v`: why a home or a server is waited for, and that edits are kept away from nothing."""
_INTERRUPTED = 130  # as a shell says it of a process that an interrupt ended


class _Commands(click.Group):
    """Prints a `GraftlineError` as its message alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _LATER:
            return super().get_command(ctx, cmd_name)
        found: tuple[click.Command, ...] = import_module(_LATER[cmd_name]).COMMANDS
        return next(command for command in found if command.name == cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GraftlineError as error:
            click.echo(f"error: {error}", err=True)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] == "graftline":
                raise
            click.echo(
                f"error: {error.name} is missing, but {ctx.invoked_subcommand} needs it;"
                f" {_extra(error.name, ctx.invoked_subcommand)}",
                err=True,
            )
        except KeyboardInterrupt:
            click.echo("interrupted; what is finished stays, and the same command goes on from there", err=True)
            raise click.exceptions.Exit(_INTERRUPTED) from None
        except BrokenPipeError:
            raise  # who reads has enough, as `head`; click ends without a word
        except OSError as error:
            # a full disk, a folder that may not be written to, a file where a folder should be
            click.echo(f"error: {error.filename or 'the file system'}: {error.strerror or error}", err=True)
        raise click.exceptions.Exit(1)


class _LaterCommands(click.Group):
    """Loads its commands when they are asked for: no other command waits for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(command.name) for command in self._commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return next((command for command in self._commands() if command.name == cmd_name), None)

    def _commands(self) -> tuple[click.Command, ...]:
        found: tuple[click.Command, ...] = import_module(f"graftline.cli.{self.name}").COMMANDS
        return found


def json_option(command: CommandT) -> CommandT:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")(command)


def manifest_options(command: CommandT) -> CommandT:
    """Add `--manifest` and `--port`."""
    command = click.option(
        "--port", "ports", multiple=True, metavar="PORT[.KEY]=VALUE", help="Replace a port or one of its settings."
    )(command)
    return click.option(
        "--manifest", envvar="GRAFTLINE_MANIFEST", default="local", show_default=True, help="local, dev, prod or test."
    )(command)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__)
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder that holds configs/."
)
@click.option("-v", "--verbose", is_flag=True, help="Log to standard error what is done.")
@click.pass_context
def main(ctx: click.Context, root: Path | None, verbose: bool) -> None:
    """Verified training data for an ast-grep refactoring agent."""
    ctx.obj = root
    if ctx.invoked_subcommand:
        _log(root, logging.INFO if verbose else logging.ERROR)


@main.command()
@json_option
def doctor(as_json: bool) -> None:
    """Say what this machine can do, and how to get what is missing. Fails if the embedded default cannot run."""
    from graftline.pipeline.doctor import examine

    findings = examine(os.environ)
    if as_json:
        click.echo(json.dumps({finding.name: asdict(finding) for finding in findings}))
    else:
        rows = [
            (_mark(found.is_there, found.is_needed), found.name, found.detail, "" if found.is_there else found.remedy)
            for found in findings
        ]
        print_table("This machine", ["", "what", "found", "to get it"], rows)
    if any(finding.is_needed and not finding.is_there for finding in findings):
        raise click.exceptions.Exit(1)


@main.command()
@manifest_options
@json_option
@click.pass_obj
def wiring(root: Path | None, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Print what a manifest would wire behind each port, without opening anything."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.pipeline.ports import describe

    described = describe(load_manifest(paths_of(root), manifest, overrides_of(ports)))
    if as_json:
        click.echo(json.dumps(described))
        return
    rows = [
        (port, str(settings.pop("kind")), json.dumps(settings) if settings else "")
        for port, settings in described.items()
    ]
    print_table(f"Manifest {manifest}", ["port", "implementation", "settings"], rows)


@main.command()
@manifest_options
@json_option
@click.option("--dry-run", is_flag=True, help="Print the ports that would be wired and stop.")
@click.pass_context
def run(ctx: click.Context, manifest: str, ports: tuple[str, ...], as_json: bool, dry_run: bool) -> None:
    """Make every stage from the datasets to adapters that is not up to date, without Dagster."""
    if dry_run:
        ctx.invoke(wiring, manifest=manifest, ports=ports, as_json=as_json)
        return
    from graftline.core.progress import progress_bars
    from graftline.pipeline.run import run_all

    with progress_bars() as bars:
        run_all(paths_of(ctx.obj), manifest, overrides_of(ports), bars)
    ctx.invoke(summary, as_json=as_json)


@main.command()
@json_option
@click.pass_obj
def summary(root: Path | None, as_json: bool) -> None:
    """Show what is stored, and what the last run made or found unchanged."""
    from graftline.pipeline.summary import summarize, tables, verdict

    paths = paths_of(root)
    found = summarize(paths)
    if as_json:
        click.echo(json.dumps(found.as_dict()))
        return
    for title, columns, rows in tables(found):
        print_table(title, columns, rows)
    for warning in found.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(verdict(found))
    click.echo(f"Files are in {paths.data}, reports in {paths.reports}. `make ui` opens the lineage in a browser.")


@main.command()
@json_option
@click.option("--inputs", is_flag=True, help="Only what a run starts from: configuration and samples.")
@click.pass_obj
def check(root: Path | None, as_json: bool, inputs: bool) -> None:
    """Check the configuration, the samples, and every stored artifact against its record."""
    from graftline.pipeline.provenance.audit import audit

    report = audit(paths_of(root), os.environ.get("GRAFTLINE_MANIFEST", "local"), inputs_only=inputs)
    if as_json:
        click.echo(json.dumps({"checked": report.checked, "faults": report.faults}))
    else:
        for fault in report.faults:
            click.echo(fault, err=True)
        click.echo(f"{report.checked} checked, {len(report.faults)} faulty")
    if report.faults:
        raise click.exceptions.Exit(1)


@main.group(cls=_LaterCommands)
def datasets() -> None:
    """Fetch, clean, divide, look at and hand on the datasets."""


@main.group(cls=_LaterCommands)
def models() -> None:
    """Fetch and verify the weights of language models."""


@main.group(cls=_LaterCommands)
def actors() -> None:
    """Start, stop and look at the servers of language models."""


@main.group(cls=_LaterCommands)
def actor() -> None:
    """Work through the queue of attempts."""


@main.group(cls=_LaterCommands)
def state() -> None:
    """Look at what attempts carry from step to step."""


@main.group(cls=_LaterCommands)
def trajectories() -> None:
    """Hand trajectories on: for training, and to object storage."""


@main.group(
    cls=_LaterCommands, invoke_without_command=True, no_args_is_help=True, subcommand_metavar="COMMAND [ARGS]..."
)
@click.option("--status", "run_id", metavar="RUN_ID", help="Say how far a run is, as `graftline train status` does.")
@click.option(
    "--output", type=click.Path(path_type=Path, file_okay=False), help="With --status: the folder of the records."
)
@click.pass_context
def train(ctx: click.Context, run_id: str | None, output: Path | None) -> None:
    """Train adapters through the Tinker SDK, and fetch them."""
    if ctx.invoked_subcommand is not None:
        if run_id is not None or output is not None:
            raise click.UsageError(f"--status and --output do not go with {ctx.invoked_subcommand}; leave one out")
        return
    if run_id is None:
        raise click.UsageError("--output says where the run of --status is; name one")
    from graftline.cli.train import print_status, runs_of

    print_status(runs_of(ctx.obj, output), run_id, None, as_json=False)


@main.group(cls=_LaterCommands)
def recipes() -> None:
    """Look at recipes of training, and run one with the ports of a manifest."""


@main.group(cls=_LaterCommands)
def prompts() -> None:
    """Make prompts better by what their rollouts come to."""


@main.group(cls=_LaterCommands)
def tinker() -> None:
    """Serve a model on this machine to the Tinker SDK."""


@main.group(cls=_LaterCommands)
def harbor() -> None:
    """Environments as deployments: serve, upload, run and evaluate them."""


@main.group("eval", cls=_LaterCommands)
def eval_() -> None:
    """Have models, adapters and teachers attempt the same tasks, and compare them."""


@main.group(cls=_LaterCommands)
def rules() -> None:
    """Find rules from changes, say what they do, try and apply them."""


@main.group(cls=_LaterCommands)
def sandbox() -> None:
    """Try the jail, apply actions and run tests in it."""


def paths_of(root: Path | None) -> "Paths":
    """Return the folders below `root`, or below the one that is found."""
    from graftline.core.paths import Paths, find_root

    return Paths(root.resolve() if root else find_root(os.environ))


def overrides_of(ports: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--port` says by dotted key."""
    overrides = {}
    for given in ports:
        key, separator, value = given.partition("=")
        if not separator:
            raise click.UsageError(f"--port {given!r}: expected PORT=IMPLEMENTATION or PORT.KEY=VALUE")
        overrides[key] = _plain(value)
    return overrides


def changes_of(given: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--set` says by dotted key.

    Raises:
        ConfigError: something is no `KEY=VALUE`, or a value no YAML.
    """
    from graftline.core.config import parse_yaml

    changes = {}
    for change in given:
        key, separator, value = change.partition("=")
        if not separator:
            raise ConfigError(f"--set {change!r}: KEY=VALUE was expected, as learning_rate=1e-3")
        changes[key] = parse_yaml(value, f"--set {key}")
    return changes


def _plain(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _log(root: Path | None, level: int) -> None:
    from graftline.core.secrets import RedactingFilter, local_secrets

    handler = logging.StreamHandler()
    folder = root or Path(os.environ.get("GRAFTLINE_ROOT") or Path.cwd())
    handler.addFilter(RedactingFilter(local_secrets(os.environ, folder)))
    # at the handler: what works for long has files of its own, for which more is logged
    handler.addFilter(lambda record: record.levelno >= _level_of(record.name, level))
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s", handlers=[handler])
    # of our own doing only: an HTTP library logs whole addresses, and what is in them
    logging.getLogger("graftline").setLevel(min(level, logging.WARNING))


def _extra(library: str, command: str | None) -> str:
    from graftline.core.errors import install_command

    extra = _OF_COMMANDS.get(command or "") or _EXTRAS.get(library.partition(".")[0], "datasets")
    return install_command(extra)


def _level_of(logger: str, level: int) -> int:
    return min(level, logging.WARNING) if logger.startswith(_WARNING) else level


def _mark(is_there: bool, is_needed: bool) -> str:
    return "yes" if is_there else "MISSING" if is_needed else "no"


def print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print `rows` to standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # without a terminal there is no width to keep to, and folded cells are hard to read and to search
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
