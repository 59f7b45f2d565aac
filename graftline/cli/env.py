"""The commands below `graftline env`: the service, and its deployments with their instances.

Not here: what runs rollouts, and what brings tasks in and out (`graftline.cli.env_rollouts`).
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.env_options import (
    MOST_SEEDS,
    SERVICE_FOLDER,
    format_reason,
    open_service,
    pass_service,
    seeds_option,
    show_waiting,
    status_option,
    url_option,
    wait_option,
)
from graftline.cli.env_rollouts import (
    calibrate,
    create_deployment,
    describe_deployments,
    evaluate,
    export,
    import_,
    run,
    show_deployment,
)
from graftline.cli.options import (
    FOLDER,
    CommandGroup,
    Output,
    changes_option,
    find_paths,
    json_option,
    output_option,
    print_json,
    tabulate,
)
from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.core.secrets import Secrets
    from graftline.harbor.messages import HarborInstance
    from graftline.harbor.service.prompt_jobs import Optimizer
    from graftline.harbor.service_connection import ServiceConnection

_MAX_DEPLOYMENTS = 1000
_MAX_SHOWN = 60
"""Instances of a table; JSON has all of them."""
_PASSWORD = re.compile(r"://[^/@:]*:[^/@]+@")
folder_option = click.option("--folder", type=FOLDER, help="Of its files; data/harbor/service if not given.")
database_option = click.option(
    "--database",
    default="",
    show_default=False,
    help="sqlite:///… or postgresql://…, without a password; else GRAFTLINE_HARBOR_DATABASE.",
)


@click.command()
@click.option("--host", default="127.0.0.1", help="A loopback address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8020, help="0 for a free one.")
@folder_option
@database_option
@click.option(
    "--executor",
    type=click.Choice(["local", "memory", "docker", "daytona"]),
    default="local",
    help="What runs rollouts: jails of this machine, nothing at all, containers, sandboxes of Daytona.",
)
@click.option("--concurrency", type=click.IntRange(1, 4096), default=4, help="Rollouts at the same time.")
@changes_option("A setting of it, as executor.runs_own=true.")
@click.option(
    "--proposer",
    default="",
    show_default=False,
    metavar="FLEET",
    help="Fleet that changes of prompts are asked of; none where not given.",
)
@json_option
@click.pass_obj
def serve(
    root: Path | None, host: str, port: int, folder: Path | None, database: str, executor: str, concurrency: int,
    changes: dict[str, Any], proposer: str, as_json: bool,
) -> None:  # fmt: skip
    """Serve deployments and their rollouts until interrupted; says where it is, and where its key is."""
    from graftline.core.config import put, validate
    from graftline.core.secrets import open_secrets
    from graftline.harbor.service.serve import KEY_VARIABLE, HarborSettings, serve

    paths = find_paths(root)
    folder, secrets = folder or paths.data / SERVICE_FOLDER, open_secrets(os.environ, paths.root)
    values: dict[str, Any] = {"host": host, "port": port, "executor": {"kind": executor}}
    values["service"] = {"rollouts_at_once": concurrency}
    for key, value in changes.items():
        put(values, key, value, "--set")
    _refuse_password(database)
    settings = validate(values, HarborSettings, "graftline env serve", tuple(changes))
    key_from = f"{KEY_VARIABLE} of this command" if secrets.get(KEY_VARIABLE) else str(folder / "api_key")

    def announce(url: str) -> None:
        if as_json:
            print_json({"url": url, "executor": executor, "api_key_from": key_from, "folder": str(folder)})
            return
        click.echo(f"GRAFTLINE_HARBOR_URL={url}\nthe key: {key_from}")
        click.echo(f"executor {executor}, files below {folder}; interrupt to end")

    with _open_optimizer(paths, secrets, proposer) as optimizer:
        serve(settings, folder, secrets, database, announce, optimizer, paths.configs)


@click.command()
@folder_option
@database_option
@output_option
@click.pass_obj
def migrate(root: Path | None, folder: Path | None, database: str) -> Output:
    """Bring the schema of the service's database up to date, and serve nothing."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.service.serve import migrate

    paths = find_paths(root)
    _refuse_password(database)
    url = migrate(folder or paths.data / SERVICE_FOLDER, open_secrets(os.environ, paths.root), database)
    return Output({"database": url}, text=f"{url}: up to date")


@contextmanager
def _open_optimizer(paths: "Paths", secrets: "Secrets", fleet: str) -> "Iterator[Optimizer]":
    """Yield what carries out prompt optimizations, with the model of a fleet if one is named."""
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


@click.command()
@click.argument("deployment", metavar="FILE_OR_NAME")
@click.option("--name", help="Of the deployment, in place of the file's.")
@click.option("--build/--no-build", "is_building", default=True, help="Queue its build.")
@wait_option
@url_option
@output_option
@click.pass_obj
def upload(
    root: Path | None, deployment: str, name: str | None, is_building: bool, is_waiting: bool, url: str
) -> Output:
    """Make a deployment of a file of configs/harbor/; the same content again is the version that is there."""
    from graftline.harbor.deployment_file import find_deployment

    configured = find_deployment(deployment, find_paths(root).root)
    with tempfile.TemporaryDirectory() as folder:
        spec = configured.spec(Path(folder), name)
        result = create_deployment(open_service(root, url), spec, is_building, is_waiting)
    is_unknown = configured.file.calibration.is_required and not configured.calibration_path.exists()
    advice = f"its floor and ceiling are not known yet: graftline env calibrate {deployment}"
    return show_deployment(result, advice if is_unknown else "")


