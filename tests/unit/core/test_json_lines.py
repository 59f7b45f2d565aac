"""Journals of rows: what a kill leaves half written, whose rows they are, and what was altered."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from graftline.core.errors import RecordError
from graftline.core.jsonl import Journal


class Row(BaseModel):
    number: int


def grow(path: Path, *numbers: int, header: bytes = b"") -> list[int]:
    """Append rows, and return the numbers of those that were there before."""
    with Journal(path, Row, header) as journal:
        for number in numbers:
            journal.append(Row(number=number))
    return [row.number for row in journal.rows]


@pytest.mark.parametrize("header", [b"", b'{"of": "a"}'])
def test_rows_are_there_for_whoever_goes_on_but_for_one_that_was_cut_off(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "folder" / "journal.jsonl"
    assert grow(path, 1, 2, 3, header=header) == []
    path.write_bytes(path.read_bytes()[:-4])
    assert grow(path, 4, header=header) == [1, 2]
    assert grow(path, header=header) == [1, 2, 4]
    assert path.read_bytes().count(b"\n") == 3 + bool(header)


def test_a_journal_of_something_else_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    grow(path, 1, header=b'{"of": "a"}')
    assert grow(path, 2, header=b'{"of": "b"}') == []
    assert path.read_bytes() == b'{"of": "b"}\n{"number":2}\n'


def test_a_line_that_was_altered_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"of": "a"}\n{"number":1}\n{}\n')
    with pytest.raises(RecordError, match=r"journal\.jsonl: line 3 is no row; delete the file and start again"):
        Journal(tmp_path / "journal.jsonl", Row, b'{"of": "a"}')
