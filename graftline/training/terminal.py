"""Training as a person sees it at a terminal: its steps, and how it is asked to end."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graftline.training.runs import StepMetrics

_SPEED_OF_S = 3600.0
_ENDS = b"\nends with a checkpoint after the step under way; interrupt again to end at once\n"


@contextmanager
def steps_shown() -> Iterator[Callable[[StepMetrics, int], None]]:
    """Give what shows steps: a bar on a terminal, a line for each elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # a step may take longer than what the time left is usually told from
    bar = Progress(*columns, console=console, disable=not console.is_terminal, speed_estimate_period=_SPEED_OF_S)
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
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Give what says whether this process was told to end; a second interrupt ends it at once."""
    told = []

    def tell(number: int, _frame: object) -> None:
        told.append(number)
        # a handler may have interrupted a write of whoever has the stream
        os.write(2, _ENDS)
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
