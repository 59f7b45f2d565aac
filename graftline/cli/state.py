"""The commands below `graftline state`: parse, open the store, call one function, print."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from graftline.cli.main import CommandT, json_option, paths_of, print_table
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
@json_option
@click.pass_obj
def dump(root: Path | None, task_id: str, store: Path | None, as_json: bool) -> None:
    """Show the state that is kept for TASK_ID, or for TASK_ID#ATTEMPT, and why its attempt failed."""
    from graftline.rollouts.state import AttemptLog, render

    with _opened(root, store) as states:
        state = states.load(_known(states, task_id))
        attempts = AttemptLog(states).statuses(task_id)
    if as_json:
        shown = {"attempts": [asdict(attempt) for attempt in attempts]} if attempts else {}
        click.echo(json.dumps(state.model_dump(mode="json") | shown))
        return
    texts = [(name, text) for name, value in state for text in ([value] if isinstance(value, str) else value)]
    print_table(f"State of {task_id}", ["field", "text"], [row for row in texts if row[1]])
    click.echo(f"{state.token_budget()} tokens, {len(render(state))} characters of a prompt")
    for attempt in attempts:
        reason = f": {attempt.reason}" if attempt.reason else ""
        click.echo(f"{attempt.teacher}: {attempt.phase} after {_steps(attempt.steps)}{reason}")


@click.command("list")
@store_option
@json_option
@click.pass_obj
def list_(root: Path | None, store: Path | None, as_json: bool) -> None:
    """List what states are kept, and how far their attempts came."""
    from graftline.rollouts.state import AttemptLog, Entry

    with _opened(root, store) as states:
        entries = {entry.key: entry for entry in states.entries()}
        # a state that is empty still is not stored
        phases: dict[str, str] = {}
        for attempt in AttemptLog(states).statuses():
            entries.setdefault(attempt.key, Entry(attempt.key, 0, attempt.written_at))
            phases.setdefault(attempt.key, attempt.phase)
    ordered = [entries[key] for key in sorted(entries)]
    if as_json:
        click.echo(json.dumps([asdict(entry) | {"attempt": phases.get(entry.key)} for entry in ordered]))
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
    with _opened(root, store) as states:
        changes = states.history(_known(states, task_id))
    if as_json:
        click.echo(json.dumps([asdict(change) for change in changes]))
    else:
        print_table(f"Changes of {task_id}", ["change", "at", "field", "text"], _rows(changes))


def _rows(changes: "list[Change]") -> list[tuple[str, ...]]:
    """Return a row for each text that came or went."""
    rows, texts = list[tuple[str, ...]](), dict[str, list[str]]()
    for change in changes:
        first = (str(change.version), change.written_at)
        for name, value in change.changed.items():
            before, after = texts.get(name, []), [value] if isinstance(value, str) else value
            gone = [f"- {text}" for text in before if text and text not in after]
            come = [f"+ {text}" for text in after if text and text not in before]
            rows += [(*first, name, text) for text in (*gone, *come)]
            texts[name] = after
    return rows


@contextmanager
def _opened(root: Path | None, store: Path | None) -> "Iterator[StateStore]":
    from graftline.rollouts.state import StateStore

    path = store or paths_of(root).data / "state" / "state.sqlite"
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; expected a state store: name one with --store")
    with StateStore(path) as states:
        yield states


def _known(states: "StateStore", key: str) -> str:
    """Return `key` if there is a state or an attempt under it."""
    from graftline.rollouts.state import AttemptLog

    log = AttemptLog(states)
    if not states.history(key) and not log.statuses(key):
        keys = {entry.key for entry in states.entries()} | {attempt.key for attempt in log.statuses()}
        named = ", ".join(map(repr, sorted(name for name in keys if name.startswith(f"{key}#"))[:_MAX_NAMED]))
        remedy = f"kept are {named}" if named else "`graftline state list` shows what is kept"
        raise DataError(f"{key!r}: no state is kept for it; {remedy}")
    return key


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


COMMANDS = (dump, list_, history)
