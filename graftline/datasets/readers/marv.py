"""`marv`: refactorings of Java methods, each judged by people (MaRV, FORGE 2025).

One document, `{type of refactoring: [pair, …]}`. A vote is 1 for "this is that refactoring", 0 against, -1 for "don't
know" and -2 where it was never given. A pair is an edit where every vote is for it; every other pair that was judged is
a label. Texts are methods, not files. A description
is a sentence of RefactoringMiner, `Rename Method public a() : void renamed to … in class p.C`: it says what was done, and an
instruction what is to be done, by the names that stand in the code.

Of many methods, a name was changed and more with it: the sentence is right, and does not say what to do. Where the texts differ in
more than the names, an edit is tagged `more-than-rename` and has no instruction.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from graftline.core.errors import DataError
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Edit, Label, Rejection, RejectReason, RowResult
from graftline.datasets.formats import files_in, json_document
from graftline.datasets.readers.base import RawRow, Source, row_id

_REPOSITORY = re.compile(r"/([\w.-]{1,100}/[\w.-]{1,100})/commit/")
Instruct = Callable[[str], str | None]
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


def _content(kind: str, pair: Any) -> Mapping[str, Any] | Rejection:
    if not isinstance(pair, dict):
        return Rejection(RejectReason.MALFORMED_JSON, f"expected an object, found {type(pair).__name__}")
    return {**pair, "type": kind}


def _edit_or_label(pair: Pair, name: str, dataset: Dataset) -> RowResult:
    if not pair.code_before.strip():
        return Rejection(RejectReason.EMPTY_PRE, "code_before is empty: nothing can be rewritten")
    if not pair.code_after.strip():
        return Rejection(RejectReason.EMPTY_POST, "code_after is empty: the method was removed, not rewritten")
    link = urlsplit(pair.commit_link)
    match = _REPOSITORY.match(link.path)
    if match is None or link.hostname != "github.com":
        # a license is known by owner and name, which mean something else elsewhere
        return Rejection(RejectReason.BAD_FIELD, "commit_link: expected https://github.com/<owner>/<name>/commit/<sha>")
    instruction = instruction_of(pair.type, pair.description)
    if instruction is None:
        return Rejection(RejectReason.BAD_FIELD, f"description: is no sentence about {pair.type!r}")
    votes = [evaluation.vote for evaluation in pair.evaluations if evaluation.vote in (0, 1)]
    if not votes:
        return Rejection(RejectReason.BAD_FIELD, "evaluations: hold no vote for or against")
    repository = match[1]
    kind, is_more = pair.type.lower().replace(" ", "-"), _does_more_than_rename(pair)
    shared: dict[str, Any] = {
        "instruction": instruction,
        "pre": pair.code_before,
        "post": pair.code_after,
        "language": "java",
        "tags": (
            *(name, f"type:{kind}", f"votes:{sum(votes)}/{len(votes)}"),
            *(("partial-context",) if pair.type in _TOUCHES_CALLERS else ()),
            *(("more-than-rename",) if is_more else ()),
        ),
        "id": row_id(name, pair.type, str(pair.refactoring_id)),
        "dataset": name,
        "license": dataset.license_of(repository),
        "group": repository,
        "origin": f"{repository}@{pair.commit_sha[:12]} {pair.file_path}#{pair.refactoring_id}",
    }
    if len(votes) == len(pair.evaluations) and all(votes):
        # with the number, as one commit refactors several methods of a file
        return Edit(
            **(shared | ({"instruction": ""} if is_more else {})),
            instruction_source="none" if is_more else "rule",
            commit=pair.commit_sha,
            path=f"{pair.file_path}#{pair.refactoring_id}",
        )
    return Label(**shared, label=kind, holds=None if any(votes) else False, detail=pair.description)


def _does_more_than_rename(pair: Pair) -> bool:
    """Return whether the texts of a rename differ in more than the names in its description."""
    names = {
        name
        for kind, old, new in map(_parse_rename, pair.description.split("; "))
        if kind == pair.type
        for name in (old, new)
    }
    if not names:
        return False
    # both under one name: two of them may trade places, and others have them in their own
    any_of_them = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    before, after = (any_of_them.sub("_", code) for code in (pair.code_before, pair.code_after))
    return before.split() != after.split()


def instruction_of(kind: str, description: str) -> str | None:
    """Return what asks for the refactorings in `description`, all of them of one kind; None where it is not understood.

    Rename Variable a : int to b : int in method public f() : void from class p.C
    → Rename the variable `a` to `b` in `f`.
    """
    instruct = _KINDS.get(kind)
    if instruct is None:
        return None
    instructions = dict[str, None]()
    for sentence in description.split("; "):
        start, separator, text = sentence.strip().partition(f"{kind} ")
        instruction = instruct(text) if separator and not start else None
        if instruction is None:
            return None
        instructions[instruction] = None
    return " ".join(instructions)


def _extract_method(text: str) -> str | None:
    extracted, separator, original = text.partition(" extracted from ")
    method, source = _method(extracted), _method(original)
    if not separator or not method or not source:
        return None
    if method == source:
        return f"Extract an overload of `{method}`."
    return f"Extract a method `{method}` from `{source}`."


def _parse_rename(sentence: str) -> tuple[str, str, str]:
    """Return type, old and new name of a rename; empty where `sentence` tells of none."""
    kind = next((kind for kind in ("Rename Method", "Rename Variable") if sentence.strip().startswith(f"{kind} ")), "")
    before, _, after = (
        sentence.strip().removeprefix(kind).partition(" renamed to " if kind == "Rename Method" else " to ")
    )
    name = _method if kind == "Rename Method" else _variable
    old, new = name(before), name(after)
    return (kind, old, new) if kind and old and new else ("", "", "")


def _rename_method(text: str) -> str | None:
    before, separator, after = text.partition(" renamed to ")
    old, new, owner = _method(before), _method(after), _class(after)
    if not separator or not old or not new:
        return None
    return f"Rename the method `{old}` to `{new}`" + (f" in `{owner}`." if owner else ".")


def _rename_variable(text: str) -> str | None:
    variables, in_method, method = text.partition(" in method ")
    before, to, after = variables.partition(" to ")
    old, new, owner = _variable(before), _variable(after), _method(method)
    is_complete = in_method and to and old and new and owner
    return f"Rename the variable `{old}` to `{new}` in `{owner}`." if is_complete else None


def _remove_parameter(text: str) -> str | None:
    parameter, in_method, method = text.partition(" in method ")
    name, owner = _variable(parameter), _method(method)
    return f"Remove the parameter `{name}` from `{owner}`." if in_method and name and owner else None


_KINDS: Mapping[str, Instruct] = {
    "Extract Method": _extract_method,
    "Rename Method": _rename_method,
    "Rename Variable": _rename_variable,
    "Remove Parameter": _remove_parameter,
}
KINDS = tuple(_KINDS)


def _method(signature: str) -> str | None:
    """Return the name in `public static name(a int) : void`."""
    before, bracket, _ = signature.partition("(")
    return _name(before.split()[-1]) if bracket and before.strip() else None


def _variable(declaration: str) -> str | None:
    """Return the name in `name : Type`."""
    name, colon, _ = declaration.partition(" : ")
    return _name(name.strip()) if colon else None


def _class(text: str) -> str | None:
    """Return the plain name in `… in class p.Name`; None where the class has none."""
    return _name(text.rpartition(" in class ")[2].rpartition(".")[2].strip())


def _name(text: str) -> str | None:
    return text if text.replace("$", "_").isidentifier() else None


SOURCE = Source(
    _rows, Pair.model_validate, lambda pair, name, dataset: [_edit_or_label(pair, name, dataset)], is_snippet=True
)
