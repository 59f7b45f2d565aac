"""Progress of long work: bars on a terminal, a line per stage elsewhere. Written to standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, Task, TaskID
    from rich.text import Text

_IN_BYTES = frozenset({"model", "raw"})
"""Stages whose work is counted in bytes; that of the others is in rows, files or tasks."""


class Progress(Protocol):
    """Shows how far the stages are."""

    def start(self, stage: str, name: str) -> None:
        """Begin to work on the artifact `name` of `stage`."""

    def advance(self, done: int, total: int) -> None:
        """Say how much of it is done; a total of 0 is an unknown one."""

    def finish(self, reason: str) -> None:
        """End it; `reason` says why it was made, empty that it was unchanged."""

    def fail(self) -> None:
        """End it without a result; why is said elsewhere."""


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show progress on standard error: bars if it is a terminal, lines if not."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _ConsoleProgress(console, None)
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<44}"), BarColumn(), _amount_column(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _ConsoleProgress(console, bars)


def format_amount(done: float, total: float | None, per_s: float | None, in_bytes: bool) -> str:
    """Return how much is done of how much and how fast, as far as that is known.

    12.6 MB of 135.9 MB, 3.1 MB/s
    8,192 of 702,062, 4,915/s
    """
    from rich.filesize import decimal

    show = decimal if in_bytes else "{:,}".format
    text = show(int(done)) + (f" of {show(int(total))}" if total else "")
    return text + (f", {show(int(per_s))}/s" if per_s else "")


def _amount_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: "Task") -> "Text":
            return Text(format_amount(task.completed, task.total, task.speed, task.fields["in_bytes"]))

    return Amount()


class _ConsoleProgress:
    """A line at the end of each artifact, and a bar until then where there are `bars`."""

    def __init__(self, console: "Console", bars: "RichProgress | None") -> None:
        self._console, self._bars, self._artifact = console, bars, ""
        self._task: TaskID | None = None

    def start(self, stage: str, name: str) -> None:
        self._artifact = f"{stage} {name}"
        if self._bars is not None:
            self._task = self._bars.add_task(self._artifact, total=None, in_bytes=stage in _IN_BYTES)

    def advance(self, done: int, total: int) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=done, total=total or None)

    def finish(self, reason: str) -> None:
        self._end(f"made ({reason})" if reason else "unchanged")

    def fail(self) -> None:
        self._end("failed")

    def _end(self, outcome: str) -> None:
        if self._bars is not None and self._task is not None:
            self._bars.remove_task(self._task)
        # as it is: printing would break long lines and put pictures for words between colons
        self._console.out(f"{self._artifact}: {outcome}", highlight=False)
