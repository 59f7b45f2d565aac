"""The reader of `editpackft`."""

import json
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.core.parquet import write_parquet
from graftline.datasets.edit import Edit
from tests.unit.datasets.fixtures import commit_row, drop, outcome, raw_rows

COLUMNS = tuple(commit_row())


def row(**changes: str | None) -> dict[str, str | None]:
    return {**commit_row(message="Declare queues\n"), "content": "## Code Before: …", "config": "python", **changes}


def edit_of(**changes: str | None) -> Edit:
    result = outcome("editpackft", row(**changes))
    assert isinstance(result, Edit), result
    return result


def test_the_instruction_goes_before_the_message_and_that_before_the_subject() -> None:
    edits = [edit_of(instruction="Declare. Signed by a@example.com"), edit_of(), edit_of(instruction=None)]
    assert [edit.instruction for edit in edits] == ["Declare. Signed by", "Declare queues", "Declare queues"]
    assert edit_of(instruction=" ", message="").instruction == "Declare queues early"


def test_an_edit_names_the_commit_and_file_that_commitpackft_may_have_too() -> None:
    edit, twin = edit_of(), outcome("commitpackft", commit_row())
    assert isinstance(twin, Edit)
    assert (edit.commit, edit.path, edit.group, edit.aliases) == (twin.commit, twin.path, twin.group, twin.aliases)
    assert edit.tags == ("editpackft", "license:BSD-3-Clause", "lang:Python", "repo:demo/queue")
    assert edit.id.partition(":")[0] == "editpackft"


def test_a_row_that_cannot_become_an_edit_is_dropped_with_its_reason() -> None:
    assert drop("editpackft", row(old_contents="")) == "empty_pre: old_contents is empty: the file is new"
    assert drop("editpackft", {**row(), "instruction": 5}) == "bad_field: instruction: Input should be a valid string"
    assert drop("editpackft", row(repos=None)) == "bad_field: repos: Input should be a valid string"


def test_parquet_files_are_read_and_lines_of_json_after_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    write_parquet(tmp_path / "data" / "train-0.parquet", [commit_row()] * 2, dict.fromkeys(COLUMNS, "text"))
    line = json.dumps(commit_row()).encode()
    (tmp_path / "a.jsonl").write_bytes(line)
    rows = raw_rows("editpackft", tmp_path, columns=COLUMNS)
    assert [(row.file, row.line, row.content) for row in rows] == [
        ("data/train-0.parquet", 1, commit_row()),
        ("data/train-0.parquet", 2, commit_row()),
        ("a.jsonl", 1, line),
    ]


def test_a_table_without_one_of_the_columns_is_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", [{"commit": "a"}], {"commit": "text"})
    with pytest.raises(DataError, match="has no column 'old_file'; found: commit; fetch it again, or mend `columns`"):
        raw_rows("editpackft", tmp_path, columns=COLUMNS)


def test_a_folder_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no file that ends in \.parquet or \.jsonl or \.jsonl\.gz"):
        raw_rows("editpackft", tmp_path)
