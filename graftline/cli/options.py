"""What commands have in common: options, the folders and the manifest they work with, and how they print."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.pipeline.manifests import Manifest

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_WIDE = 1000


@dataclass(frozen=True)
class ManifestChoice:
    """What `--manifest` and `--port` say."""

    name: str
    overrides: dict[str, Any]

    def load(self, paths: "Paths", overrides: dict[str, Any] | None = None) -> "Manifest":
        """Return the manifest, with what it was told on the command line."""
        from graftline.pipeline.manifests import load_manifest

        return load_manifest(paths, self.name, {**self.overrides, **(overrides or {})})


def json_option(command: CommandT) -> CommandT:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")(command)


def changes_option(text: str) -> Callable[[CommandT], CommandT]:
    """Return what adds `--set`, any number of times; `read_changes` reads it."""
    return click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help=text)


def manifest_options(command: CommandT) -> CommandT:
    """Add `--manifest` and `--port`, which the command gets as one `ManifestChoice`."""

    @click.option(
        "--manifest", envvar="GRAFTLINE_MANIFEST", default="local", show_default=True, help="local, dev, prod or test."
    )
    @click.option(
        "--port", "ports", multiple=True, metavar="PORT[.KEY]=VALUE", help="Replace a port or one of its settings."
    )
    @functools.wraps(command)
    def with_manifest(*args: Any, manifest: str, ports: tuple[str, ...], **kwargs: Any) -> Any:
        return command(*args, manifest=ManifestChoice(manifest, read_overrides(ports)), **kwargs)

    return with_manifest  # type: ignore[return-value]  # the same but for two parameters


def pass_paths(command: Callable[..., Any]) -> Callable[..., Any]:
    """Call `command` with the folders below `--root`, or below the root that is found."""

    @click.pass_obj
    def with_paths(root: Path | None, /, *args: Any, **kwargs: Any) -> Any:
        return command(find_paths(root), *args, **kwargs)

    return functools.update_wrapper(with_paths, command)


def find_paths(root: Path | None) -> "Paths":
    """Return the folders below `root`, or below the one that is found."""
    from graftline.core.paths import Paths, find_root

    return Paths(root.resolve() if root else find_root(os.environ))


def read_overrides(ports: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--port` says by dotted key."""
    overrides: dict[str, Any] = {}
    for port in ports:
        key, separator, value = port.partition("=")
        if not separator:
            raise click.UsageError(f"--port {port!r}: expected PORT=IMPLEMENTATION or PORT.KEY=VALUE")
        try:
            overrides[key] = json.loads(value)
        except (ValueError, RecursionError):
            overrides[key] = value
    return overrides


def read_changes(changes: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--set` says by dotted key.

    Raises:
        ConfigError: something is no `KEY=VALUE`, or a value no YAML.
    """
    from graftline.core.config import parse_yaml

    values = {}
    for change in changes:
        key, separator, value = change.partition("=")
        if not separator:
            raise ConfigError(f"--set {change!r}: KEY=VALUE was expected, as learning_rate=1e-3")
        values[key] = parse_yaml(value, f"--set {key}")
    return values


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(json.dumps(value, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print `rows` to standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    # without a terminal there is no width to keep to, and folded cells are hard to read and to search
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)


def print_lines(lines: Sequence[tuple[str, str]], is_error: bool = False) -> None:
    """Print lines with their styles, as they are where there is no terminal."""
    from rich.console import Console
    from rich.segment import Segment, Segments
    from rich.style import Style

    from graftline.core.text_diff import escape_controls

    console = Console(stderr=is_error)
    if not console.is_terminal:
        for line, _ in lines:
            click.echo(line, err=is_error)
    elif lines:
        # as they are: tabs stay tabs, and a long line is not folded, so that a difference can be searched and applied
        segments = [Segment(escape_controls(line), Style.parse(style)) for line, style in lines]
        console.print(Segments(segments, new_lines=True), soft_wrap=True, end="")


def style_diff(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return the lines of a difference with their styles."""
    return [(line, _STYLES.get(line[:1], "")) for line in lines]


def fail_with(faults: Iterable[str], prefix: str = "error: ") -> None:
    """Print what is wrong to standard error, and end with exit code 1 if anything is."""
    faults = list(faults)
    for fault in faults:
        click.echo(f"{prefix}{fault}", err=True)
    if faults:
        raise click.exceptions.Exit(1)


def pluralize(number: int, noun: str) -> str:
    """Return `number` with its noun: 1 place, 2 places."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
