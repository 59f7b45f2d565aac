"""From raw rows to edits, labels and counted rejections.

What a row is made of is its dataset's business (`datasets.readers`); here every edit of every dataset is judged alike:
text, license, length, language and syntax.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import orjson

from graftline.core.tokens import token_counter
from graftline.datasets.catalog import Cleaning, Dataset
from graftline.datasets.edit import Edit, Label, Rejection, RejectReason, RowResult
from graftline.datasets.fingerprints import strip_whitespace
from graftline.datasets.language import confirm_language, wrap_excerpt
from graftline.datasets.readers.base import Source


@dataclass(frozen=True, slots=True)
class CleanEdit:
    """An edit that is ready for use, and what was found out on the way."""

    edit: Edit
    pre_stripped: bytes
    post_stripped: bytes
    pre_tokens: int
    post_tokens: int


class Ingest:
    """Judges the rows of one dataset."""

    def __init__(self, name: str, dataset: Dataset, source: Source[Any], cleaning: Cleaning) -> None:
        self._name, self._dataset, self._source, self._cleaning = name, dataset, source, cleaning
        self._count_tokens = token_counter(cleaning.tokenizer)
        self._licenses = frozenset(cleaning.licenses)

    def outcomes(
        self, contents: Sequence[bytes | Mapping[str, Any] | Rejection]
    ) -> list[list[CleanEdit | Label | Rejection]]:
        """Return what becomes of each of some raw rows.

        They are taken step by step, not one after the other: code that does the same many times stays in the
        processor's cache.
        """
        rows = [parse_row(content) if isinstance(content, bytes) else content for content in contents]
        results = [
            [row] if isinstance(row, Rejection) else self._source.outcomes(row, self._name, self._dataset)
            for row in rows
        ]
        return [[self._judge(result) for result in row_results] for row_results in results]

    def _judge(self, result: RowResult) -> CleanEdit | Label | Rejection:
        match result:
            case Label():
                text = result.pre + (result.post or "") + result.instruction
                return self._reject(text, result.license) or result
            case Edit():
                return self._clean_edit(result)
            case _:
                return result

    def _reject(self, text: str, license: str) -> Rejection | None:
        if "\0" in text:
            return Rejection(RejectReason.NOT_TEXT, "holds a NUL character")
        if license in self._licenses:
            return None
        allowed = ", ".join(self._cleaning.licenses)
        return Rejection(RejectReason.LICENSE, f"{license!r} is not allowed; allowed: {allowed}")

    def _clean_edit(self, edit: Edit) -> CleanEdit | Rejection:
        if rejection := self._reject(edit.pre + edit.post + edit.instruction, edit.license):
            return rejection
        pre, post = strip_whitespace(edit.pre), strip_whitespace(edit.post)
        if pre == post and (edit.language != "python" or _indentation(edit.pre) == _indentation(edit.post)):
            # in Python, blanks at the start of a line are syntax
            return Rejection(RejectReason.UNCHANGED, "pre and post differ in nothing, or in blanks only")
        tokens = self._count_tokens(edit.pre)
        if tokens > self._cleaning.max_pre_tokens:
            limit, tokenizer = self._cleaning.max_pre_tokens, self._cleaning.tokenizer
            return Rejection(RejectReason.TOO_LONG, f"pre has {tokens} tokens by {tokenizer}, more than {limit}")
        if self._cleaning.check_syntax:
            parsable = self._make_parsable(edit)
            if isinstance(parsable, Rejection):
                return parsable
            if parsable is not edit:
                edit, pre, post = parsable, strip_whitespace(parsable.pre), strip_whitespace(parsable.post)
        return CleanEdit(edit, pre, post, tokens, self._count_tokens(edit.post))

    def _make_parsable(self, edit: Edit) -> Edit | Rejection:
        language = confirm_language(edit.pre, edit.post, edit.language)
        if language == edit.language:
            return edit
        if language is not None:
            return edit.model_copy(update={"language": language, "tags": (*edit.tags, f"parsed-as:{language}")})
        if self._source.is_snippet and (wrapped := wrap_excerpt(edit.pre, edit.post, edit.language)):
            pre, post, wrapper = wrapped
            return edit.model_copy(update={"pre": pre, "post": post, "tags": (*edit.tags, f"wrapped:{wrapper}")})
        whole = "block" if edit.language == "python" else "member"
        how = f", alone or as a {whole}" if self._source.is_snippet else ""
        return Rejection(RejectReason.UNPARSABLE, f"one side is not valid {edit.language}{how}")


def _indentation(text: str) -> list[tuple[str, bytes]]:
    """Return the lines that hold something: what each starts with, and the whole without blanks."""
    return [(line[: -len(line.lstrip())], strip_whitespace(line)) for line in text.split("\n") if line.strip()]


def parse_row(line: bytes) -> Mapping[str, Any] | Rejection:
    """Return the object on one line of JSON, or why there is none."""
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return _not_json(line, error)
    if not isinstance(row, dict):
        return Rejection(RejectReason.MALFORMED_JSON, f"expected an object, found {type(row).__name__}")
    repeated = _find_repeated_key(line, row)
    return row if repeated is None else Rejection(RejectReason.DUPLICATE_KEY, f"{repeated!r} is there twice")


def _not_json(line: bytes, error: orjson.JSONDecodeError) -> Rejection:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as fault:
        return Rejection(RejectReason.INVALID_UTF8, f"byte {fault.start + 1} of the line is not UTF-8")
    if "surrogate" in error.msg:
        return Rejection(RejectReason.NOT_TEXT, "holds half a surrogate pair")
    place = f"character {error.pos + 1}" if text.strip() else "an empty line"
    return Rejection(RejectReason.MALFORMED_JSON, f"{error.msg.partition(': line')[0]} ({place})")


def _find_repeated_key(line: bytes, row: Mapping[str, Any]) -> str | None:
    """Return a key that an object on `line` has twice; the parser keeps the last of them without a word."""
    # in a flat row every key and every text has two quotes of its own; those inside texts stand after a backslash,
    # which is not itself the second of two
    texts, plain = sum(map(isinstance, row.values(), repeat(str))), line.replace(b"\\\\", b"")
    if plain.count(b'"') - plain.count(b'\\"') == 2 * (len(row) + texts):
        return None
    repeated: list[str] = []

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        repeated.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    try:
        json.loads(line, object_pairs_hook=build_object)
    except (ValueError, RecursionError):
        # the two parsers differ in how deep they go and how long a number may be; the first one took it
        return None
    return repeated[0] if repeated else None
