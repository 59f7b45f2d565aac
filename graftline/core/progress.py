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
        yield _Lines(console)
        return
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<44}"), BarColumn(), _amount_column(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Bars(bars, console)


def amount(done: float, total: float | None, per_s: float | None, in_bytes: bool) -> str:
    """Return how much is done of how much and how fast, as far as that is known.

    12.6 MB of 135.9 MB, 3.1 MB/s
    8,192 of 702,062, 4,915/s
    """
    from rich.filesize import decimal

    shown = decimal if in_bytes else "{:,}".format
    parts = shown(int(done)) + (f" of {shown(int(total))}" if total else "")
    return parts + (f", {shown(int(per_s))}/s" if per_s else "")


def _amount_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Amount(ProgressColumn):
        def render(self, task: "Task") -> "Text":
            return Text(amount(task.completed, task.total, task.speed, task.fields["in_bytes"]))

    return Amount()


class _Lines:
    def __init__(self, console: "Console") -> None:
        self._console, self._what = console, ""

    def start(self, stage: str, name: str) -> None:
        self._what = f"{stage} {name}"

    def advance(self, done: int, total: int) -> None:
        """Lines come at the end of each artifact."""

    def finish(self, reason: str) -> None:
        # as it is: printing would break long lines and put pictures for words between colons
        self._console.out(f"{self._what}: {f'made ({reason})' if reason else 'unchanged'}", highlight=False)

    def fail(self) -> None:
        self._console.out(f"{self._what}: failed", highlight=False)


class _Bars:
    def __init__(self, bars: "RichProgress", console: "Console") -> None:
        self._bars, self._lines = bars, _Lines(console)
        self._task: TaskID | None = None

    def start(self, stage: str, name: str) -> None:
        self._lines.start(stage, name)
        self._task = self._bars.add_task(f"{stage} {name}", total=None, in_bytes=stage in _IN_BYTES)

    def advance(self, done: int, total: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total or None)

    def finish(self, reason: str) -> None:
        self._end()
        self._lines.finish(reason)

    def fail(self) -> None:
        self._end()
        self._lines.fail()

    def _end(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
