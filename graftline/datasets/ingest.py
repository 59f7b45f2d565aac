"""From raw rows to edits, labels and counted drops.

What a row is made of is its dataset's business (`datasets.sources`); here every edit of every dataset is judged alike:
text, licence, length, language and syntax. Rows are judged one by one; what a row's bad state is called is
`datasets.edit.DropReason`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import orjson
from pydantic import ValidationError

from graftline.core.tokens import token_counter
from graftline.datasets.catalog import Cleaning, Dataset
from graftline.datasets.edit import Drop, DropReason, Edit, Label, Outcome
from graftline.datasets.fingerprints import squeezed
from graftline.datasets.language import confirmed, wrapped
from graftline.datasets.readers.base import Source, bad_field


@dataclass(frozen=True, slots=True)
class CleanEdit:
    """An edit that is ready for use, and what was found out on the way."""

    edit: Edit
    pre_squeezed: bytes
    post_squeezed: bytes
    pre_tokens: int
    post_tokens: int


class Ingest:
    """Judges the rows of one dataset."""

    def __init__(self, name: str, dataset: Dataset, source: Source, cleaning: Cleaning) -> None:
        self._name, self._dataset, self._source, self._cleaning = name, dataset, source, cleaning
        self._tokens = token_counter(cleaning.tokenizer)
        self._licences = frozenset(cleaning.licences)

    def outcomes(self, contents: Sequence[bytes | Mapping[str, Any] | Drop]) -> list[list[CleanEdit | Label | Drop]]:
        """Return what becomes of each of some raw rows.

        They are taken step by step, not one after the other: code that does the same many times stays in the
        processor's cache.
        """
        rows = [parsed(content) if isinstance(content, bytes) else content for content in contents]
        found = [[row] if isinstance(row, Drop) else self._found(row) for row in rows]
        return [[self._cleaned(outcome) for outcome in of_row] for of_row in found]

    def _found(self, row: Mapping[str, Any]) -> Sequence[Outcome]:
        try:
            return self._source.outcomes(row, self._name, self._dataset)
        except ValidationError as error:  # an edit is stricter than a row: no half surrogate pairs, no empty licence
            return [bad_field(error)]

    def _cleaned(self, outcome: Outcome) -> CleanEdit | Label | Drop:
        match outcome:
            case Drop():
                return outcome
            case Label():
                return self._label_fault(outcome) or outcome
            case Edit():
                return self._clean_edit(outcome)

    def _clean_edit(self, edit: Edit) -> CleanEdit | Drop:
        if "\0" in edit.pre or "\0" in edit.post or "\0" in edit.instruction:
            return Drop(DropReason.NOT_TEXT, "holds a NUL character")
        if edit.licence not in self._licences:
            return self._licence_drop(edit.licence)
        pre, post = squeezed(edit.pre), squeezed(edit.post)
        if pre == post and (edit.language != "python" or _indented(edit.pre) == _indented(edit.post)):
            # in Python, blanks at the start of a line are syntax
            return Drop(DropReason.UNCHANGED, "pre and post differ in nothing, or in blanks only")
        tokens = self._tokens(edit.pre)
        if tokens > self._cleaning.max_pre_tokens:
            limit, tokenizer = self._cleaning.max_pre_tokens, self._cleaning.tokenizer
            return Drop(DropReason.TOO_LONG, f"pre has {tokens} tokens by {tokenizer}, more than {limit}")
        if self._cleaning.check_syntax:
            found = self._in_its_language(edit)
            if isinstance(found, Drop):
                return found
            if found is not edit:
                edit, pre, post = found, squeezed(found.pre), squeezed(found.post)
        return CleanEdit(edit, pre, post, tokens, self._tokens(edit.post))

    def _in_its_language(self, edit: Edit) -> Edit | Drop:
        language = confirmed(edit.pre, edit.post, edit.language)
        if language == edit.language:
            return edit
        if language is not None:
            return edit.model_copy(update={"language": language, "tags": (*edit.tags, f"parsed-as:{language}")})
        if self._source.is_snippet and (found := wrapped(edit.pre, edit.post, edit.language)):
            pre, post, wrapper = found
            return edit.model_copy(update={"pre": pre, "post": post, "tags": (*edit.tags, f"wrapped:{wrapper}")})
        how = ", alone or as a member" if self._source.is_snippet else ""
        return Drop(DropReason.UNPARSABLE, f"one side is not valid {edit.language}{how}")

    def _label_fault(self, label: Label) -> Drop | None:
        if "\0" in label.pre + (label.post or "") + label.instruction:
            return Drop(DropReason.NOT_TEXT, "holds a NUL character")
        return None if label.licence in self._licences else self._licence_drop(label.licence)

    def _licence_drop(self, licence: str) -> Drop:
        return Drop(DropReason.LICENCE, f"{licence!r} is not allowed; allowed: {', '.join(self._cleaning.licences)}")


def _indented(text: str) -> list[tuple[str, bytes]]:
    """Return the lines that hold something: what each starts with, and the rest without blanks."""
    return [(line[: -len(line.lstrip())], squeezed(line)) for line in text.split("\n") if line.strip()]


def parsed(line: bytes) -> Mapping[str, Any] | Drop:
    """Return the object on one line of JSON, or why there is none."""
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return _not_json(line, error)
    if not isinstance(row, dict):
        return Drop(DropReason.MALFORMED_JSON, f"expected an object, found {type(row).__name__}")
    repeated = _repeated_key(line, row)
    return row if repeated is None else Drop(DropReason.DUPLICATE_KEY, f"{repeated!r} is there twice")


def _not_json(line: bytes, error: orjson.JSONDecodeError) -> Drop:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as fault:
        return Drop(DropReason.INVALID_UTF8, f"byte {fault.start + 1} of the line is not UTF-8")
    if "surrogate" in error.msg:
        return Drop(DropReason.NOT_TEXT, "holds half a surrogate pair")
    where = f"character {error.pos + 1}" if text.strip() else "an empty line"
    return Drop(DropReason.MALFORMED_JSON, f"{error.msg.partition(': line')[0]} ({where})")


def _repeated_key(line: bytes, row: Mapping[str, Any]) -> str | None:
    """Return a key that an object on `line` has twice; the parser keeps the last of them without a word."""
    # in a flat row every key and every text has two quotes of its own; those inside texts stand after a backslash,
    # which is not itself the second of two
    texts, plain = sum(map(isinstance, row.values(), repeat(str))), line.replace(b"\\\\", b"")
    if plain.count(b'"') - plain.count(b'\\"') == 2 * (len(row) + texts):
        return None
    repeated: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        kept = dict(found)
        if len(kept) < len(found):
            names = [name for name, _ in found]
            repeated.extend(name for name in kept if names.count(name) > 1)
        return kept

    try:
        json.loads(line, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        # the two parsers differ in how deep they go and how long a number may be; the first one took it
        return None
    return repeated[0] if repeated else None
