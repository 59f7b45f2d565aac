"""What commands have in common: options, the folders and the manifest they work with, help, and how they print."""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graftline.core.text_diff import pluralize as pluralize

if TYPE_CHECKING:
    from graftline.core.paths import Paths
    from graftline.pipeline.manifests import Manifest

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
INTERRUPTED = 130  # as a shell says it of a process that an interrupt ended
_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}
_COLUMNS = 120


class CommandGroup(click.Group):
    """Lists its commands with the first sentence of their help, uncut, and says of a name it has not what it has."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.list_sections(ctx).items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            with formatter.section(title):
                formatter.write_dl([(name, _summarize(command)) for name, command in commands if command])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            names = self.list_commands(ctx)
            close = get_close_matches(name, names)
            advice = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(names)}"
            ctx.fail(f"No such command {name!r}; {advice}")
        return super().resolve_command(ctx, args)

    def list_sections(self, ctx: click.Context) -> Mapping[str, Sequence[str]]:
        """Return the names of all commands, by the titles they stand under."""
        return {"Commands": self.list_commands(ctx)}


def _summarize(command: click.Command) -> str:
    sentence, dot, _ = " ".join((command.help or "").split()).partition(". ")
    return sentence + dot.strip()


@dataclass(frozen=True)
class ManifestChoice:
    """What `--manifest` and `--set` say."""

    name: str
    overrides: dict[str, Any]

    def load(self, paths: "Paths", overrides: dict[str, Any] | None = None) -> "Manifest":
        """Return the manifest, with what it was told on the command line."""
        from graftline.pipeline.manifests import load_manifest

        return load_manifest(paths, self.name, {**self.overrides, **(overrides or {})})


Table = tuple[str, Sequence[str], Sequence[tuple[str, ...]]]
"""Title, names of the columns, rows."""


@dataclass(frozen=True)
class Output:
    """What a command prints, and how it ends."""

    value: Any
    """For programs: the line of JSON."""
    tables: Sequence[Table] = ()
    text: str = ""
    """For people, after the tables."""
    notes: Sequence[str] = ()
    """For people, on standard error."""
    faults: Iterable[str] = ()
    """For standard error; with any the command ends with 1."""
    is_failure: bool = False


def json_option(command: CommandT) -> CommandT:
    """Add `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")(command)


def output_option(command: Callable[..., Output]) -> Callable[..., None]:
    """Add `--json`, and print what the command returns."""

    def print_output(*args: Any, as_json: bool, **kwargs: Any) -> None:
        output = command(*args, **kwargs)
        if as_json:
            print_json(output.value)
        else:
            for table in output.tables:
                print_table(*table)
            for note in output.notes:
                click.echo(note, err=True)
            if output.text:
                click.echo(output.text)
        fail_with(output.faults)
        if output.is_failure:
            raise click.exceptions.Exit(1)

    return json_option(functools.update_wrapper(print_output, command))


def tabulate(title: str, records: Iterable[Mapping[str, Any]], columns: Mapping[str, str]) -> Table:
    """Return a table of the values of `records` that `columns` names, each with its heading."""
    rows = [tuple(format_cell(record[key]) for key in columns) for record in records]
    return title, [*columns.values()], rows


def format_cell(value: Any) -> str:
    """Return a value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def changes_option(text: str) -> Callable[[CommandT], CommandT]:
    """Return what adds `--set`, any number of times; the command gets values by dotted key."""
    return click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help=text, callback=_read_changes)


def instructions_option(command: CommandT) -> CommandT:
    """Add `--instructions`."""
    return click.option(
        "--instructions",
        type=click.Choice(["answerable", "all"]),
        default="answerable",
        help="Of tasks that can be done from their instruction, or of all that have one.",
    )(command)


def manifest_option(command: CommandT) -> CommandT:
    """Add `--manifest`."""
    return click.option(
        "--manifest",
        envvar="GRAFTLINE_MANIFEST",
        default="local",
        help="What stands behind each port: local, dev, prod or test.",
    )(command)


def manifest_options(command: CommandT) -> CommandT:
    """Add `--manifest` and the `--set` of its values, which the command gets as one `ManifestChoice`."""

    @manifest_option
    @changes_option(
        "A port in place of the manifest's, as teacher=openai, or a setting of one, as sandbox.limits.cpu_s=2."
    )
    @functools.wraps(command)
    def with_manifest(*args: Any, manifest: str, changes: dict[str, Any], **kwargs: Any) -> Any:
        return command(*args, manifest=ManifestChoice(manifest, changes), **kwargs)

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


def _read_changes(context: click.Context, param: click.Parameter, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return what `--set` says by dotted key; values are YAML."""
    from graftline.core.config import parse_yaml

    values: dict[str, Any] = {}
    for change in changes:
        key, separator, value = change.partition("=")
        if not separator:
            raise click.UsageError(f"--set {change!r}: expected KEY=VALUE, as learning_rate=1e-3 or teacher=openai")
        values[key] = parse_yaml(value, f"--set {key}") if value else ""
    return values


def print_json(value: Any) -> None:
    """Print one line of JSON."""
    click.echo(json.dumps(value, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[tuple[str, ...]]) -> None:
    """Print `rows` to standard output, as wide as the terminal; where there is none, within 120 characters if words fit."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = [*rows]
    cells = [*zip(columns, *rows, strict=True)]
    words = [max((cell_len(word) for cell in column for word in cell.split()), default=1) for column in cells]
    edges = 3 * len(columns) + 1
    is_terminal = sys.stdout.isatty()
    # a reader of a file or a pipe searches for words, so that they stay whole there
    console = Console(width=None if is_terminal else max(_COLUMNS, sum(words) + edges, cell_len(title)))
    widths = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in cells]
    for _ in range(sum(widths) + edges - console.width):
        # of columns that can be narrower without breaking a word, the widest one; on a narrow terminal, of all
        wide = [index for index in range(len(widths)) if widths[index] > words[index]] or range(len(widths))
        widths[max(wide, key=widths.__getitem__)] -= 1
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, overflow="fold", width=max(1, width))
    for row in rows:
        table.add_row(*map(Text, row))
    with console.capture() as capture:
        console.print(table)
    lines = capture.get().split("\n")
    click.echo("\n".join(lines if is_terminal else map(str.rstrip, lines)), nl=False)


def port_rows(ports: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return for each port its implementation, and its settings as `--set` takes them."""
    return [
        (port, str(settings["kind"]), " ".join(_list_settings({**settings, "kind": None}, "")))
        for port, settings in ports.items()
    ]


def _list_settings(settings: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _list_settings(value, f"{prefix}{name}.")
        elif value is not None and value != "":
            text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            yield f"{prefix}{name}={text}"


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
