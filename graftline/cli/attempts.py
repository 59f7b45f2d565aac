"""The commands about attempts: `graftline actor` makes them, `graftline trajectories` hands them on, `graftline state` shows
what they carry from step to step.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from graftline.cli.options import (
    CommandT,
    ManifestChoice,
    find_paths,
    json_option,
    manifest_options,
    pass_paths,
    pluralize,
    print_json,
    print_table,
)
from graftline.core.errors import DataError

if TYPE_CHECKING:
    from graftline.astgrep.binding import Language
    from graftline.core.paths import Paths
    from graftline.datasets.splits import Split
    from graftline.rollouts.state import Change, StateStore

_MAX_NAMED = 8


@click.command()
@manifest_options
@json_option
@click.option("--queue", metavar="NAME", help="Name of the queue, in place of the one of the manifest.")
@click.option("--concurrency", type=click.IntRange(1, 4096), default=16, show_default=True, help="Attempts at a time.")
@click.option(
    "--drain-s",
    type=click.FloatRange(0),
    default=120.0,
    show_default=True,
    help="How long the attempts in flight may go on when it is asked to stop; the rest is given back.",
)
@click.option("--until-empty", is_flag=True, help="End when no job is left.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Of /metrics and /healthz, in place of the one of telemetry.yaml; 0 for a free one.",
)
@click.option("--upload", is_flag=True, help="Put what is stored into the blob store of the manifest, too.")
@pass_paths
def run(
    paths: "Paths", manifest: ManifestChoice, as_json: bool, queue: str | None, concurrency: int, drain_s: float,
    until_empty: bool, metrics_port: int | None, upload: bool,
) -> None:  # fmt: skip
    """Take attempts off the queue and make them, until it is stopped. SIGTERM lets it finish what is in flight."""
    from graftline.pipeline.worker import WorkerConfig, run_actor
    from graftline.rollouts.queue.worker import WorkerSettings

    settings = WorkerConfig(
        worker=WorkerSettings(concurrency=concurrency, drain_s=drain_s, until_empty=until_empty),
        metrics_port=metrics_port,
        is_uploading=upload,
    )
    outcomes = run_actor(paths, manifest.load(paths, {"queue.name": queue} if queue else None), settings)
    counts = {str(outcome): count for outcome, count in outcomes.items()}
    if as_json:
        print_json(counts)
        return
    parts = (f"{count} {outcome.replace('_', ' ')}" for outcome, count in sorted(counts.items()))
    click.echo(", ".join(parts) or "no job")


@click.command()
@manifest_options
@json_option
@pass_paths
def queue(paths: "Paths", manifest: ManifestChoice, as_json: bool) -> None:
    """Say how many jobs the queue has, and which of them nobody could do."""
    from graftline.pipeline.worker import queue_state

    depth, dead = queue_state(paths, manifest.load(paths))
    counts = {"waiting": depth.waiting, "in_flight": depth.in_flight, "done": depth.done, "dead": depth.dead}
    if as_json:
        letters = [{"key": letter.job.key, "tries": letter.tries, "reason": letter.reason} for letter in dead]
        print_json({**counts, "dead_letters": letters})
        return
    print_table("Queue", list(counts), [tuple(map(str, counts.values()))])
    if dead:
        rows = [(letter.job.key, str(letter.tries), letter.reason) for letter in dead]
        print_table("Dead letters", ["job", "tries", "reason"], rows)


@click.command()
@manifest_options
@click.argument("keys", nargs=-1)
@pass_paths
def revive(paths: "Paths", manifest: ManifestChoice, keys: tuple[str, ...]) -> None:
    """Let dead letters wait again, as if they had never been tried; without KEYS, all of them."""
    from graftline.pipeline.worker import revive as revive_jobs

    count = revive_jobs(paths, manifest.load(paths), keys)
    click.echo(f"{count} {'waits' if count == 1 else 'wait'} again")


@click.command()
@click.argument("format", type=click.Choice(["sft", "dpo", "rl", "srl", "atif"]))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--split", type=click.Choice(["train", "dev", "test"]), default="train", show_default=True, help="Whose attempts."
)
@click.option("--language", "languages", multiple=True, help="Of this language only; may be given several times.")
@click.option("--teacher", "teachers", multiple=True, help="Of this teacher only; may be given several times.")
@click.option(
    "--prompt",
    default="brief",
    show_default=True,
    help="Name of the prompt in teacher_prompts.yaml by which chats are made.",
)
@json_option
@pass_paths
def export(
    paths: "Paths", format: str, target: Path, split: str, languages: tuple[str, ...], teachers: tuple[str, ...],
    prompt: str, as_json: bool,
) -> None:  # fmt: skip
    """Write the attempts that count to TARGET, a JSON object per line."""
    from graftline.pipeline import exports

    only_languages = cast("tuple[Language, ...]", languages) or None
    result = exports.export(paths, format, target, prompt, cast("Split", split), only_languages, teachers or None)
    if as_json:
        print_json({"file": str(result.file), "rows": result.rows, "attempts": result.attempts})
    else:
        click.echo(f"{result.file}: {result.rows} rows of {result.attempts} attempts")


@click.command()
@manifest_options
@json_option
@pass_paths
def upload(paths: "Paths", manifest: ManifestChoice, as_json: bool) -> None:
    """Put every shard of attempts into the blob store of the manifest that is not there yet."""
    from graftline.pipeline.worker import upload_attempts

    result = upload_attempts(paths, manifest.load(paths))
    if as_json:
        print_json(result)
    else:
        click.echo(f"{result['sent']} sent ({result['sent_bytes']} bytes), {result['kept']} were there")


def store_option(command: CommandT) -> CommandT:
    """Add `--store`."""
    return click.option(
        "--store",
        type=click.Path(dir_okay=False, path_type=Path),
        help="File of the states.  [default: data/state/state.sqlite below the root]",
    )(command)


@click.command()
@click.argument("task_id")
@store_option
@json_option
@click.pass_obj
def dump(root: Path | None, task_id: str, store: Path | None, as_json: bool) -> None:
    """Show the state that is kept for TASK_ID, or for TASK_ID#ATTEMPT, and why its attempt failed."""
    from graftline.rollouts.state import AttemptLog, render

    with _open_states(root, store) as states:
        _require_state(states, task_id)
        state = states.load(task_id)
        attempts = AttemptLog(states).statuses(task_id)
    if as_json:
        statuses = {"attempts": [asdict(attempt) for attempt in attempts]} if attempts else {}
        print_json(state.model_dump(mode="json") | statuses)
        return
    texts = [(name, text) for name, value in state for text in ([value] if isinstance(value, str) else value)]
    print_table(f"State of {task_id}", ["field", "text"], [row for row in texts if row[1]])
    click.echo(f"{state.token_budget()} tokens, {len(render(state))} characters of a prompt")
    for attempt in attempts:
        reason = f": {attempt.reason}" if attempt.reason else ""
        click.echo(f"{attempt.teacher}: {attempt.phase} after {pluralize(attempt.steps, 'step')}{reason}")


