"""`oce_dataft`: Python edits written by two language models, grown from commits of CommitPackFT (arXiv 2509.25203).

JSON lines in two shapes: flat, with the texts in columns of their own, and as a chat, whose user turn alone holds the
instruction. An edit is only grown from its commit, so it has no path; it must not straddle two splits with that commit.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from graftline.datasets.catalog import Dataset
from graftline.datasets.commit_messages import clean_message
from graftline.datasets.edit import Edit, Rejection, RejectReason, RowResult
from graftline.datasets.formats import json_lines
from graftline.datasets.readers.base import Source, row_id

_INSTRUCTION = "## Instruction:"
_CODE_AFTER = "## Code After:"
_FENCE = "```"
_STYLES = ("descriptive", "lazy")

Commit = Annotated[str, Field(min_length=1, max_length=64)]
Commits = Commit | Annotated[list[Commit], Field(min_length=1)]


class FlatRow(BaseModel):
    """A row of the flat shape as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    commit: Commits
    instr_type: str = Field(max_length=128)
    code_before_purify: str
    code_after_purify: str
    instruct_purify: str


class Message(BaseModel):
    """One turn of a chat."""

    model_config = ConfigDict(strict=True, frozen=True)

    role: str
    content: str


class ChatRow(BaseModel):
    """A row of the chat shape as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    commit: Commits
    instr_type: str = Field(max_length=128)
    old_code: str
    new_code: str
    messages: list[Message] = Field(max_length=16)


def _parse(row: Mapping[str, Any]) -> ChatRow | FlatRow:
    return (ChatRow if "messages" in row else FlatRow).model_validate(row)


def _edits(row: ChatRow | FlatRow, name: str, dataset: Dataset) -> Sequence[RowResult]:
    flat = _flatten(row) if isinstance(row, ChatRow) else row
    return [flat if isinstance(flat, Rejection) else _edit(flat, name, dataset)]


def _flatten(chat: ChatRow) -> FlatRow | Rejection:
    request = next((message.content for message in chat.messages if message.role == "user"), None)
    if request is None:
        return Rejection(RejectReason.BAD_FIELD, "messages: no turn has the role 'user'")
    # the last ones: the code before may hold the same headings
    before, heading_after, _ = request.rpartition(_CODE_AFTER)
    _, heading, instruction = before.rpartition(_INSTRUCTION)
    if not heading or not heading_after:
        return Rejection(
            RejectReason.BAD_FIELD, f"messages: expected {_INSTRUCTION!r} and {_CODE_AFTER!r} in the user's turn"
        )
    return FlatRow(
        commit=chat.commit,
        instr_type=chat.instr_type,
        code_before_purify=chat.old_code,
        code_after_purify=chat.new_code,
        instruct_purify=instruction,
    )


def _edit(row: FlatRow, name: str, dataset: Dataset) -> Edit | Rejection:
    pre, post = _strip_fence(row.code_before_purify), _strip_fence(row.code_after_purify)
    if not pre.strip():
        return Rejection(RejectReason.EMPTY_PRE, "the code before is empty: nothing can be rewritten")
    if not post.strip():
        return Rejection(RejectReason.EMPTY_POST, "the code after is empty: everything was removed, not rewritten")
    instruction = clean_message(row.instruct_purify)
    if not instruction:
        return Rejection(RejectReason.EMPTY_INSTRUCTION, "the instruction is empty")
    commit, *other_commits = [row.commit] if isinstance(row.commit, str) else dict.fromkeys(row.commit)
    return Edit(
        instruction=instruction,
        pre=pre,
        post=post,
        language="python",
        tags=(name, *_kind(row.instr_type), "seed-commit"),
        instruction_source="model",
        id=row_id(name, commit, row.instr_type, instruction, pre),
        dataset=name,
        license=dataset.license,
        group=f"commit:{commit}",
        commit=commit,
        other_commits=tuple(other_commits),
        origin=f"grown from {commit[:12]} ({row.instr_type})",
    )


def _strip_fence(code: str) -> str:
    """Return `code` without the Markdown fence round it; one that encloses only a part of it is code."""
    lines = code.strip().splitlines(keepends=True)
    if len(lines) < 2 or not lines[0].startswith(_FENCE) or lines[-1] != _FENCE:
        return code
    inside = lines[1:-1]
    return code if any(line.startswith(_FENCE) for line in inside) else "".join(inside)


def _kind(instr_type: str) -> tuple[str, ...]:
    """Return the tags of e.g. `qwen3_lazy`: which model wrote the edit, and in which style."""
    model, _, style = instr_type.rpartition("_")
    return (f"style:{style}", f"model:{model}") if model and style in _STYLES else (f"instr_type:{instr_type}",)


SOURCE = Source(json_lines, _parse, _edits)
