"""`release_pairs`: one function in two releases of the same package.

Rows carry license, package and both versions, and no instruction: the edits have none, until the stage `tasks` puts them into words.
"""

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from graftline.astgrep.binding import LANGUAGES
from graftline.datasets.edit import Edit, Rejection, RejectReason
from graftline.datasets.formats import json_lines
from graftline.datasets.readers.base import Source


class ReleasePair(BaseModel):
    """A row as it is stored."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    source: str
    license: str = Field(validation_alias=AliasChoices("license", "licence"))
    language: str
    pre: str
    post: str
    registry: str
    pkg: str
    old: str
    new: str
    path: str
    qual: str


def edit_of(pair: ReleasePair, name: str) -> Edit | Rejection:
    """Return the edit of a row of dataset `name`, or why there is none."""
    number = pair.id.rpartition(":")[2]
    if not number:
        return Rejection(RejectReason.BAD_FIELD, f"id: {pair.id!r} has nothing after its colon")
    language = next((language for language in LANGUAGES if language == pair.language), None)
    if language is None:
        return Rejection(RejectReason.UNKNOWN_LANGUAGE, f"language {pair.language!r}; known: {', '.join(LANGUAGES)}")
    if not pair.pre.strip():
        return Rejection(RejectReason.EMPTY_PRE, "pre is empty: nothing can be rewritten")
    if not pair.post.strip():
        return Rejection(RejectReason.EMPTY_POST, "post is empty: the function was removed, not rewritten")
    package = f"{pair.registry}:{pair.pkg}"
    return Edit(
        instruction="",
        pre=pair.pre,
        post=pair.post,
        language=language,
        tags=(name, f"license:{pair.license}"),
        instruction_source="none",
        id=f"{name}:{number}",
        dataset=name,
        license=pair.license,
        group=package,
        origin=f"{package} {pair.old}->{pair.new} {pair.path}",
    )


SOURCE = Source(
    json_lines, ReleasePair.model_validate, lambda pair, name, dataset: [edit_of(pair, name)], is_snippet=True
)
