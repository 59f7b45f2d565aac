"""Candidates from files of changes: lines of JSON, plain or compressed, that have both sides of every file with them.

Lines of our own records are read, and such as hold a commit: `repo`, `parent`, `commit`, `license`, `message`, `files` with `path`,
`before` and `after`, and `untouched` with `path` and `text`; other fields are passed over.
"""

import lzma
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError

from graftline.codemod.token_changes import measure_mechanics
from graftline.core.errors import DataError
from graftline.datasets.catalog import NO_LICENSE, license_by_pattern
from graftline.datasets.edit import Rejection
from graftline.datasets.formats import lines_of
from graftline.datasets.ingest import parse_row
from graftline.datasets.instruction_source import AnswerableBy, InstructionSource
from graftline.datasets.language import language_of_path
from graftline.datasets.licenses import spdx
from graftline.datasets.readers.base import bad_field, row_id
from graftline.datasets.repository_changes.candidate import Candidate, ChangeRejection, Untouched, make_change
from graftline.datasets.repository_changes.change import (
    ChangedFile,
    ChangeRejectReason,
    RepositoryChange,
    UntouchedFile,
)
from graftline.datasets.repository_changes.histories import is_foreign, make_instruction
from graftline.datasets.repository_changes.settings import RepositoryChangesConfig

MAX_LINE_BYTES = 64 << 20
COMPRESSED = (".jsonl.gz", ".jsonl.xz")
ENDINGS = (".jsonl", *COMPRESSED)


class StoredChange(BaseModel):
    """A line as it is stored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = ""
    repo: str = Field(min_length=1)
    parent: str = Field(min_length=1)
    commit: str = Field(min_length=1)
    license: str = Field(default="", validation_alias=AliasChoices("license", "licence"))
    message: str = ""
    instruction: str = ""
    instruction_source: InstructionSource = "commit"
    answerable: bool | None = None
    answerable_by: AnswerableBy | None = None
    unit: str = "file"
    files: tuple[ChangedFile, ...]
    other_files: int = Field(default=0, ge=0, validation_alias=AliasChoices("other_files", "skipped_files"))
    untouched: tuple[UntouchedFile, ...] = ()
    untouched_total: int | None = Field(default=None, ge=0)


def record_files(path: Path) -> list[Path]:
    """Return the file `path`, or the files of changes below it, in order; DataError if there are none."""
    files = [path] if path.is_file() else sorted(path.rglob("*.jsonl*")) if path.is_dir() else []
    named = [file for file in files if file.name.endswith(ENDINGS)]
    if not named:
        raise DataError(f"{path}: holds no changes; expected {', '.join(ENDINGS)}, or a folder with such files")
    return named


def read_records(path: Path, config: RepositoryChangesConfig) -> Iterator[Candidate | ChangeRejection]:
    """Yield what the lines of one file hold; a line that is no change, or is damaged, is rejected."""
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as stream:
        for row in lines_of(stream, path.name, MAX_LINE_BYTES):
            place = f"{path.name}:{row.line}"
            content = parse_row(row.content) if isinstance(row.content, bytes) else row.content
            if isinstance(content, Rejection):
                yield ChangeRejection("", place, ChangeRejectReason.BAD_RECORD, str(content))
                continue
            try:
                yield _candidate(content, place, config)
            except ValidationError as error:
                repo, detail = str(content.get("repo", ""))[:200], bad_field(error).detail
                yield ChangeRejection(repo, place, ChangeRejectReason.BAD_RECORD, detail)


def read_changes(path: Path) -> Iterator[RepositoryChange]:
    """Yield the changes that the lines of one file hold, as they are: nobody judges whether they are mechanical, or near to others.

    DataError for a line that is no change.
    """
    for candidate in read_records(path, RepositoryChangesConfig()):
        if isinstance(candidate, ChangeRejection):
            raise DataError(f"{path}: {candidate.commit}: is no change ({candidate.detail}); take the line out")
        languages = [(file, language_of_path(file.path)) for file in candidate.files]
        files = [file for file, language in languages if language is not None]
        if not files:
            raise DataError(
                f"{path}: {candidate.origin}: changes no file of a language that is known; take the line out"
            )
        [(language, _)] = Counter(language for _, language in languages if language is not None).most_common(1)
        yield make_change(
            candidate, files, language, measure_mechanics(((file.before, file.after) for file in files), 1)
        )


def _candidate(row: Mapping[str, Any], place: str, config: RepositoryChangesConfig) -> Candidate:
    stored = StoredChange.model_validate(row)
    files = [file for file in stored.files if not is_foreign(file.path)]

    def read_untouched() -> Untouched:
        sample, size = list[UntouchedFile](), 0
        for file in stored.untouched[: config.untouched]:
            size += len(file.text)
            if size <= config.max_bytes:
                sample.append(file)
        return tuple(sample), stored.untouched_total

    return Candidate(
        id=stored.id or row_id("repository_changes", stored.repo.lower(), stored.commit),
        repo=stored.repo,
        parent=stored.parent,
        commit=stored.commit,
        license=spdx(stored.license)
        if stored.license
        else license_by_pattern(config.licenses, stored.repo, NO_LICENSE),
        instruction=stored.instruction or make_instruction(stored.message),
        instruction_source=stored.instruction_source if stored.instruction else "commit",
        files=files,
        origin=place,
        unit="function" if stored.unit == "function" else "file",
        aliases=config.aliases_of(stored.repo),
        answerable=stored.answerable,
        answerable_by=stored.answerable_by,
        other_files=stored.other_files + len(stored.files) - len(files),
        read_untouched=read_untouched,
    )
