"""The normalised edit, and why a row does not become one."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from graftline.actions.action import PatternAction
from graftline.actions.astgrep import Language


class Edit(BaseModel):
    """One change of one text, five fields that every dataset is brought to, and where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    instruction: str = Field(min_length=1)
    pre: str = Field(min_length=1)
    post: str = Field(min_length=1)
    language: Language
    tags: tuple[str, ...] = ()
    id: str = Field(min_length=1)
    """`<dataset>:<digest>`."""
    dataset: str = Field(min_length=1)
    licence: str = Field(min_length=1)
    """SPDX identifier of the row."""
    group: str = Field(min_length=1)
    """What must not straddle two splits: the repository or package."""
    origin: str = Field(min_length=1)
    """Where in that repository or package, readable."""
    gold_action: PatternAction | None = None
    """The action that makes `post` from `pre`, for synthetic edits."""


class DropReason(StrEnum):
    """Why a row is left out; each is counted, with file and line."""

    LINE_TOO_LONG = "line_too_long"
    INVALID_UTF8 = "invalid_utf8"
    MALFORMED_JSON = "malformed_json"
    BAD_FIELD = "bad_field"
    TRUNCATED_FILE = "truncated_file"
    UNKNOWN_LANGUAGE = "unknown_language"
    EMPTY_PRE = "empty_pre"
    EMPTY_POST = "empty_post"
    NOT_TEXT = "not_text"
    UNCHANGED = "unchanged"
    LICENCE = "licence"
    TOO_LONG = "too_long"
    UNPARSABLE = "unparsable"


@dataclass(frozen=True, slots=True)
class Drop:
    """A row that is left out."""

    reason: DropReason
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
