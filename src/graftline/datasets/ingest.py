"""From the raw files of a dataset to edits: every line becomes an edit or a counted drop.

Rows are read one at a time and in order; what a row's bad state is called is `datasets.edit.DropReason`.
"""

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from graftline.datasets.catalogue import Cleaning
from graftline.datasets.edit import Drop, DropReason, Edit
from graftline.datasets.language import parsable
from graftline.datasets.sources import Reader
from graftline.datasets.tokens import token_estimate
from graftline.rules.equality import without_blanks


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a raw file and what became of it."""

    file: str
    line: int
    """From 1."""
    outcome: Edit | Drop


def rows(folder: Path, reader: Reader, cleaning: Cleaning) -> Iterator[Row]:
    """Yield what becomes of every line of the JSONL files (plain or gzip) in `folder`, in the order of names."""
    for path in _raw_files(folder):
        for number, line in enumerate(_lines(path, cleaning.max_line_bytes), 1):
            outcome = line if isinstance(line, Drop) else _outcome(line, reader, cleaning)
            if outcome is not None:
                yield Row(path.name, number, outcome)


def number_of_lines(folder: Path, cleaning: Cleaning) -> int:
    """Return the number of lines in the JSONL files in `folder`, as far as they can be read."""
    lines = (line for path in _raw_files(folder) for line in _lines(path, cleaning.max_line_bytes))
    return sum(
        line.strip() != b"" if isinstance(line, bytes) else line.reason is DropReason.LINE_TOO_LONG for line in lines
    )


def _raw_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith((".jsonl", ".jsonl.gz")))


def _lines(path: Path, max_bytes: int) -> Iterator[bytes | Drop]:
    """Yield the lines of `path`; one that is too long, or the damaged rest of the file, is a drop."""
    mark = codecs.BOM_UTF8  # some programs start a file with one; it is no part of the first row
    opened: Callable[[Path], IO[bytes]] = gzip.open if path.suffix == ".gz" else _open  # type: ignore[assignment]
    with opened(path) as stream:
        try:
            while line := stream.readline(max_bytes + 1):
                if len(line) <= max_bytes:
                    yield line.removeprefix(mark)
                else:
                    while line and not line.endswith(b"\n"):
                        line = stream.readline(max_bytes)
                    yield Drop(DropReason.LINE_TOO_LONG, f"more than {max_bytes} bytes")
                mark = b""
        except (EOFError, OSError, zlib.error) as error:
            yield Drop(DropReason.TRUNCATED_FILE, f"the file is damaged from here on ({error})")


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _outcome(line: bytes, reader: Reader, cleaning: Cleaning) -> Edit | Drop | None:
    """Return what becomes of one line; None for an empty one."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return Drop(DropReason.INVALID_UTF8, f"byte {error.start + 1} of the line is not UTF-8")
    if not text.strip():
        return None
    try:
        row: Any = json.loads(text.rstrip("\r\n"))
    except (ValueError, RecursionError) as error:
        return Drop(DropReason.MALFORMED_JSON, str(error))
    if not isinstance(row, dict):
        return Drop(DropReason.MALFORMED_JSON, f"expected an object, found {type(row).__name__}")
    try:
        edit = reader(row)
    except ValidationError as error:  # an edit is stricter than a row: no half surrogate pairs, no empty licence
        return _refused(error)
    return edit if isinstance(edit, Drop) else clean(edit, cleaning)


def _refused(error: ValidationError) -> Drop:
    fault = error.errors(include_url=False)[0]
    field = ".".join(map(str, fault["loc"]))
    if fault["type"] == "string_unicode":
        return Drop(DropReason.NOT_TEXT, f"{field}: holds half a surrogate pair")
    return Drop(DropReason.BAD_FIELD, f"{field}: {fault['msg']}")


def clean(edit: Edit, cleaning: Cleaning) -> Edit | Drop:
    """Return `edit` ready for use, wrapped where it is a bare member, or why it is left out."""
    if not _is_text(edit.instruction + edit.pre + edit.post):
        return Drop(DropReason.NOT_TEXT, "holds a NUL character or half a surrogate pair")
    if edit.licence not in cleaning.licences:
        return Drop(DropReason.LICENCE, f"{edit.licence!r} is not allowed; allowed: {', '.join(cleaning.licences)}")
    if without_blanks(edit.pre) == without_blanks(edit.post):
        return Drop(DropReason.UNCHANGED, "pre and post differ in nothing, or in blanks only")
    tokens = token_estimate(edit.pre)
    if tokens > cleaning.max_pre_tokens:
        return Drop(DropReason.TOO_LONG, f"pre has about {tokens} tokens, more than {cleaning.max_pre_tokens}")
    found = parsable(edit.pre, edit.post, edit.language)
    if found is None:
        return Drop(DropReason.UNPARSABLE, f"one side is not valid {edit.language}, alone or as a member")
    pre, post, wrapper = found
    tags = (*edit.tags, f"wrapped:{wrapper}") if wrapper else edit.tags
    return edit.model_copy(update={"pre": pre, "post": post, "tags": tags})


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text