@click.command("list")
@status_option
@click.option("--limit", type=click.IntRange(1, _MAX_DEPLOYMENTS), default=50, help="The newest so many.")
@output_option
@pass_service
def list_(service: "ServiceConnection", status: str | None, limit: int) -> Output:
    """List the deployments of the service, newest first."""
    values, table = describe_deployments(service.uploader.list_deployments(status, limit))
    return Output({"deployments": values}, [table])


@click.command()
@click.argument("deployment")
@output_option
@pass_service
def status(service: "ServiceConnection", deployment: str) -> Output:
    """Say what a deployment waits for, with its builds; DEPLOYMENT is its id, or its name for the newest version."""
    result = service.uploader.get_deployment_status(service.deployment(deployment).deployment_id)
    rows = [
        (build.build_id or build.id, build.status, build.snapshot_id or "-", build.error_message or "")
        for build in result.builds
    ]
    text = f"{result.name}, version {result.version} ({result.id}): {result.status}{format_reason(result.error)}"
    return Output(result.model_dump(mode="json"), [("Builds", ["id", "status", "snapshot", "error"], rows)], text)


@click.command()
@click.argument("deployment")
@click.option("--force", "is_forced", is_flag=True, help="Build what is built already.")
@wait_option
@output_option
@pass_service
def build(service: "ServiceConnection", deployment: str, is_forced: bool, is_waiting: bool) -> Output:
    """Have a deployment built, where it is not."""
    uploader = service.uploader
    uploader.trigger_build(service.deployment(deployment).deployment_id, force=is_forced)
    with show_waiting(f"building {deployment}"):
        result = uploader.wait_for_build(deployment) if is_waiting else uploader.get_deployment(deployment)
    return show_deployment(result)


@click.group(cls=CommandGroup)
def instances() -> None:
    """Make, list and build the instances of a deployment: one per seed."""


@instances.command()
@click.argument("deployment")
@click.option("--count", type=click.IntRange(1, MOST_SEEDS), help="So many seeds from --start-seed on.")
@click.option("--start-seed", type=click.IntRange(0), default=0, help="The first one of --count.")
@seeds_option("These seeds, in place of --count.")
@wait_option
@output_option
@pass_service
def create(
    service: "ServiceConnection", deployment: str, count: int | None, start_seed: int, seeds: list[int] | None,
    is_waiting: bool,
) -> Output:  # fmt: skip
    """Make the instances of seeds; those that are there stay as they are."""
    from graftline.harbor.instances import create_harbor_instances

    if (count is None) == (seeds is None):
        raise click.UsageError("expected --count or --seeds, and not both")
    ref = service.deployment(deployment)
    with show_waiting(f"instances of {deployment}"):
        created = create_harbor_instances(
            ref.deployment_id, count, ref.backend_url, ref.api_key, start_seed, seeds, wait_for_ready=is_waiting
        )
    return _show_instances(deployment, created)


@instances.command("list")
@click.argument("deployment")
@status_option
@output_option
@pass_service
def list_instances(service: "ServiceConnection", deployment: str, status: str | None) -> Output:
    """List the instances of a deployment, by seed."""
    from graftline.harbor.instances import list_harbor_instances

    ref = service.deployment(deployment)
    return _show_instances(deployment, list_harbor_instances(ref.deployment_id, status, ref.backend_url, ref.api_key))


@instances.command("build")
@click.argument("deployment")
@output_option
@pass_service
def build_instances(service: "ServiceConnection", deployment: str) -> Output:
    """Have what the instances of a deployment need built; it does not wait for that."""
    from graftline.harbor.instances import build_harbor_instances

    ref = service.deployment(deployment)
    result = build_harbor_instances(ref.deployment_id, ref.backend_url, ref.api_key)
    text = f"{result.ready_count} of {result.total_instances} instances are ready"
    return Output(result.model_dump(mode="json"), text=text)


def _show_instances(deployment: str, instances: Sequence["HarborInstance"]) -> Output:
    values = [instance.model_dump(mode="json") for instance in instances]
    columns = {"seed": "seed", "task_id": "task", "status": "status", "id": "id", "error": "error"}
    ready = sum(instance.status == "ready" for instance in instances)
    more = f", the first {_MAX_SHOWN} are shown" if len(instances) > _MAX_SHOWN else ""
    table = tabulate(f"Instances of {deployment}", values[:_MAX_SHOWN], columns)
    return Output({"instances": values}, [table], f"{ready} of {len(instances)} are ready{more}")


COMMANDS = (
    serve, upload, run, evaluate, import_, export, instances, build, list_, status, calibrate, migrate,
)  # fmt: skip
