"""The `graftline` command: its groups, its options, and how an error ends it.

Commands are loaded when they are asked for, from the `COMMANDS` of the module that the tables below name.

Exit codes: 0 done, 1 an error with a message, 2 wrong usage, 130 interrupted.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from graftline import __version__
from graftline.cli.options import INTERRUPTED, CommandGroup
from graftline.cli.renamed import update_names
from graftline.core.errors import GraftlineError, install_command

_GROUPS = {
    "data": ("data", "Fetch and build the datasets, look at them, and write files for training."),
    "env": ("env", "Serve tasks as environments, and run and evaluate rollouts in them (also `graftline harbor`)."),
    "eval": ("eval", "Have models, adapters and teachers attempt the same tasks, and compare them."),
    "model": ("model", "Fetch the weights of language models, and serve them on this machine."),
    "prompt": ("prompt", "Make prompts better by what their rollouts come to."),
    "sandbox": ("sandbox", "Try the jail of this machine, and apply actions and run tests in it."),
    "state": ("state", "Look at what attempts carry from step to step."),
    "tinker": ("tinker", "Serve a model on this machine to the Tinker SDK."),
    "train": ("train", "Train adapters by recipes, and fetch them."),
    "worker": ("worker", "Work through the queue of attempts."),
}
"""Groups of commands: the module that has them, and their help."""
_SECTIONS: Mapping[str, Sequence[str]] = {
    "Rules from examples": ("refactor", "follow", "learn", "apply", "undo", "test", "explain", "mine", "mcp"),
    "From datasets to adapters": ("run", "status", "data", "train", "eval"),
    "Models, prompts and environments": ("model", "tinker", "prompt", "env", "worker"),
    "This installation": ("doctor", "config", "check", "sandbox", "state"),
    "Where an adapter comes from": ("lineage", "licenses"),
}
"""Every command, as the help lists them."""
_RULES = _SECTIONS["Rules from examples"]
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
_EXTRAS_OF_COMMANDS = {"env": "harbor", "mcp": "mcp"}
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


class _LazyGroup(CommandGroup):
    """Loads its commands when they are asked for: no other command waits for them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._load()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._load().get(cmd_name)

    def _load(self) -> dict[str, click.Command]:
        return _load_commands(_GROUPS[str(self.name)][0])


class _Main(CommandGroup):
    """Prints a `GraftlineError` as its message alone, and understands names that were given up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for names in _SECTIONS.values() for name in names]

    def list_sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        return _SECTIONS

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _GROUPS:
            return _LazyGroup(cmd_name, help=_GROUPS[cmd_name][1])
        module = (
            cmd_name if cmd_name in ("follow", "mcp", "refactor") else "rules" if cmd_name in _RULES else "pipeline"
        )
        return _load_commands(module).get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        args, notices = update_names(self, ctx, args)
        for notice in notices:
            click.echo(f"{notice}; the old name goes with the next version", err=True)
        return super().resolve_command(ctx, args)

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


def _load_commands(module: str) -> dict[str, click.Command]:
    commands: Sequence[click.Command] = import_module(f"graftline.cli.{module}").COMMANDS
    return {str(command.name): command for command in commands}


@click.group(cls=_Main, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__)
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Folder that holds configs/."
)
@click.option("-v", "--verbose", is_flag=True, help="Log to standard error what is done.")
@click.pass_context
def main(ctx: click.Context, root: Path | None, verbose: bool) -> None:
    """Rules from examples of code edits, and small models that learn to write them.

    Begin with `graftline learn BEFORE AFTER`, or with `graftline run`, which makes everything from datasets to adapters.
    """
    ctx.obj = root
    if ctx.invoked_subcommand:
        _log_to_stderr(root, logging.INFO if verbose else logging.ERROR)


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
