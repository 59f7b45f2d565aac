"""`release_pairs`: one function in two releases of the same package.

Rows carry licence, package and both versions. There is no instruction; one is written from the function's name, and
the edit is tagged `instruction:derived`.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.actions.astgrep import LANGUAGES
from graftline.datasets.edit import Drop, DropReason, Edit


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


def edit_of(row: Mapping[str, Any]) -> Edit | Drop:
    """Return the edit of one row, or why there is none."""
    try:
        pair = ReleasePair.model_validate(row)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        return Drop(DropReason.BAD_FIELD, f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}")
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
        tags=("release_pairs", f"licence:{pair.licence}", "instruction:derived"),
        id=f"release_pairs:{number}",
        dataset="release_pairs",
        licence=pair.licence,
        group=package,
        origin=f"{package} {pair.old}->{pair.new} {pair.path}",
    )
