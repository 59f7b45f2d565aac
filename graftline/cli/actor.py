"""The commands below `graftline actor`: the worker of the queue, and the jobs that nobody could do."""

import json
from pathlib import Path

import click

from graftline.cli.main import json_option, manifest_options, overrides_of, paths_of, print_table


@click.command()
@manifest_options
@json_option
@click.option("--queue", metavar="NAME", help="Name of the queue, in place of the one of the manifest.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=16, show_default=True, help="Attempts at a time.")
@click.option("--drain-s", type=click.FloatRange(0), default=120.0, show_default=True, help="How long the attempts in flight may go on when it is asked to stop; the rest is given back.")  # fmt: skip
@click.option("--until-empty", is_flag=True, help="End when no job is left.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Of /metrics and /healthz, in place of the one of telemetry.yaml; 0 for a free one.")  # fmt: skip
@click.option("--upload", is_flag=True, help="Put what is stored into the blob store of the manifest, too.")
@click.pass_obj
def run(
    root: Path | None, manifest: str, ports: tuple[str, ...], as_json: bool, queue: str | None, concurrency: int,
    drain_s: float, until_empty: bool, metrics_port: int | None, upload: bool,
) -> None:  # fmt: skip
    """Take attempts off the queue and make them, until it is stopped. SIGTERM lets it finish what is in flight."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.pipeline.worker import ActorRun, run_actor
    from graftline.rollouts.queue.worker import WorkerSettings

    overrides = overrides_of(ports) | ({"queue.name": queue} if queue else {})
    settings = ActorRun(
        worker=WorkerSettings(concurrency=concurrency, drain_s=drain_s, until_empty=until_empty),
        metrics_port=metrics_port,
        is_uploading=upload,
    )
    paths = paths_of(root)
    ended = run_actor(paths, load_manifest(paths, manifest, overrides), settings)
    counts = {str(what): count for what, count in ended.items()}
    click.echo(json.dumps(counts) if as_json else _sentence(counts))


@click.command()
@manifest_options
@json_option
@click.pass_obj
def queue(root: Path | None, manifest: str, ports: tuple[str, ...], as_json: bool) -> None:
    """Say how many jobs the queue has, and which of them nobody could do."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.pipeline.worker import queue_state

    paths = paths_of(root)
    depth, dead = queue_state(paths, load_manifest(paths, manifest, overrides_of(ports)))
    counts = {"waiting": depth.waiting, "in_flight": depth.in_flight, "done": depth.done, "dead": depth.dead}
    if as_json:
        letters = [{"key": letter.job.key, "tries": letter.tries, "reason": letter.reason} for letter in dead]
        click.echo(json.dumps({**counts, "dead_letters": letters}))
        return
    print_table("Queue", list(counts), [tuple(map(str, counts.values()))])
    if dead:
        rows = [(letter.job.key, str(letter.tries), letter.reason) for letter in dead]
        print_table("Dead letters", ["job", "tries", "reason"], rows)


@click.command()
@manifest_options
@click.argument("keys", nargs=-1)
@click.pass_obj
def revive(root: Path | None, manifest: str, ports: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Let dead letters wait again, as if they had never been tried; without KEYS, all of them."""
    from graftline.pipeline.manifests import load_manifest
    from graftline.pipeline.worker import revive as revived

    paths = paths_of(root)
    count = revived(paths, load_manifest(paths, manifest, overrides_of(ports)), keys)
    click.echo(f"{count} {'waits' if count == 1 else 'wait'} again")


def _sentence(ended: dict[str, int]) -> str:
    return ", ".join(f"{count} {what.replace('_', ' ')}" for what, count in sorted(ended.items())) or "no job"


COMMANDS = (queue, revive, run)
