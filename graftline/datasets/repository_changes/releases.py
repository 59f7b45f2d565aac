"""Candidates from two releases of a package: functions that one token change, and nothing else, tells apart.

Edits of one package and two releases that consist of the same token change are put together, as the files that they are in. The
instruction says what becomes of the tokens; it is answerable where doing so at every place makes the texts after.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from graftline.astgrep.binding import Language
from graftline.codemod.token_changes import Kind, list_token_changes
from graftline.datasets.edit import Edit
from graftline.datasets.language import unwrap_member, wrap_excerpt
from graftline.datasets.readers.base import row_id
from graftline.datasets.repository_changes.candidate import Candidate
from graftline.datasets.repository_changes.change import ChangedFile

_ORIGIN = re.compile(r"(?P<package>\S+) (?P<old>\S+)->(?P<new>\S+) (?P<path>.+)")
_WRAPPED = "wrapped:"
_WORD = re.compile(r"\w")
MAX_QUOTED = 200
"""Characters of code that an instruction quotes; who has to quote more writes a patch."""


class _Release(NamedTuple):
    package: str
    old: str
    new: str
    license: str
    language: Language
    kind: Kind


def release_candidates(edits: Iterable[Edit], min_functions: int) -> Iterator[Candidate]:
    """Yield what at least `min_functions` functions of one package and two releases have in common, in order of their names."""
    groups: dict[_Release, dict[tuple[str, str], tuple[str, Edit]]] = defaultdict(dict)
    for edit in edits:
        origin = _ORIGIN.fullmatch(edit.origin)
        kinds = set(list_token_changes(edit.pre, edit.post)) if origin else set()
        if origin and len(kinds) == 1 and _WORD.search("".join(kind := kinds.pop())):
            release = _Release(origin["package"], origin["old"], origin["new"], edit.license, edit.language, kind)
            # overloads that were copied are one function
            groups[release].setdefault((edit.pre, edit.post), (origin["path"], edit))
    for release, functions in sorted(groups.items(), key=lambda item: item[0]):
        if len(functions) >= min_functions:
            yield _candidate(release, list(functions.values()))


def _candidate(release: _Release, functions: Sequence[tuple[str, Edit]]) -> Candidate:
    by_path: dict[str, list[Edit]] = defaultdict(list)
    for path, edit in functions:
        by_path[path].append(edit)
    files = [ChangedFile(path=path, **_join(by_path[path])) for path in sorted(by_path)]
    instruction, is_answerable = describe_kind(release.kind, files)
    package, old, new, _, language, kind = release
    return Candidate(
        id=row_id("repository_changes", package.lower(), old, new, language, *kind),
        repo=package,
        parent=old,
        commit=new,
        license=release.license,
        instruction=instruction,
        instruction_source="rule" if instruction else "none",
        files=files,
        origin=f"{package} {old}->{new}",
        unit="function",
        aliases=tuple(sorted({alias for _, edit in functions for alias in edit.aliases})),
        answerable=is_answerable,
        answerable_by="reader" if instruction else "no_instruction",
    )


def _join(edits: Sequence[Edit]) -> dict[str, str]:
    """Return the functions of one file below each other, wrapped together where they have to be."""
    sides = [[edit.pre for edit in edits], [edit.post for edit in edits]]
    before, after = ("\n\n".join(map(_unwrap, side, edits)) for side in sides)
    if any(tag.startswith(_WRAPPED) for edit in edits for tag in edit.tags):
        wrapped = wrap_excerpt(before, after, edits[0].language)
        # members of an object need commas between them, so each stays in its own
        before, after = wrapped[:2] if wrapped else ("\n\n".join(side) for side in sides)
    return {"before": before, "after": after}


def _unwrap(text: str, edit: Edit) -> str:
    wrappers = [tag.removeprefix(_WRAPPED) for tag in edit.tags if tag.startswith(_WRAPPED)]
    return unwrap_member(text, edit.language, wrappers[0]) if wrappers else text


def describe_kind(kind: Kind, files: Sequence[ChangedFile]) -> tuple[str, bool]:
    """Return what a token change asks for, and whether doing that everywhere makes the texts after of `files`.

    Kind("tempDir", "tempDirPath")  ->  "Replace `tempDir` with `tempDirPath` everywhere."

    The instruction is empty where the code cannot be quoted.
    """
    removed = _quote(kind.removed, [file.before for file in files])
    added = _quote(kind.added, [file.after for file in files])
    if removed is None or added is None:
        return "", False
    if not removed:
        return f"Add `{added}` wherever it is missing.", False
    instruction = f"Replace `{removed}` with `{added}` everywhere." if added else f"Remove `{removed}` everywhere."
    pattern = _pattern(kind.removed)
    results = [pattern.sub(lambda match: f" {added} ", file.before) for file in files]
    return instruction, all(
        not list(list_token_changes(text, file.after)) for text, file in zip(results, files, strict=True)
    )


def _quote(tokens: str, texts: Sequence[str]) -> str | None:
    """Return tokens as the first text that holds them has them, on one line; None where they cannot be quoted."""
    if not tokens:
        return ""
    match = next((match for text in texts if (match := _pattern(tokens).search(text))), None)
    code = " ".join(match[0].split()) if match else ""
    return code if code and "`" not in code and len(code) <= MAX_QUOTED else None


def _pattern(tokens: str) -> re.Pattern[str]:
    parts = tokens.split(" ")
    start, end = (r"(?<!\w)" if _WORD.match(parts[0]) else ""), (r"(?!\w)" if _WORD.match(parts[-1]) else "")
    return re.compile(start + r"\s*".join(map(re.escape, parts)) + end)
