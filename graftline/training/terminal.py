"""Training at a terminal: a bar of its steps, and how a person interrupts it."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graftline.training.runs import StepMetrics

_SPEED_PERIOD_S = 3600.0
_ENDS = b"\nends with a checkpoint after the step under way; interrupt again to end at once\n"


@contextmanager
def step_display() -> Iterator[Callable[[StepMetrics, int], None]]:
    """Give what shows steps: a bar on a terminal, a line for each elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # a step may take longer than what the remaining time is usually estimated from
    bar = Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=_SPEED_PERIOD_S)
    with bar:
        task = bar.add_task("waiting for the first step", total=None)

        def show(step: StepMetrics, total: int) -> None:
            per_s = step.tokens / step.seconds if step.seconds else 0.0
            text = f"loss {step.loss:.4f}, {per_s:.0f} tokens/s"
            if console.is_terminal:
                bar.update(task, total=total, completed=step.step + 1, description=text)
            else:
                console.out(f"step {step.step + 1} of {total}: {text}", highlight=False)

        yield show


@contextmanager
def stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    """Give what says whether this process is to end; a second interrupt ends it at once."""
    signals: list[int] = []

    def note(number: int, _frame: object) -> None:
        signals.append(number)
        # a handler may have interrupted a write of whoever has the stream
        os.write(2, _ENDS)
        signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
