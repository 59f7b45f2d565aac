"""The `graftline` command: its groups, its options, and how an error ends it.

Commands are loaded when they are asked for, from the `COMMANDS` of the module that the tables below name.

Exit codes: 0 done, 1 an error with a message, 2 wrong usage, 130 interrupted.
"""

import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from graftline import __version__
from graftline.core.errors import GraftlineError, install_command

INTERRUPTED = 130  # as a shell says it of a process that an interrupt ended
_GROUPS = {
    "actor": ("attempts", "Work through the queue of attempts."),
    "actors": ("models", "Start, stop and look at the servers of language models."),
    "datasets": ("datasets", "Fetch, clean, divide, look at and hand on the datasets."),
    "eval": ("eval", "Have models, adapters and teachers attempt the same tasks, and compare them."),
    "harbor": ("harbor", "Environments as deployments: serve, upload, run and evaluate them."),
    "models": ("models", "Fetch and verify the weights of language models."),
    "prompts": ("prompts", "Make prompts better by what their rollouts come to."),
    "recipes": ("train", "Look at recipes of training, and run one with the ports of a manifest."),
    "rules": ("rules", "Find rules from changes, say what they do, try and apply them."),
    "sandbox": ("sandbox", "Try the jail, apply actions and run tests in it."),
    "state": ("attempts", "Look at what attempts carry from step to step."),
    "tinker": ("models", "Serve a model on this machine to the Tinker SDK."),
    "train": ("train", ""),  # its options and its help stand below
    "trajectories": ("attempts", "Hand trajectories on: for training, and to object storage."),
}
"""Groups of commands: the module that has them, and their help."""
_UNGROUPED = ("check", "doctor", "licenses", "lineage", "run", "summary", "wiring")
"""Commands without a group, of the module `pipeline`."""
_EXTRAS = {
    **dict.fromkeys(("jsonschema", "prometheus_client", "sqlite_vec"), "actors"),
    **dict.fromkeys(("alembic", "docker", "fastapi", "pathspec", "psycopg", "sqlalchemy"), "harbor"),
    **dict.fromkeys(("cyclonedx", "packageurl"), "bom"),
    "daytona": "daytona",
    "gepa": "optimization",
    "redis": "redis",
    **dict.fromkeys(("google", "peft", "safetensors", "starlette", "tinker", "tinker_cookbook"), "training"),
    **dict.fromkeys(("torch", "transformers", "uvicorn", "zstandard"), "training"),
}
"""The extra that brings a library; all others come with `datasets`."""
_EXTRAS_OF_COMMANDS = {"harbor": "harbor"}
"""The extra that brings everything that a command may lack, whatever else brings it too."""
_WARNING_LOGGERS = (
    "graftline.llm.dispatcher",
    "graftline.datasets.sources",
    "graftline.core.download",
    "graftline.core.retry",
    "graftline.harbor.client",
    "graftline.llm.weights",
    "graftline.decontamination",
)
"""Shown without `-v`: why a source or a server is waited for, and that edits are kept away from nothing."""


class _Main(click.Group):
    """Prints a `GraftlineError` as its message alone."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_UNGROUPED])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _UNGROUPED:
            return super().get_command(ctx, cmd_name)
        return next(command for command in _load("pipeline", "") if command.name == cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except GraftlineError as error:
            click.echo(f"error: {error}", err=True)
        except ModuleNotFoundError as error:
            library = (error.name or "graftline").partition(".")[0]
            if library == "graftline":
                raise
            command = ctx.invoked_subcommand or ""
            remedy = install_command(_EXTRAS_OF_COMMANDS.get(command) or _EXTRAS.get(library, "datasets"))
            click.echo(f"error: {error.name} is missing, but {command} needs it; {remedy}", err=True)
        except KeyboardInterrupt:
            click.echo("interrupted; what is finished stays, and the same command goes on from there", err=True)
            raise click.exceptions.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            raise  # the reader has enough, as `head`; click ends without a word
        except OSError as error:
            # a full disk, a folder that may not be written to, a file where a folder should be
            click.echo(f"error: {error.filename or 'the file system'}: {error.strerror or error}", err=True)
        raise click.exceptions.Exit(1)


class _LazyGroup(click.Group):
    """Loads its commands when they are asked for: no other command waits for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [str(command.name) for command in self._load()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return next((command for command in self._load() if command.name == cmd_name), None)

    def _load(self) -> tuple[click.Command, ...]:
        name = str(self.name)
        return _load(_GROUPS[name][0], name)


def _load(module: str, group: str) -> tuple[click.Command, ...]:
    commands: tuple[click.Command, ...] = import_module(f"graftline.cli.{module}").COMMANDS[group]
    return commands


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"]})
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
        _log_to_stderr(root, logging.INFO if verbose else logging.ERROR)


for _name, (_, _help) in _GROUPS.items():
    main.add_command(_LazyGroup(_name, help=_help))


@main.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    no_args_is_help=True,
    subcommand_metavar="COMMAND [ARGS]...",
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
    from graftline.cli.train import open_runs, print_status

    print_status(open_runs(ctx.obj, output), run_id, None, as_json=False)


def _log_to_stderr(root: Path | None, level: int) -> None:
    from graftline.core.secrets import RedactingFilter, local_secrets

    def is_shown(record: logging.LogRecord) -> bool:
        is_warning_logger = record.name.startswith(_WARNING_LOGGERS)
        return record.levelno >= (min(level, logging.WARNING) if is_warning_logger else level)

    handler = logging.StreamHandler()
    folder = root or Path(os.environ.get("GRAFTLINE_ROOT") or Path.cwd())
    handler.addFilter(RedactingFilter(local_secrets(os.environ, folder)))
    # at the handler: what works for long has files of its own, for which more is logged
    handler.addFilter(is_shown)
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s", handlers=[handler])
    # of our own doing only: an HTTP library logs whole addresses, and what is in them
    logging.getLogger("graftline").setLevel(min(level, logging.WARNING))
