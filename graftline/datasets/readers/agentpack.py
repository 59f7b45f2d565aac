"""`agentpack`: commits that people made together with coding agents (arXiv 2509.21891).

JSON lines, and only patches: what a hunk shows of a file is the text before and after. The description is that of the
whole commit, so only patches of one file are used, and no long ones; each hunk becomes an edit. Rows carry no licence:
that of the repository counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Drop, DropReason, Edit, Outcome
from graftline.datasets.extensions import language_of_path
from graftline.datasets.formats import json_lines
from graftline.datasets.instructions import cleaned
from graftline.datasets.patches import FilePatch, Hunk, PatchFault, files_of, number_of_files
from graftline.datasets.readers.base import RawRow, Source, bad_field
from graftline.datasets.readers.keys import row_id

MAX_PATCH_CHARACTERS = 8000
"""About 2,000 tokens: what a longer patch does is more than one instruction."""


class AgentCommit(BaseModel):
    """A row as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    agent: str = Field(min_length=1, max_length=64)
    repo: str = Field(pattern=r"^[\w.-]{1,100}/[\w.-]{1,100}$")
    sha: str = Field(min_length=1, max_length=64)
    description: str
    patch: str


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    return json_lines(folder, max_line_bytes)


def _unwanted(row: Mapping[str, Any]) -> Drop | None:
    try:
        found = _file(AgentCommit.model_validate(row))
    except ValidationError as error:
        return bad_field(error)
    return found if isinstance(found, Drop) else None


def _outcomes(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[Outcome]:
    try:
        commit = AgentCommit.model_validate(row)
    except ValidationError as error:
        return [bad_field(error)]
    found = _file(commit)
    if isinstance(found, Drop):
        return [found]
    instruction = cleaned(commit.description)
    if not instruction:
        return [Drop(DropReason.EMPTY_INSTRUCTION, "description says nothing but who made the commit")]
    path, language, hunks = found
    licence = dataset.licence_of(commit.repo)

    def outcome(number: int, hunk: Hunk) -> Edit | Drop:
        if not hunk.pre.strip():
            return Drop(
                DropReason.EMPTY_PRE, f"hunk {number} of {path!r} shows nothing before: nothing can be rewritten"
            )
        if not hunk.post.strip():
            return Drop(DropReason.EMPTY_POST, f"hunk {number} of {path!r} shows nothing after: all of it was removed")
        pre, post, is_dedented = _dedented(hunk)
        return Edit(
            instruction=instruction,
            pre=pre,
            post=post,
            language=language,
            tags=(name, "hunk", f"agent:{commit.agent}", *(("dedented",) if is_dedented else ())),
            id=row_id(name, commit.repo, commit.sha, path, str(number)),
            dataset=name,
            licence=licence,
            group=commit.repo,
            commit=commit.sha,
            # with the number, as a file may have several hunks
            path=f"{path}#{number}",
            origin=f"{commit.repo}@{commit.sha[:12]} {path} line {hunk.line}",
        )

    return [outcome(number, hunk) for number, hunk in enumerate(hunks, 1)]


def _file(commit: AgentCommit) -> tuple[str, Language, Sequence[Hunk]] | Drop:
    """Return path, language and hunks of the one file that was edited, or why the row cannot become an edit."""
    number = number_of_files(commit.patch)
    if number > 1:
        return Drop(DropReason.SEVERAL_FILES, f"{number} files")
    size = len(commit.patch)
    if size > MAX_PATCH_CHARACTERS:
        return Drop(DropReason.TOO_LONG, f"patch has {size} characters, more than {MAX_PATCH_CHARACTERS}")
    try:
        files = files_of(commit.patch)
    except PatchFault as error:
        return Drop(DropReason.BAD_PATCH, f"patch {error}")
    return Drop(DropReason.SEVERAL_FILES, f"{len(files)} files") if len(files) > 1 else _readable(files[0])


def _readable(file: FilePatch) -> tuple[str, Language, Sequence[Hunk]] | Drop:
    path = file.new or file.old or ""
    language = language_of_path(path)
    if language is None:
        return Drop(DropReason.UNKNOWN_LANGUAGE, f"{path!r}; known: {', '.join(LANGUAGES)}")
    if file.is_binary:
        return Drop(DropReason.NOT_TEXT, f"{path!r} is binary")
    if file.old is None:
        return Drop(DropReason.EMPTY_PRE, f"{path!r} is new: nothing can be rewritten")
    if file.new is None:
        return Drop(DropReason.EMPTY_POST, f"{path!r} was deleted, not rewritten")
    if not file.hunks:
        return Drop(DropReason.UNCHANGED, f"only name or mode of {path!r} changes")
    return path, language, file.hunks


def _dedented(hunk: Hunk) -> tuple[str, str, bool]:
    """Return both sides of `hunk` less the indentation that all their lines share, and whether there was any."""
    sides = [side.split("\n") for side in (hunk.pre, hunk.post)]
    texts = [line for lines in sides for line in lines if line.strip()]
    indentations = [line[: len(line) - len(line.lstrip(" \t"))] for line in texts]
    first, last = min(indentations), max(indentations)  # what these two share, all share
    shared = next((first[:at] for at, mark in enumerate(first) if mark != last[at]), first)
    if not shared:
        return hunk.pre, hunk.post, False
    pre, post = ("\n".join(_less(line, shared) for line in lines) for lines in sides)
    return pre, post, True


def _less(line: str, indentation: str) -> str:
    # only a blank line can be without it
    return line[len(indentation) :] if line.startswith(indentation) else line.lstrip(" \t")


SOURCE = Source(rows=_rows, outcomes=_outcomes, is_snippet=True, unwanted=_unwanted)
