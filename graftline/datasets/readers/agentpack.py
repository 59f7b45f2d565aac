"""`agentpack`: commits that people made together with coding agents (arXiv 2509.21891).

JSON lines, and only patches: what a hunk shows of a file is the text before and after. The description is that of the
whole commit, so only patches of one file are used, and no long ones; each hunk becomes an edit. Where there are several, the
description asks for more than each of them does, and they have no instruction. It cannot be divided among them: of 266 hunks of 78
such patches, the lists of their descriptions name code of one hunk alone for six, and for three of those they say what is done there.
Rows carry no license: that of the repository counts.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.datasets.catalog import Dataset
from graftline.datasets.commit_messages import clean_message
from graftline.datasets.edit import Edit, Rejection, RejectReason, RowResult
from graftline.datasets.formats import json_lines
from graftline.datasets.language import language_of_path
from graftline.datasets.readers.base import Source, row_id


class PatchFault(ValueError):
    """A text that is no unified diff, or not a whole one."""


@dataclass(frozen=True, slots=True)
class Hunk:
    """One place of a file: what stands there before and after, context included."""

    line: int
    """At which it starts in the file before, from 1."""
    pre: str
    post: str


@dataclass(slots=True)
class FilePatch:
    """What is done to one file."""

    old: str | None
    """Its path before; None where the file is new."""
    new: str | None
    """Its path after; None where the file is deleted."""
    is_binary: bool = False
    hunks: list[Hunk] = field(default_factory=list)
    """None where only its name or mode changes, or where it is binary."""


_GIT = "diff --git "
_HUNK = re.compile(r"@@ -([0-9]{1,9})(?:,([0-9]{1,9}))? \+([0-9]{1,9})(?:,([0-9]{1,9}))? @@")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb'\\(?:([abtnvfr"\\])|([0-3][0-7]{2}))')
_ESCAPES = dict(zip(b'abtnvfr"\\', b'\a\b\t\n\v\f\r"\\', strict=True))


def number_of_files(patch: str) -> int:
    """Return how many files a patch of git's has, without reading it."""
    # a line of a hunk never starts so: it has a blank or a sign before it
    return patch.startswith(_GIT) + patch.count(f"\n{_GIT}")


def files_of(patch: str) -> list[FilePatch]:
    """Return the files of `patch` in order; what stands before the first one, such as the head of a letter, is left out.

    Raises:
        PatchFault: it has no file, ends within a hunk, or is the diff of a merge.
    """
    if patch.partition("\n")[0].endswith("\r"):  # ends of lines of a letter, not of the files
        patch = patch.replace("\r\n", "\n")
    lines = patch.removesuffix("\n").split("\n")
    files: list[FilePatch] = []
    is_named, at = True, 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if line.startswith(_GIT):
            files.append(_git_file(line))
            is_named = False
        elif line.startswith("--- ") and at < len(lines) and lines[at].startswith("+++ "):
            if is_named:
                files.append(FilePatch("", ""))
            files[-1].old, files[-1].new = _name(line[4:], "a/"), _name(lines[at][4:], "b/")
            is_named, at = True, at + 1
        elif line.startswith(("@@", "diff --cc ", "diff --combined ")):
            at = _read_hunk(files, lines, at)
        elif files:
            _read_header(files[-1], line, at)
    if not files:
        raise PatchFault("holds no file; expected lines that start with 'diff --git', or with '---' and '+++'")
    if any(file.old == "" or file.new == "" for file in files):
        raise PatchFault("does not say of every file what it is called")
    return files


def _git_file(line: str) -> FilePatch:
    # blanks are not escaped, so that the names can be told apart only where they are the same; where they are not,
    # lines further down repeat them
    names = line[len(_GIT) :]
    middle = len(names) // 2
    old, new = _name(names[:middle], "a/"), _name(names[middle + 1 :], "b/")
    return FilePatch(old, new) if old == new and names[middle : middle + 1] == " " else FilePatch("", "")


def _read_header(file: FilePatch, line: str, number: int) -> None:
    if line.startswith("new file mode "):
        file.old = None
    elif line.startswith("deleted file mode "):
        file.new = None
    elif line.startswith(("rename from ", "copy from ")):
        file.old = _name(line.partition(" from ")[2], "")
    elif line.startswith(("rename to ", "copy to ")):
        file.new = _name(line.partition(" to ")[2], "")
    elif line.startswith(("Binary files ", "GIT binary patch")):
        file.is_binary = True
    elif line.startswith((" ", "+", "-")) and file.hunks and line != "-- ":  # after which a letter is signed
        raise PatchFault(f"line {number} is one more than its hunk announced")


def _read_hunk(files: list[FilePatch], lines: Sequence[str], at: int) -> int:
    """Add the hunk that line `at`, from 1, announces to the last file; return the line it ends in."""
    head = _HUNK.match(lines[at - 1])
    if head is None or not files:
        raise PatchFault(f"line {at} starts no hunk of one file; expected e.g. '@@ -1,4 +1,5 @@'")
    old_lines, new_lines = (1 if count is None else int(count) for count in (head[2], head[4]))
    pre, post, last = list[str](), list[str](), list[list[str]]()
    while old_lines or new_lines or (at < len(lines) and lines[at].startswith("\\")):
        if at == len(lines):
            raise PatchFault(f"ends {old_lines + new_lines} lines before the end of a hunk")
        line, at = lines[at], at + 1
        if line.startswith("\\"):  # "\ No newline at end of file"
            for side in last:
                side[-1] = side[-1].removesuffix("\n")
            continue
        # a blank line of context loses its only blank on many ways
        is_old, is_new = line[:1] in ("", " ", "-"), line[:1] in ("", " ", "+")
        last = [side for side, is_of in ((pre, is_old), (post, is_new)) if is_of]
        for side in last:
            side.append(f"{line[1:]}\n")
        old_lines, new_lines = old_lines - is_old, new_lines - is_new
        if not last or old_lines < 0 or new_lines < 0:
            raise PatchFault(f"line {at} does not fit the hunk it is in")
    files[-1].hunks.append(Hunk(int(head[1]), "".join(pre), "".join(post)))
    return at


def _name(text: str, prefix: str) -> str | None:
    """Return a path as it is, without `prefix`; None for that of no file."""
    quoted = _QUOTED.match(text)
    if quoted is None:
        name = text.partition("\t")[0]  # a time may follow
    else:
        try:
            name = _ESCAPE.sub(_unescape, quoted[1].encode()).decode()
        except UnicodeError:
            raise PatchFault(f"has a path that is not UTF-8: {text[:100]!r}") from None
    return None if name == "/dev/null" else name.removeprefix(prefix)


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[2], 8) if match[2] else _ESCAPES[match[1][0]]])


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
    license = dataset.license_of(commit.repo)

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
            instruction="" if len(hunks) > 1 else instruction,
            pre=pre,
            post=post,
            language=language,
            tags=(
                *(name, "hunk", f"agent:{commit.agent}"),
                *(("dedented",) if is_dedented else ()),
            ),
            instruction_source="none" if len(hunks) > 1 else "commit",
            id=row_id(name, commit.repo, commit.sha, path, str(number)),
            dataset=name,
            license=license,
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
