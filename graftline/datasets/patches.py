"""Unified diffs, as git writes them, into files and hunks; nothing is applied, as there is nothing to apply it to."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field


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
    old_left, new_left = (1 if count is None else int(count) for count in (head[2], head[4]))
    pre, post, last = list[str](), list[str](), list[list[str]]()
    while old_left or new_left or (at < len(lines) and lines[at].startswith("\\")):
        if at == len(lines):
            raise PatchFault(f"ends {old_left + new_left} lines before the end of a hunk")
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
        old_left, new_left = old_left - is_old, new_left - is_new
        if not last or old_left < 0 or new_left < 0:
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
            name = _ESCAPE.sub(_unescaped, quoted[1].encode()).decode()
        except UnicodeError:
            raise PatchFault(f"has a path that is not UTF-8: {text[:100]!r}") from None
    return None if name == "/dev/null" else name.removeprefix(prefix)


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[2], 8) if found[2] else _ESCAPES[found[1][0]]])
