"""The journal of an optimization in a file: what a kill or a full disk leaves, and one writer at a time."""

from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, RecordError
from graftline.prompts.journal import FileJournal


def test_a_line_that_was_cut_off_is_dropped_and_the_next_one_stands_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path)
    journal.append({"a": 1})
    with path.open("ab") as stream:
        stream.write(b'{"b": ')

    assert journal.lines() == [{"a": 1}]
    # by the same process, whose disk was full for a while
    journal.append({"c": 3})
    assert FileJournal(path).lines() == [{"a": 1}, {"c": 3}]


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b"{}\nno\n")
    with pytest.raises(RecordError, match=r"journal\.jsonl:2: is no line of a journal"):
        FileJournal(tmp_path / "journal.jsonl").lines()


def test_who_holds_it_keeps_others_away(tmp_path: Path) -> None:
    first, second = FileJournal(tmp_path / "journal.jsonl"), FileJournal(tmp_path / "journal.jsonl")
    with first.lock(), pytest.raises(ConfigError, match="another job goes on with this optimization"), second.lock():
        raise AssertionError
    with second.lock():
        second.append({"a": 1})
