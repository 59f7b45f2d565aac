"""The commands below `graftline harbor` that are the service itself: it is served, its database brought up to date."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.harbor_options import FOLDER
from graftline.cli.main import changes_of, json_option, paths_of
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.core.secrets import Secrets
    from graftline.harbor.service.optimizer import Optimizer

_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@")
folder_option = click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="Of its files; data/harbor/service if not given."
)
database_option = click.option(
    "--database", default="", help="sqlite:///… or postgresql://…, without a password; else GRAFTLINE_HARBOR_DATABASE."
)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8020, show_default=True, help="0 for a free one.")
@folder_option
@database_option
@click.option(
    "--executor",
    type=click.Choice(["local", "memory", "docker", "daytona"]),
    default="local",
    show_default=True,
    help="What runs rollouts: jails of this machine, nothing at all, containers, sandboxes of Daytona.",
)
@click.option(
    "--rollouts", type=click.IntRange(1, 4096), default=4, show_default=True, help="How many run at the same time."
)
@click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="A setting of it, as executor.runs_own=true."
)
@click.option(
    "--proposer", default="", metavar="FLEET", help="Fleet that changes of prompts are asked of; none where not given."
)
@json_option
@click.pass_obj
def serve(
    root: Path | None,
    host: str,
    port: int,
    folder: Path | None,
    database: str,
    executor: str,
    rollouts: int,
    changes: tuple[str, ...],
    proposer: str,
    as_json: bool,
) -> None:
    """Serve deployments and their rollouts until interrupted; says where it is, and where its key is."""
    from graftline.core.config import put, validate
    from graftline.core.secrets import open_secrets
    from graftline.harbor.service.serve import KEY_VARIABLE, HarborSettings, serve

    paths = paths_of(root)
    where, secrets = folder or paths.data / FOLDER, open_secrets(os.environ, paths.root)
    given: dict[str, Any] = {"host": host, "port": port, "executor": {"kind": executor}}
    given["service"] = {"rollouts_at_once": rollouts}
    for key, value in changes_of(changes).items():
        put(given, key, value, "--set")
    _refuse_password(database)
    settings = validate(given, HarborSettings, "graftline harbor serve")
    key_from = f"{KEY_VARIABLE} of this command" if secrets.get(KEY_VARIABLE) else str(where / "api_key")

    def started(url: str) -> None:
        said = {"url": url, "executor": executor, "api_key_from": key_from, "folder": str(where)}
        text = f"GRAFTLINE_HARBOR_URL={url}\nthe key: {key_from}\nexecutor {executor}, files below {where}; interrupt to end"
        click.echo(json.dumps(said) if as_json else text)

    with _optimizer(paths, secrets, proposer) as optimizer:
        serve(settings, where, secrets, database, started, optimizer)


@click.command()
@folder_option
@database_option
@json_option
@click.pass_obj
def migrate(root: Path | None, folder: Path | None, database: str, as_json: bool) -> None:
    """Bring the schema of the service's database up to date, and serve nothing."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.service.serve import migrate

    paths = paths_of(root)
    _refuse_password(database)
    shown = migrate(folder or paths.data / FOLDER, open_secrets(os.environ, paths.root), database)
    click.echo(json.dumps({"database": shown}) if as_json else f"{shown}: up to date")


@contextmanager
def _optimizer(paths: "Paths", secrets: "Secrets", fleet: str) -> Iterator["Optimizer"]:
    """Give what carries out prompt optimizations, with the model of a fleet if one is named."""
    from graftline.prompts.service_optimizer import ServiceOptimizer

    if not fleet:
        yield ServiceOptimizer(secrets)
        return
    from graftline.llm.blocking import BlockingChatModel
    from graftline.llm.open import ActorsConfig, open_chat_model

    with BlockingChatModel(open_chat_model(ActorsConfig(fleet=fleet), paths.configs, secrets)) as model:
        yield ServiceOptimizer(secrets, model)


def _refuse_password(database: str) -> None:
    from graftline.harbor.service.serve import DATABASE_VARIABLE

    if _PASSWORD.search(database):
        raise ConfigError(
            f"--database: holds a password, which others of this machine can read; set {DATABASE_VARIABLE}"
        )


COMMANDS = (serve, migrate)
