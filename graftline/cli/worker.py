"""The commands below `graftline worker`: work through the queue of attempts, and look at it."""

from typing import TYPE_CHECKING

import click

from graftline.cli.options import ManifestChoice, Output, manifest_options, output_option, pass_paths, tabulate

if TYPE_CHECKING:
    from graftline.core.paths import Paths


@click.command()
@manifest_options
@click.option("--queue", metavar="NAME", help="Name of the queue, in place of the one of the manifest.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=16, help="Attempts at a time.")
@click.option(
    "--drain-s",
    type=click.FloatRange(0),
    default=120.0,
    help="How long the attempts in flight may go on when it is asked to stop; the rest is given back.",
)
@click.option("--until-empty", is_flag=True, help="End when no job is left.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Of /metrics and /healthz, in place of the one of telemetry.yaml; 0 for a free one.",
)
@click.option("--upload", is_flag=True, help="Put what is stored into the blob store of the manifest, too.")
@output_option
@pass_paths
def run(
    paths: "Paths", manifest: ManifestChoice, queue: str | None, concurrency: int, drain_s: float, until_empty: bool,
    metrics_port: int | None, upload: bool,
) -> Output:  # fmt: skip
    """Take attempts off the queue and make them, until it is stopped. SIGTERM lets it finish what is in flight."""
    from graftline.pipeline.worker import WorkerConfig, work_through_queue
    from graftline.rollouts.queue.worker import WorkerSettings

    settings = WorkerConfig(
        worker=WorkerSettings(concurrency=concurrency, drain_s=drain_s, until_empty=until_empty),
        metrics_port=metrics_port,
        is_uploading=upload,
    )
    outcomes = work_through_queue(paths, manifest.load(paths, {"queue.name": queue} if queue else None), settings)
    counts = {str(outcome): count for outcome, count in outcomes.items()}
    parts = (f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(counts.items()))
    return Output(counts, text=", ".join(parts) or "no job")


@click.command()
@manifest_options
@output_option
@pass_paths
def queue(paths: "Paths", manifest: ManifestChoice) -> Output:
    """Say how many jobs the queue has, and which of them nobody could do."""
    from graftline.pipeline.worker import queue_state

    depth, dead = queue_state(paths, manifest.load(paths))
    counts = {"waiting": depth.waiting, "in_flight": depth.in_flight, "done": depth.done, "dead": depth.dead}
    letters = [{"key": letter.job.key, "tries": letter.tries, "reason": letter.reason} for letter in dead]
    tables = [tabulate("Queue", [counts], {key: key for key in counts})]
    tables += (
        [tabulate("Dead letters", letters, {"key": "job", "tries": "tries", "reason": "reason"})] if letters else []
    )
    return Output({**counts, "dead_letters": letters}, tables)


@click.command()
@manifest_options
@click.argument("keys", nargs=-1)
@pass_paths
def retry(paths: "Paths", manifest: ManifestChoice, keys: tuple[str, ...]) -> None:
    """Let dead letters wait again, as if they had never been tried; without KEYS, all of them."""
    from graftline.pipeline.worker import revive as revive_jobs

    count = revive_jobs(paths, manifest.load(paths), keys)
    click.echo(f"{count} {'waits' if count == 1 else 'wait'} again")


COMMANDS = (run, queue, retry)
