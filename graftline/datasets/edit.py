"""The normalized edit and the label, why a row becomes neither, and their columns in Parquet files."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.core.parquet import Column
from graftline.datasets.instruction_source import (
    AnswerableBy,
    InstructionSource,
    default_answerable,
    default_answerable_by,
    default_source,
)


class Edit(BaseModel):
    """One change of one text, five fields that every dataset is brought to, and where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    instruction: str
    """Empty where `instruction_source` is `none`."""
    pre: str = Field(min_length=1)
    post: str = Field(min_length=1)
    language: Language
    tags: tuple[str, ...] = ()
    instruction_source: InstructionSource = Field(default_factory=default_source, validate_default=True)
    answerable: bool | None = Field(default_factory=default_answerable)
    """Whether the change can be done from the instruction and the text before; None where nobody has tried."""
    answerable_by: AnswerableBy | None = Field(default_factory=default_answerable_by)
    """How that was decided."""
    id: str = Field(min_length=1)
    """`<dataset>:<digest>`, equal for equal rows."""
    dataset: str = Field(min_length=1)
    license: str = Field(min_length=1, validation_alias=AliasChoices("license", "licence"))
    """SPDX identifier of the row."""
    group: str = Field(min_length=1)
    """What must not straddle two splits: the repository or package."""
    aliases: tuple[str, ...] = ()
    """Other names of the group: forks that hold the same commit. They must not straddle either."""
    commit: str = ""
    """The commit that made the edit, or that it was grown from; must not straddle two splits."""
    other_commits: tuple[str, ...] = ()
    """More commits that it was grown from; they must not straddle either."""
    path: str = ""
    """The file in `commit` that was edited, where the edit is that commit's own: the same commit and path is the same
    edit, whatever dataset holds it. Empty where it is only grown from the commit."""
    origin: str = Field(min_length=1)
    """Where in that repository or package, readable."""
    gold_action: Action | None = None
    """The action that makes `post` from `pre`, or the first of several; for synthetic edits."""
    gold_next: tuple[Action, ...] = ()
    """The actions after it, each on what the one before made: an import, and then its uses."""

    @field_validator("instruction_source")
    @classmethod
    def _has_its_instruction(cls, source: InstructionSource, info: ValidationInfo) -> InstructionSource:
        if source != "none" and not info.data.get("instruction"):
            raise PydanticCustomError("no_instruction", "is {source}, but the instruction is empty", {"source": source})
        return source


class Label(BaseModel):
    """What people said of a text, without a text after that counts as right: for verifiers and for tasks without gold."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    kind: Literal["label"] = "label"
    label: str = Field(min_length=1)
    """What is said to be there: a code smell, or the type of a refactoring."""
    holds: bool | None
    """Whether people agree that it is there; None where they do not agree with one another."""
    subject: str = ""
    """What in the text it is said of, e.g. a method; empty for the whole."""
    detail: str = ""
    instruction: str = Field(min_length=1)
    """What a task without gold asks for."""
    pre: str = Field(min_length=1)
    post: str | None = None
    """The text after, where there is one, disputed as it is."""
    language: Language
    tags: tuple[str, ...] = ()
    id: str = Field(min_length=1)
    dataset: str = Field(min_length=1)
    license: str = Field(min_length=1, validation_alias=AliasChoices("license", "licence"))
    group: str = Field(min_length=1)
    origin: str = Field(min_length=1)


class RejectReason(StrEnum):
    """Why a row is left out; each is counted, with file and line."""

    LINE_TOO_LONG = "line_too_long"
    INVALID_UTF8 = "invalid_utf8"
    MALFORMED_JSON = "malformed_json"
    DUPLICATE_KEY = "duplicate_key"
    BAD_FIELD = "bad_field"
    TRUNCATED_FILE = "truncated_file"
    UNKNOWN_LANGUAGE = "unknown_language"
    EMPTY_INSTRUCTION = "empty_instruction"
    EMPTY_PRE = "empty_pre"
    EMPTY_POST = "empty_post"
    NOT_TEXT = "not_text"
    UNCHANGED = "unchanged"
    LICENSE = "license"
    TOO_LONG = "too_long"
    UNPARSABLE = "unparsable"
    SEVERAL_FILES = "several_files"
    BAD_PATCH = "bad_patch"
    CONTAMINATED = "contaminated"
    NOT_ACCEPTED = "not_accepted"
    SECRET = "secret"


@dataclass(frozen=True, slots=True)
class Rejection:
    """A row, or a part of one, that is left out."""

    reason: RejectReason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


RowResult = Edit | Label | Rejection


EDITS: Mapping[str, Column] = {
    "id": "text",
    "dataset": "word",
    "language": "word",
    "split": "word",
    "instruction": "text",
    "pre": "text",
    "post": "text",
    "tags": "text",
    "instruction_source": "word",
    "answerable": "flag?",
    "answerable_by": "word?",
    "license": "word",
    "origin_group": "word",
    "cluster": "word",
    "origin": "text",
    "pre_tokens": "whole",
    "post_tokens": "whole",
}
"""Of the splits."""

NORMALIZED: Mapping[str, Column] = {
    "id": "text",
    "dataset": "word",
    "instruction": "text",
    "pre": "text",
    "post": "text",
    "tags": "text",
    "instruction_source": "word",
    "answerable": "flag?",
    "answerable_by": "word?",
    "license": "word",
    "origin_group": "word",
    "origin": "text",
    "pre_tokens": "whole",
    "post_tokens": "whole",
    "line_bytes": "whole",
    "id_key": "key",
    "asked_key": "key",
    "pre_key": "key",
    "done_key": "key",
    "change_key": "key",
    "link_keys": "keys",
    "signature": "bytes",
}
"""Of the normalized edits of one language: what the splits show, the length of the edit's line in the JSONL file beside
it, and what edits are compared by (see `datasets.deduplicate`)."""

DROPS: Mapping[str, Column] = {
    "dataset": "word",
    "file": "word",
    "line": "whole",
    "reason": "word",
    "detail": "text",
}

DIVISION: Mapping[str, Column] = {
    "dataset": "word",
    "id": "text",
    "split": "word?",
    "reason": "word?",
    "kept_id": "text?",
    "cluster": "word",
}
"""Of every normalized edit of one language: its split, or why it has none and which edit is kept instead."""
