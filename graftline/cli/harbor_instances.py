"""The commands below `graftline harbor instances`: the seeds of a deployment."""

from pathlib import Path

import click

from graftline.cli.harbor_options import (
    MOST_SEEDS,
    STATUS,
    backend_option,
    seeds_option,
    service_of,
    wait_option,
    waiting,
)
from graftline.cli.harbor_printing import print_instances
from graftline.cli.main import json_option


@click.group()
def instances() -> None:
    """Make, list and build the instances of a deployment: one per seed."""


@instances.command()
@click.argument("deployment")
@click.option("--count", type=click.IntRange(1, MOST_SEEDS), help="So many seeds from --start-seed on.")
@click.option("--start-seed", type=click.IntRange(0), default=0, show_default=True, help="The first one of --count.")
@seeds_option("These seeds, in place of --count.")
@wait_option
@backend_option
@json_option
@click.pass_obj
def create(
    root: Path | None,
    deployment: str,
    count: int | None,
    start_seed: int,
    seeds: list[int] | None,
    is_waiting: bool,
    backend_url: str,
    as_json: bool,
) -> None:
    """Make the instances of seeds; those that are there stay as they are."""
    from graftline.harbor.instances import create_harbor_instances

    if (count is None) == (seeds is None):
        raise click.UsageError("expected --count or --seeds, and not both")
    service = service_of(root, backend_url)
    ref = service.deployment(deployment)
    with waiting(f"instances of {deployment}"):
        found = create_harbor_instances(
            ref.deployment_id, count, ref.backend_url, ref.api_key, start_seed, seeds, wait_for_ready=is_waiting
        )
    print_instances(deployment, found, as_json)


@instances.command("list")
@click.argument("deployment")
@click.option("--status", type=STATUS, help="Only those of one status.")
@backend_option
@json_option
@click.pass_obj
def list_instances(root: Path | None, deployment: str, status: str | None, backend_url: str, as_json: bool) -> None:
    """List the instances of a deployment, by seed."""
    from graftline.harbor.instances import list_harbor_instances

    ref = service_of(root, backend_url).deployment(deployment)
    found = list_harbor_instances(ref.deployment_id, status, ref.backend_url, ref.api_key)
    print_instances(deployment, found, as_json)


@instances.command("build")
@click.argument("deployment")
@backend_option
@json_option
@click.pass_obj
def build_instances(root: Path | None, deployment: str, backend_url: str, as_json: bool) -> None:
    """Have what the instances of a deployment need built; it does not wait for that."""
    from graftline.harbor.instances import build_harbor_instances

    ref = service_of(root, backend_url).deployment(deployment)
    found = build_harbor_instances(ref.deployment_id, ref.backend_url, ref.api_key)
    text = f"{found.ready_count} of {found.total_instances} instances are ready"
    click.echo(found.model_dump_json() if as_json else text)
