"""Training at a terminal: a bar of its steps, and what a person is told who interrupts it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from graftline.training.runs import StepMetrics

_SPEED_PERIOD_S = 3600.0
END_NOTICE = (
    "\nends with a checkpoint after the step under way and those sent ahead of it (`submit_ahead`);"
    " interrupt again to end at once\n"
)


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
