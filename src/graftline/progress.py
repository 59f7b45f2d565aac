"""Progress of long work: bars on a terminal, a line per stage elsewhere. Written to standard error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Progress(Protocol):
    """Shows how far the stages are."""

    def start(self, stage: str, name: str) -> None:
        """Begin to work on the artefact `name` of `stage`."""

    def advance(self, done: int, total: int) -> None:
        """Say how much of it is done; a total of 0 is an unknown one."""

    def finish(self, reason: str) -> None:
        """End it; `reason` says why it was made, empty that it was unchanged."""


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show progress on standard error: bars if it is a terminal, lines if not."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description:<44}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console, transient=True) as bars:
        yield _Bars(bars, console)


class _Lines:
    def __init__(self, console: "Console") -> None:
        self._console, self._what = console, ""

    def start(self, stage: str, name: str) -> None:
        self._what = f"{stage} {name}"

    def advance(self, done: int, total: int) -> None:
        """Lines come at the end of each artefact."""

    def finish(self, reason: str) -> None:
        # as it is: printing would break long lines and put pictures for words between colons
        self._console.out(f"{self._what}: {f'made ({reason})' if reason else 'unchanged'}", highlight=False)


class _Bars:
    def __init__(self, bars: "RichProgress", console: "Console") -> None:
        self._bars, self._lines = bars, _Lines(console)
        self._task: TaskID | None = None

    def start(self, stage: str, name: str) -> None:
        self._lines.start(stage, name)
        self._task = self._bars.add_task(f"{stage} {name}", total=None)

    def advance(self, done: int, total: int) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total or None)

    def finish(self, reason: str) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._lines.finish(reason)
