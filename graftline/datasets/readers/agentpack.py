"""`agentpack`: commits that people made together with coding agents (arXiv 2509.21891).

JSON lines, and only patches: what a hunk shows of a file is the text before and after. The description is that of the
whole commit, so only patches of one file are used, and no long ones; each hunk becomes an edit. Rows carry no licence:
that of the repository counts.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Edit, Rejection, RejectReason, RowResult
from graftline.datasets.formats import json_lines
from graftline.datasets.instructions import clean_message
from graftline.datasets.language import language_of_path
from graftline.datasets.patches import FilePatch, Hunk, PatchFault, files_of, number_of_files
from graftline.datasets.readers.base import Source, row_id

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


def _prefilter(commit: AgentCommit) -> Rejection | None:
    file = _file(commit)
    return file if isinstance(file, Rejection) else None


def _edits(commit: AgentCommit, name: str, dataset: Dataset) -> Sequence[RowResult]:
    file = _file(commit)
    if isinstance(file, Rejection):
        return [file]
    instruction = clean_message(commit.description)
    if not instruction:
        return [Rejection(RejectReason.EMPTY_INSTRUCTION, "description says nothing but who made the commit")]
    path, language, hunks = file
    licence = dataset.license_of(commit.repo)

    def edit(number: int, hunk: Hunk) -> Edit | Rejection:
        if not hunk.pre.strip():
            return Rejection(
                RejectReason.EMPTY_PRE, f"hunk {number} of {path!r} shows nothing before: nothing can be rewritten"
            )
        if not hunk.post.strip():
            return Rejection(
                RejectReason.EMPTY_POST, f"hunk {number} of {path!r} shows nothing after: all of it was removed"
            )
        pre, post, is_dedented = _dedent(hunk)
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

    return [edit(number, hunk) for number, hunk in enumerate(hunks, 1)]


def _file(commit: AgentCommit) -> tuple[str, Language, Sequence[Hunk]] | Rejection:
    """Return path, language and hunks of the one file that was edited, or why the row cannot become an edit."""
    number = number_of_files(commit.patch)
    if number > 1:
        return Rejection(RejectReason.SEVERAL_FILES, f"{number} files")
    size = len(commit.patch)
    if size > MAX_PATCH_CHARACTERS:
        return Rejection(RejectReason.TOO_LONG, f"patch has {size} characters, more than {MAX_PATCH_CHARACTERS}")
    try:
        files = files_of(commit.patch)
    except PatchFault as error:
        return Rejection(RejectReason.BAD_PATCH, f"patch {error}")
    return Rejection(RejectReason.SEVERAL_FILES, f"{len(files)} files") if len(files) > 1 else _readable(files[0])


def _readable(file: FilePatch) -> tuple[str, Language, Sequence[Hunk]] | Rejection:
    path = file.new or file.old or ""
    language = language_of_path(path)
    if language is None:
        return Rejection(RejectReason.UNKNOWN_LANGUAGE, f"{path!r}; known: {', '.join(LANGUAGES)}")
    if file.is_binary:
        return Rejection(RejectReason.NOT_TEXT, f"{path!r} is binary")
    if file.old is None:
        return Rejection(RejectReason.EMPTY_PRE, f"{path!r} is new: nothing can be rewritten")
    if file.new is None:
        return Rejection(RejectReason.EMPTY_POST, f"{path!r} was deleted, not rewritten")
    if not file.hunks:
        return Rejection(RejectReason.UNCHANGED, f"only name or mode of {path!r} changes")
    return path, language, file.hunks


def _dedent(hunk: Hunk) -> tuple[str, str, bool]:
    """Return both sides of `hunk` less the indentation that all their lines share, and whether there was any."""
    sides = [side.split("\n") for side in (hunk.pre, hunk.post)]
    texts = [line for lines in sides for line in lines if line.strip()]
    indentations = [line[: len(line) - len(line.lstrip(" \t"))] for line in texts]
    first, last = min(indentations), max(indentations)  # what these two share, all share
    shared = next((first[:at] for at, mark in enumerate(first) if mark != last[at]), first)
    if not shared:
        return hunk.pre, hunk.post, False
    pre, post = ("\n".join(_remove_indentation(line, shared) for line in lines) for lines in sides)
    return pre, post, True


def _remove_indentation(line: str, indentation: str) -> str:
    # only a blank line can be without it
    return line[len(indentation) :] if line.startswith(indentation) else line.lstrip(" \t")


SOURCE = Source(json_lines, AgentCommit.model_validate, _edits, is_snippet=True, prefilter=_prefilter)
