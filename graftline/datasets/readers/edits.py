"""`edits`: rows with a text before and after, in columns of any names, which `fields` of the entry says.

JSON lines and Parquet. An instruction is taken for the message of the commit where a row names one, else for one that a person wrote;
a row without a group is a group of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.astgrep.binding import LANGUAGES
from graftline.datasets.catalog import Dataset
from graftline.datasets.commit_messages import clean_message
from graftline.datasets.edit import Edit, Rejection, RejectReason, RowResult
from graftline.datasets.formats import lines_or_tables
from graftline.datasets.language import language_of_path
from graftline.datasets.licenses import spdx
from graftline.datasets.readers.base import RawRow, Source, row_id


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    return lines_or_tables(folder, dataset, max_line_bytes, dataset.columns or tuple(dataset.fields.values()))


def _edits(row: Mapping[str, Any], name: str, dataset: Dataset) -> Sequence[RowResult]:
    texts = dict[str, str]()
    for field, column in dataset.fields.items():
        text = row.get(column)
        if text is None and field not in ("before", "after"):
            text = ""
        if not isinstance(text, str):
            return [Rejection(RejectReason.BAD_FIELD, f"{column}: expected a text, for it is the {field} of a row")]
        texts[field] = text
    for field, reason in (("before", RejectReason.EMPTY_PRE), ("after", RejectReason.EMPTY_POST)):
        if not texts[field].strip():
            return [Rejection(reason, f"{dataset.fields[field]} is empty: there is no text {field} the edit")]
    if not texts.get("instruction", "-").strip():
        return [Rejection(RejectReason.EMPTY_INSTRUCTION, f"{dataset.fields['instruction']} is empty")]
    path, name_of_language = texts.get("path", ""), texts.get("language", "").lower()
    if name_of_language:
        language = next((language for language in LANGUAGES if language == name_of_language), None)
    else:
        language = language_of_path(path) or dataset.language
    if language is None:
        detail = f"language {name_of_language!r}, path {path!r}; known: {', '.join(LANGUAGES)}"
        return [Rejection(RejectReason.UNKNOWN_LANGUAGE, detail)]
    key = row_id(name, *(f"{field}={text}" for field, text in sorted(texts.items())))
    group = texts.get("group") or key
    license = spdx(texts.get("license", "")) if texts.get("license") else dataset.license_of(group)
    of_commit = "commit" if texts.get("commit") else "human"
    instruction = texts.get("instruction", "")
    if texts.get("commit"):
        instruction = clean_message(instruction)
    edit = Edit(
        instruction=instruction,
        pre=texts["before"],
        post=texts["after"],
        language=language,
        tags=(name, f"license:{license}"),
        instruction_source=of_commit if instruction else "none",
        id=key,
        dataset=name,
        license=license,
        group=group,
        commit=texts.get("commit", ""),
        path=path if texts.get("commit") else "",
        origin=" ".join(filter(None, (texts.get("group"), texts.get("commit"), path))) or key,
    )
    return [edit]


SOURCE = Source(_rows, dict, _edits, is_snippet=True)
