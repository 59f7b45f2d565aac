"""`smellycode`: which smells are in which methods of one toy program, written in four languages (HRI-EU).

There is no text after, so that every row is a label. The ground truth, a CSV file, is joined with the code as it is
without the comments that name the smells; its other smells are in the same text.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import Language
from graftline.core.errors import DataError
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Label, Rejection, RejectReason
from graftline.datasets.formats import csv_rows
from graftline.datasets.readers.base import RawRow, Source, row_id

_TRUTH = "Analysis/GroundTruthLevel/Cleaned_GroundTruth.csv"
_COLUMNS = ("Language", "Class", "Code Smell #", "Category", "Code Smell", "Method", "Type")
_REPOSITORY = "HRI-EU/SmellyCodeDataset"
_LANGUAGES: Mapping[str, tuple[Language, str]] = {
    "Python": ("python", ".py"),
    "Java": ("java", ".java"),
    "JavaScript": ("javascript", ".js"),
}
_WHOLE = "Entire Class"
_CONSTRUCTORS = ("__init__", "Constructor", "constructor")
_HEADERS = (("/*", "*/"), ('"""', '"""'))


class Smell(BaseModel):
    """A row of the ground truth, with the code it is about."""

    model_config = ConfigDict(strict=True, frozen=True)

    language: str = Field(alias="Language", max_length=64)
    class_name: str = Field(alias="Class", min_length=1, max_length=256)
    number: str = Field(alias="Code Smell #", min_length=1, max_length=64)
    category: str = Field(alias="Category", min_length=1, max_length=256)
    smell: str = Field(alias="Code Smell", min_length=1, max_length=256)
    method: str = Field(alias="Method", min_length=1, max_length=256)
    type: str = Field(alias="Type")
    file: str
    """Relative to the root of the repository; empty where no file declares the class."""
    code: str


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    truth = folder / _TRUTH
    if not truth.is_file():
        raise DataError(f"{truth}: is missing; mend `files` of the dataset, or fetch it again")

    @cache
    def code_of(language: str, class_name: str) -> tuple[str, str] | Rejection:
        return _code(folder, language, class_name, max_line_bytes)

    for line, row in csv_rows(truth, _COLUMNS):
        code = code_of(row["Language"], row["Class"])
        content = code if isinstance(code, Rejection) else {**row, "file": code[0], "code": code[1]}
        yield RawRow(_TRUTH, line, content)


def _code(folder: Path, language: str, class_name: str, max_bytes: int) -> tuple[str, str] | Rejection:
    """Return name and text of the file that declares a class: its own, or else the first one that does."""
    if language not in _LANGUAGES or not class_name.isidentifier():  # both name files, and come from outside
        return "", ""
    ending = _LANGUAGES[language][1]
    sources = folder / language / "SmellyUnannotated"
    files = sorted(sources.glob(f"*{ending}"), key=lambda path: (path.stem != class_name, path.name))
    declaration = re.compile(rf"\bclass\s+{class_name}\b")
    for path in files:
        name = path.relative_to(folder).as_posix()
        if path.stat().st_size > max_bytes:
            return Rejection(RejectReason.LINE_TOO_LONG, f"{name}: more than {max_bytes} bytes")
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError as error:
            return Rejection(RejectReason.INVALID_UTF8, f"{name}: byte {error.start + 1} is not UTF-8")
        if declaration.search(text):
            return name, text
    return "", ""


def _label(smell: Smell, name: str, dataset: Dataset) -> Label | Rejection:
    if smell.language not in _LANGUAGES:
        return Rejection(RejectReason.UNKNOWN_LANGUAGE, f"Language {smell.language!r}; known: {', '.join(_LANGUAGES)}")
    if not smell.file:
        return Rejection(RejectReason.BAD_FIELD, f"Class: no file of {smell.language} declares {smell.class_name!r}")
    pre = _strip_header(smell.code)
    if not pre.strip():
        return Rejection(RejectReason.EMPTY_PRE, f"{smell.file} is empty")
    return Label(
        label=smell.smell,
        holds=True,
        subject="" if smell.method == _WHOLE else smell.method,
        detail=smell.type,
        instruction=f"Remove the {smell.smell} in {_place(smell)}.",
        pre=pre,
        language=_LANGUAGES[smell.language][0],
        tags=(name, f"category:{smell.category}"),
        id=row_id(name, smell.language, smell.class_name, smell.number),
        dataset=name,
        license=dataset.license_of(_REPOSITORY),
        group=_REPOSITORY,
        origin=f"{_REPOSITORY} {smell.file}",
    )


def _place(smell: Smell) -> str:
    if smell.method == _WHOLE:
        return f"the class `{smell.class_name}`"
    if smell.method in _CONSTRUCTORS:
        return f"the constructor of `{smell.class_name}`"
    return f"`{smell.method}`"


def _strip_header(code: str) -> str:
    """Return `code` without the license at its top, which calls it smelly."""
    text = code.lstrip()
    for start, end in _HEADERS:
        header, separator, body = text.removeprefix(start).partition(end)
        if text.startswith(start) and separator and "smelly code" in header:
            return body.lstrip("\r\n")
    return code


SOURCE = Source(_rows, Smell.model_validate, lambda smell, name, dataset: [_label(smell, name, dataset)])
