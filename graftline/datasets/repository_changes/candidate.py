"""A commit or a release that may become a change of a repository, before it is judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.datasets.repository_changes.change import AnswerableBy, ChangedFile, InstructionSource, UntouchedFile

Untouched = tuple[tuple[UntouchedFile, ...], int | None]
"""Some files that the change leaves as they are, and how many there are; None where that is not known."""


def read_no_untouched() -> Untouched:
    """Return what there is where only what changes is at hand."""
    return (), None


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a source says of it."""

    id: str
    repo: str
    parent: str
    commit: str
    license: str
    instruction: str
    """Cleaned; empty where there is none."""
    instruction_source: InstructionSource
    files: Sequence[ChangedFile]
    origin: str
    unit: Literal["file", "function"] = "file"
    aliases: tuple[str, ...] = ()
    answerable: bool | None = None
    answerable_by: AnswerableBy | None = None
    other_files: int = 0
    moved_files: int = 0
    """Of the other files, source files that are added, deleted or renamed."""
    read_untouched: Callable[[], Untouched] = read_no_untouched
    """Reads a sample of what the change leaves as it is; called for what is taken alone."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a source could not make a candidate of."""

    repo: str
    commit: str
    detail: str
