"""The record of a change of a whole repository, why a change becomes none, and the columns of both in Parquet files."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import Language
from graftline.core.parquet import Column
from graftline.datasets.instruction_source import AnswerableBy, InstructionSource


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ChangedFile(_Row):
    """A file before and after the change."""

    path: str = Field(min_length=1)
    """From the top of the repository."""
    before: str
    after: str


class UntouchedFile(_Row):
    """A file of the repository that the change leaves as it is."""

    path: str = Field(min_length=1)
    text: str


class RepositoryChange(_Row):
    """One commit, or the step from one release to another, that changes many files alike."""

    schema_version: Literal[1] = 1
    id: str = Field(min_length=1)
    repo: str = Field(min_length=1)
    """`owner/name`, or `<registry>:<package>`; what must not straddle two splits."""
    aliases: tuple[str, ...] = ()
    """Other names of the repository: forks, and packages that are released from it. They must not straddle either."""
    parent: str = Field(min_length=1)
    """The commit, or the release, that the texts before are of."""
    commit: str = Field(min_length=1)
    license: str = Field(min_length=1)
    """SPDX identifier."""
    language: Language
    """Of most of the files."""
    unit: Literal["file", "function"] = "file"
    """Whether `files` holds whole files, or of each the functions that change."""
    instruction: str = Field(min_length=1)
    instruction_source: InstructionSource
    answerable: bool | None = None
    """Whether the change can be made from the instruction and the texts before; None where nobody has tried."""
    answerable_by: AnswerableBy | None = None
    """How that was decided."""
    files: tuple[ChangedFile, ...] = Field(min_length=1)
    other_files: int = Field(default=0, ge=0)
    """Files that the commit changes and that are not in `files`: of other languages, added, renamed, binary, too large."""
    untouched: tuple[UntouchedFile, ...] = ()
    """Some files in the same languages that the change leaves as they are."""
    untouched_total: int | None = Field(default=None, ge=0)
    """How many of those there are; None where only what changes is at hand."""
    places: int = Field(ge=0)
    """Token changes (see `codemod.token_changes`)."""
    kinds: int = Field(ge=0)
    """Different ones among them."""
    score: float = Field(ge=0, le=1)
    """Share of the token changes that the few kinds make which several files share."""
    origin: str = Field(min_length=1)
    """What it was read from, readable."""


class ChangeRejectReason(StrEnum):
    """Why a commit, or a part of a release, becomes no change of a repository."""

    LICENSE = "license"
    FEW_FILES = "few_files"
    FILES_MOVED = "files_moved"
    TOO_LARGE = "too_large"
    FORMATTING = "formatting"
    COMMENTS = "comments"
    NOT_MECHANICAL = "not_mechanical"
    UNPARSABLE = "unparsable"
    EMPTY_INSTRUCTION = "empty_instruction"
    NOT_TEXT = "not_text"
    BAD_RECORD = "bad_record"
    CONTAMINATED = "contaminated"
    DUPLICATE_COMMIT = "duplicate_commit"
    JOINS_SPLITS = "joins_splits"
    ENOUGH_OF_REPOSITORY = "enough_of_repository"


CHANGES: Mapping[str, Column] = {
    "id": "text",
    "repo": "word",
    "parent": "text",
    "commit": "text",
    "split": "word",
    "license": "word",
    "language": "word",
    "unit": "word",
    "instruction": "text",
    "instruction_source": "word",
    "answerable": "flag?",
    "answerable_by": "word?",
    "files": "whole",
    "other_files": "whole",
    "untouched": "whole",
    "untouched_total": "whole?",
    "places": "whole",
    "kinds": "whole",
    "score": "number",
    "origin": "text",
    "line_bytes": "whole",
}
"""Of `changes.parquet`: a row for every line of the files of the splits, train first, without the texts."""

REJECTED: Mapping[str, Column] = {"repo": "word", "commit": "text", "reason": "word", "detail": "text"}
"""Of `rejected.parquet`."""
