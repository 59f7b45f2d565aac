"""The commands below `graftline state`: what attempts carry from step to step."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.options import CommandT, Output, find_paths, output_option, pluralize, tabulate
from graftline.core.errors import DataError

if TYPE_CHECKING:
    from graftline.rollouts.state import Change, StateStore

_MAX_NAMED = 8


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
@output_option
@click.pass_obj
def dump(root: Path | None, task_id: str, store: Path | None) -> Output:
    """Show the state that is kept for TASK_ID, or for TASK_ID#ATTEMPT, and why its attempt failed."""
    from graftline.rollouts.state import AttemptLog, render

    with _open_states(root, store) as states:
        _require_state(states, task_id)
        state = states.load(task_id)
        attempts = AttemptLog(states).statuses(task_id)
    statuses = {"attempts": [asdict(attempt) for attempt in attempts]} if attempts else {}
    texts = [
        {"field": name, "text": text}
        for name, value in state
        for text in ([value] if isinstance(value, str) else value)
        if text
    ]
    lines = [f"{state.token_budget()} tokens, {len(render(state))} characters of a prompt"]
    for attempt in attempts:
        reason = f": {attempt.reason}" if attempt.reason else ""
        lines.append(f"{attempt.teacher}: {attempt.phase} after {pluralize(attempt.steps, 'step')}{reason}")
    table = tabulate(f"State of {task_id}", texts, {"field": "field", "text": "text"})
    return Output(state.model_dump(mode="json") | statuses, [table], "\n".join(lines))


@click.command("list")
@store_option
@output_option
@click.pass_obj
def list_(root: Path | None, store: Path | None) -> Output:
    """List what states are kept, and how far their attempts came."""
    from graftline.rollouts.state import AttemptLog, Entry

    with _open_states(root, store) as states:
        entries = {entry.key: entry for entry in states.entries()}
        # a state that is still empty is not stored
        phases: dict[str, str] = {}
        for attempt in AttemptLog(states).statuses():
            entries.setdefault(attempt.key, Entry(attempt.key, 0, attempt.written_at))
            phases.setdefault(attempt.key, attempt.phase)
    records = [asdict(entries[key]) | {"attempt": phases.get(key)} for key in sorted(entries)]
    columns = {"key": "task", "version": "changes", "written_at": "last change", "attempt": "attempt"}
    return Output(records, [tabulate(f"{len(records)} states", records, columns)])


@click.command()
@click.argument("task_id")
@store_option
@output_option
@click.pass_obj
def history(root: Path | None, task_id: str, store: Path | None) -> Output:
    """Show how the state for TASK_ID, or for TASK_ID#ATTEMPT, came to be: every change of it, oldest first."""
    with _open_states(root, store) as states:
        _require_state(states, task_id)
        changes = states.history(task_id)
    table = (f"Changes of {task_id}", ["change", "at", "field", "text"], _change_rows(changes))
    return Output([asdict(change) for change in changes], [table])


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


COMMANDS = (list_, dump, history)
