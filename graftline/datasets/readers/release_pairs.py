"""`release_pairs`: one function in two releases of the same package.

Rows carry licence, package and both versions. There is no instruction; one is written from the function's name, and
the edit is tagged `instruction:derived`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.astgrep.binding import LANGUAGES
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Drop, DropReason, Edit, Outcome
from graftline.datasets.formats import json_lines
from graftline.datasets.readers.base import RawRow, Source, bad_field


class ReleasePair(BaseModel):
    """A row as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    source: str
    licence: str
    language: str
    pre: str
    post: str
    registry: str
    pkg: str
    old: str
    new: str
    path: str
    qual: str


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    return json_lines(folder, max_line_bytes)


def _outcomes(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[Outcome]:
    try:
        pair = ReleasePair.model_validate(row)
    except ValidationError as error:
        return [bad_field(error)]
    return [_edit(pair, name)]


def _edit(pair: ReleasePair, name: str) -> Edit | Drop:
    number = pair.id.rpartition(":")[2]
    if not number:
        return Drop(DropReason.BAD_FIELD, f"id: {pair.id!r} has nothing after its colon")
    language = next((known for known in LANGUAGES if known == pair.language), None)
    if language is None:
        return Drop(DropReason.UNKNOWN_LANGUAGE, f"language {pair.language!r}; known: {', '.join(LANGUAGES)}")
    if not pair.pre.strip():
        return Drop(DropReason.EMPTY_PRE, "pre is empty: nothing can be rewritten")
    if not pair.post.strip():
        return Drop(DropReason.EMPTY_POST, "post is empty: the function was removed, not rewritten")
    package = f"{pair.registry}:{pair.pkg}"
    return Edit(
        instruction=f"Change `{pair.qual.lstrip('.')}` as {pair.pkg} did from {pair.old} to {pair.new}.",
        pre=pair.pre,
        post=pair.post,
        language=language,
        tags=(name, f"licence:{pair.licence}", "instruction:derived"),
        id=f"{name}:{number}",
        dataset=name,
        licence=pair.licence,
        group=package,
        origin=f"{package} {pair.old}->{pair.new} {pair.path}",
    )


SOURCE = Source(rows=_rows, outcomes=_outcomes, is_snippet=True)
