"""Which tasks are taken where there are more than are needed: those of different groups in turns."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import TypeVar

from graftline.rollouts.task import Task

ItemT = TypeVar("ItemT")
OVERSAMPLING = 3
"""Times as many synthetic edits are made as are needed: those of templates that fit everywhere are left out again."""


def balance(items: Iterable[ItemT], most: int, *groups: Callable[[ItemT], str]) -> list[ItemT]:
    """Return at most so many of `items`, those of different groups in turns: of the first kind, within each of the second."""
    ordered = [*items]
    for depth in range(len(groups), 0, -1):
        by_group: dict[tuple[str, ...], list[ItemT]] = defaultdict(list)
        for item in ordered:
            by_group[tuple(group(item) for group in groups[:depth])].append(item)
        ordered = [item for turn in zip_longest(*by_group.values()) for item in turn if item is not None]
    return ordered[:most]


def template_of(task: Task) -> str:
    """Return the template a synthetic task is an instance of; `real edits` for another one."""
    return next((tag.partition(":")[2] for tag in task.tags if tag.startswith("template:")), "real edits")
