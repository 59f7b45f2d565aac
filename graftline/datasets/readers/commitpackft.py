"""`commitpackft`: single-file commits whose messages read like instructions (OctoPack, arXiv 2308.07124).

JSON lines, one folder per language, in ten columns that EditPackFT has too. Rows carry their own licenses, three of them
copyleft or unknown; rows of new files have nothing to rewrite.
"""

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.datasets.commit_messages import clean_message
from graftline.datasets.edit import Edit, Rejection, RejectReason
from graftline.datasets.formats import json_lines
from graftline.datasets.language import language_of_path
from graftline.datasets.licenses import spdx
from graftline.datasets.readers.base import Source, row_id

_LANGUAGES: dict[str, Language] = {**{language: language for language in LANGUAGES}, "jsx": "javascript"}


class CommitRow(BaseModel):
    """A row as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    commit: str = Field(min_length=1, max_length=64)
    old_file: str = Field(max_length=4096)
    new_file: str = Field(max_length=4096)
    old_contents: str
    new_contents: str
    subject: str
    message: str
    lang: str = Field(max_length=64)
    license: str = Field(max_length=256)
    """GitHub's key; it counts, whatever the dataset as a whole says of itself."""
    repos: str
    """Every repository that holds the commit, forks and mirrors included, joined by commas."""


def edit_of(row: CommitRow, instruction: str, name: str) -> Edit | Rejection:
    """Return the edit of a row of dataset `name`, or why there is none; `instruction` goes before the message."""
    if not row.old_contents or row.old_contents.isspace():
        return Rejection(RejectReason.EMPTY_PRE, "old_contents is empty: the file is new")
    if not row.new_contents or row.new_contents.isspace():
        return Rejection(RejectReason.EMPTY_POST, "new_contents is empty: the file was deleted")
    language = language_of_path(row.new_file) or _LANGUAGES.get(row.lang.lower())
    if language is None:
        fields = f"new_file {row.new_file!r}, lang {row.lang!r}"
        return Rejection(RejectReason.UNKNOWN_LANGUAGE, f"{fields}; known: {', '.join(LANGUAGES)}")
    instruction = clean_message(instruction) or clean_message(row.message) or clean_message(row.subject)
    if not instruction:
        return Rejection(RejectReason.EMPTY_INSTRUCTION, "message and subject say nothing but who made the commit")
    repository, *forks = dict.fromkeys(filter(None, map(str.strip, row.repos.split(",")))) or [""]
    if not repository:
        return Rejection(RejectReason.BAD_FIELD, "repos: names no repository")
    license = spdx(row.license)
    return Edit(
        instruction=instruction,
        pre=row.old_contents,
        post=row.new_contents,
        language=language,
        tags=(name, f"license:{license}", f"lang:{row.lang}", f"repo:{repository}"),
        instruction_source="commit",
        id=row_id(name, row.commit, row.old_file, row.new_file),
        dataset=name,
        license=license,
        group=repository,
        aliases=tuple(forks),
        commit=row.commit,
        path=row.old_file,
        origin=f"{repository}@{row.commit[:12]} {row.old_file}",
    )


SOURCE = Source(json_lines, CommitRow.model_validate, lambda row, name, dataset: [edit_of(row, "", name)])
