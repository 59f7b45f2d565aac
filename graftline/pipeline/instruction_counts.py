"""How many tasks have an instruction, where it comes from, and whether the change can be done from it: what records of tasks count."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from graftline.core.record import ArtifactRecord

ANSWERS: Mapping[bool | None, str] = {True: "answerable", False: "unanswerable", None: "untried"}
_PREFIX = "instructions."


class InstructionCount(NamedTuple):
    """Tasks that are alike."""

    dataset: str
    source: str
    answer: str
    """One of `ANSWERS`."""
    tasks: int


def count_key(dataset: str, source: str, answerable: bool | None) -> str:
    """Return the name by which a record of tasks counts those of one dataset, source and answer."""
    return f"{_PREFIX}{dataset}.{source}.{ANSWERS[answerable]}"


def instruction_counts(records: Iterable[ArtifactRecord]) -> list[InstructionCount]:
    """Return what `records` of tasks count of instructions; nothing of those of version 0.1.0, which do not."""
    counts: dict[tuple[str, str, str], int] = {}
    for record in records:
        for name, number in record.counts.items():
            if name.startswith(_PREFIX) and name.count(".") >= 3:
                dataset, source, answer = name.removeprefix(_PREFIX).rsplit(".", 2)
                counts[dataset, source, answer] = counts.get((dataset, source, answer), 0) + number
    return [InstructionCount(*key, number) for key, number in sorted(counts.items())]