@click.command("list")
@store_option
@json_option
@click.pass_obj
def list_(root: Path | None, store: Path | None, as_json: bool) -> None:
    """List what states are kept, and how far their attempts came."""
    from graftline.rollouts.state import AttemptLog, Entry

    with _open_states(root, store) as states:
        entries = {entry.key: entry for entry in states.entries()}
        # a state that is still empty is not stored
        phases: dict[str, str] = {}
        for attempt in AttemptLog(states).statuses():
            entries.setdefault(attempt.key, Entry(attempt.key, 0, attempt.written_at))
            phases.setdefault(attempt.key, attempt.phase)
    ordered = [entries[key] for key in sorted(entries)]
    if as_json:
        print_json([asdict(entry) | {"attempt": phases.get(entry.key)} for entry in ordered])
    else:
        rows = [(entry.key, str(entry.version), entry.written_at, phases.get(entry.key, "")) for entry in ordered]
        print_table(f"{len(rows)} states", ["task", "changes", "last change", "attempt"], rows)


@click.command()
@click.argument("task_id")
@store_option
@json_option
@click.pass_obj
def history(root: Path | None, task_id: str, store: Path | None, as_json: bool) -> None:
    """Show how the state for TASK_ID, or for TASK_ID#ATTEMPT, came to be: every change of it, oldest first."""
    with _open_states(root, store) as states:
        _require_state(states, task_id)
        changes = states.history(task_id)
    if as_json:
        print_json([asdict(change) for change in changes])
    else:
        print_table(f"Changes of {task_id}", ["change", "at", "field", "text"], _change_rows(changes))


def _change_rows(changes: "list[Change]") -> list[tuple[str, ...]]:
    """Return a row for each text that was removed or added."""
    rows, texts = list[tuple[str, ...]](), dict[str, list[str]]()
    for change in changes:
        for name, value in change.changed.items():
            before, after = texts.get(name, []), [value] if isinstance(value, str) else value
            removed = [f"- {text}" for text in before if text and text not in after]
            added = [f"+ {text}" for text in after if text and text not in before]
            rows += [(str(change.version), change.written_at, name, text) for text in (*removed, *added)]
            texts[name] = after
    return rows


@contextmanager
def _open_states(root: Path | None, store: Path | None) -> "Iterator[StateStore]":
    from graftline.rollouts.state import StateStore

    path = store or find_paths(root).data / "state" / "state.sqlite"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; expected a state store: name one with --store")
    with StateStore(path) as states:
        yield states


def _require_state(states: "StateStore", key: str) -> None:
    """Raise DataError unless there is a state or an attempt under `key`."""
    from graftline.rollouts.state import AttemptLog

    log = AttemptLog(states)
    if not states.history(key) and not log.statuses(key):
        keys = {entry.key for entry in states.entries()} | {attempt.key for attempt in log.statuses()}
        attempts = sorted(name for name in keys if name.startswith(f"{key}#"))[:_MAX_NAMED]
        remedy = (
            f"kept are {', '.join(map(repr, attempts))}" if attempts else "`graftline state list` shows what is kept"
        )
        raise DataError(f"{key!r}: no state is kept for it; {remedy}")


COMMANDS = {"actor": (queue, revive, run), "trajectories": (export, upload), "state": (dump, list_, history)}
