"""`marv`: refactorings of Java methods, each judged by people (MaRV, FORGE 2025).

One document, `{type of refactoring: [pair, …]}`. A vote is 1 for "this is that refactoring", 0 against, -1 for "don't
know" and -2 where it was never given. A pair is an edit where every vote is for it; every other pair that was judged is
a label. Texts are methods, not files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import DataError
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Drop, DropReason, Edit, Label, Outcome
from graftline.datasets.formats import files_in, json_document
from graftline.datasets.readers.base import RawRow, Source, bad_field
from graftline.datasets.readers.keys import row_id
from graftline.datasets.readers.refactorings import KINDS, instruction_of

_REPOSITORY = re.compile(r"/([\w.-]{1,100}/[\w.-]{1,100})/commit/")
_TOUCHES_CALLERS = ("Extract Method", "Rename Method", "Remove Parameter")


class Evaluation(BaseModel):
    """What one person said."""

    model_config = ConfigDict(strict=True, frozen=True)

    vote: Literal[1, 0, -1, -2]


class Pair(BaseModel):
    """A pair as it is stored, with its type."""

    model_config = ConfigDict(strict=True, frozen=True)

    type: str
    refactoring_id: int | str
    commit_sha: str = Field(min_length=1, max_length=64)
    commit_link: str = Field(max_length=1024)
    file_path: str = Field(min_length=1, max_length=4096)
    description: str = Field(max_length=65536)
    code_before: str
    code_after: str
    evaluations: list[Evaluation] = Field(max_length=1024)


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    for path in files_in(folder, ".json"):
        document = json_document(path)
        shape = f"{path}: expected an object of lists of pairs by type of refactoring ({', '.join(KINDS)})"
        if not isinstance(document, dict):
            raise DataError(f"{shape}, found {type(document).__name__}; fetch MaRV.json again")
        name, number = path.relative_to(folder).as_posix(), 0
        for kind, pairs in document.items():
            if kind not in KINDS or not isinstance(pairs, list):
                raise DataError(f"{shape}, found {kind!r} with {type(pairs).__name__}; fetch MaRV.json again")
            for pair in pairs:
                number += 1
                yield RawRow(name, number, _content(kind, pair))


def _content(kind: str, pair: Any) -> Mapping[str, Any] | Drop:
    if not isinstance(pair, dict):
        return Drop(DropReason.MALFORMED_JSON, f"expected an object, found {type(pair).__name__}")
    return {**pair, "type": kind}


def _outcomes(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[Outcome]:
    try:
        pair = Pair.model_validate(row)
    except ValidationError as error:
        return [bad_field(error)]
    return [_outcome(pair, name, dataset)]


def _outcome(pair: Pair, name: str, dataset: Dataset) -> Outcome:
    if not pair.code_before.strip():
        return Drop(DropReason.EMPTY_PRE, "code_before is empty: nothing can be rewritten")
    if not pair.code_after.strip():
        return Drop(DropReason.EMPTY_POST, "code_after is empty: the method was removed, not rewritten")
    link = urlsplit(pair.commit_link)
    found = _REPOSITORY.match(link.path)
    if found is None or link.hostname != "github.com":
        # a licence is known by owner and name, which mean something else elsewhere
        return Drop(DropReason.BAD_FIELD, "commit_link: expected https://github.com/<owner>/<name>/commit/<sha>")
    instruction = instruction_of(pair.type, pair.description)
    if instruction is None:
        return Drop(DropReason.BAD_FIELD, f"description: is no sentence about {pair.type!r}")
    votes = [evaluation.vote for evaluation in pair.evaluations if evaluation.vote in (0, 1)]
    if not votes:
        return Drop(DropReason.BAD_FIELD, "evaluations: hold no vote for or against")
    repository = found[1]
    kind = pair.type.lower().replace(" ", "-")
    shared: dict[str, Any] = {
        "instruction": instruction,
        "pre": pair.code_before,
        "post": pair.code_after,
        "language": "java",
        "tags": (
            *(name, f"type:{kind}", f"votes:{sum(votes)}/{len(votes)}"),
            *(("partial-context",) if pair.type in _TOUCHES_CALLERS else ()),
        ),
        "id": row_id(name, pair.type, str(pair.refactoring_id)),
        "dataset": name,
        "licence": dataset.licence_of(repository),
        "group": repository,
        "origin": f"{repository}@{pair.commit_sha[:12]} {pair.file_path}#{pair.refactoring_id}",
    }
    if len(votes) == len(pair.evaluations) and all(votes):
        # with the number, as one commit refactors several methods of a file
        return Edit(**shared, commit=pair.commit_sha, path=f"{pair.file_path}#{pair.refactoring_id}")
    return Label(**shared, label=kind, holds=None if any(votes) else False, detail=pair.description)


SOURCE = Source(rows=_rows, outcomes=_outcomes, is_snippet=True)
