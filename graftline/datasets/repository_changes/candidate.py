"""A commit or a release that may become a change of a repository, before it is judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.astgrep.binding import Language
from graftline.codemod.token_changes import Mechanics
from graftline.datasets.instruction_source import AnswerableBy, InstructionSource
from graftline.datasets.repository_changes.change import (
    ChangedFile,
    ChangeRejectReason,
    RepositoryChange,
    UntouchedFile,
)

Untouched = tuple[tuple[UntouchedFile, ...], int | None]
"""Some files that the change leaves as they are, and how many there are; None where that is not known."""


def read_no_untouched() -> Untouched:
    """Return what there is where only what changes is at hand."""
    return (), None


@dataclass(frozen=True, slots=True)
class ChangeRejection:
    """A commit, a release or a line of a file that becomes no change, and why."""

    repo: str
    commit: str
    """Of a line that could not be read, its file and number."""
    reason: ChangeRejectReason
    detail: str


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

    def reject(self, reason: ChangeRejectReason, detail: str) -> ChangeRejection:
        """Return why it becomes no change."""
        return ChangeRejection(self.repo, self.commit, reason, detail)


def make_change(
    candidate: Candidate, files: Sequence[ChangedFile], language: Language, mechanics: Mechanics
) -> RepositoryChange:
    """Return the change that `files` of a candidate are, of which most are in `language`."""
    untouched, total = candidate.read_untouched()
    return RepositoryChange(
        id=candidate.id,
        repo=candidate.repo,
        aliases=candidate.aliases,
        parent=candidate.parent,
        commit=candidate.commit,
        license=candidate.license,
        language=language,
        unit=candidate.unit,
        instruction=candidate.instruction,
        instruction_source=candidate.instruction_source,
        answerable=candidate.answerable,
        answerable_by=candidate.answerable_by,
        files=tuple(files),
        other_files=candidate.other_files + len(candidate.files) - len(files),
        untouched=untouched,
        untouched_total=total,
        places=mechanics.places,
        kinds=mechanics.kinds,
        score=round(mechanics.score, 4),
        origin=candidate.origin,
    )
