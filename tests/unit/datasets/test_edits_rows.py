"""`edits`: rows of a text before and after, in columns of any names."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graftline.core.errors import DataError
from graftline.datasets.edit import Edit
from tests.unit.datasets.fixtures import outcome, raw_rows

FIELDS = {
    **{"before": "old", "after": "new", "instruction": "message", "language": "lang", "path": "file"},
    **{"group": "repo", "commit": "sha", "license": "terms"},
}
ROW = {
    **{"old": "a\n", "new": "b\n", "message": "Do.", "lang": "Python", "file": "m.py"},
    **{"repo": "us/shop", "sha": "5f", "terms": "mit"},
}


def edit(row: dict[str, Any], **changes: Any) -> Edit:
    result = outcome("edits", row, "mine", **{"fields": FIELDS, **changes})
    assert isinstance(result, Edit), result
    return result


def test_a_row_is_an_edit_of_its_columns() -> None:
    result = edit(ROW)
    assert result.model_dump(exclude_defaults=True, exclude={"id", "answerable", "answerable_by"}) == {
        **{"instruction": "Do.", "pre": "a\n", "post": "b\n", "language": "python", "tags": ("mine", "license:MIT")},
        **{"dataset": "mine", "license": "MIT", "group": "us/shop", "commit": "5f", "path": "m.py"},
        **{"origin": "us/shop 5f m.py", "instruction_source": "commit"},
    }
    assert result.id == edit({**ROW, "other": 1}).id != edit({**ROW, "message": "Do it."}).id


def test_what_no_column_says_the_entry_says() -> None:
    result = edit({"old": "a\n", "new": "b\n"}, fields={"before": "old", "after": "new"}, language="java")
    assert (result.language, result.license, result.group, result.origin) == ("java", "MIT", result.id, result.id)
    assert (result.instruction, result.instruction_source) == ("", "none")
    # a path without a commit does not say which edit it is
    assert (edit({**ROW, "sha": None}).path, edit({**ROW, "lang": None, "file": "a.ts"}).language) == ("", "typescript")
    assert edit({**ROW, "terms": None}, licenses={"us/*": "ISC"}).license == "ISC"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"old": 1}, "bad_field: old: expected a text, for it is the before of a row"),
        ({"message": ["Do."]}, "bad_field: message: expected a text, for it is the instruction of a row"),
        ({"old": " \n"}, "empty_pre: old is empty: there is no text before the edit"),
        ({"new": ""}, "empty_post: new is empty: there is no text after the edit"),
        ({"message": None}, "empty_instruction: message is empty"),
        ({"lang": "rust"}, "unknown_language: language 'rust', path 'm.py'; known: "),
        ({"lang": "", "file": "m.rs"}, "unknown_language: language '', path 'm.rs'; known: "),
    ],
)
def test_a_row_that_is_none_is_a_counted_drop(changes: dict[str, Any], reason: str) -> None:
    assert str(outcome("edits", {**ROW, **changes}, fields=FIELDS)).startswith(reason)


def test_rows_are_read_of_tables_and_of_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"old": ["a"], "new": ["b"]}), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text('{"old": "c"}\n', "utf-8")
    rows = raw_rows("edits", tmp_path, fields={"before": "old", "after": "new"})
    assert [row.content for row in rows] == [{"old": "a", "new": "b"}, b'{"old": "c"}']
    with pytest.raises(DataError, match="has no column 'pre'; found: old, new"):
        raw_rows("edits", tmp_path, fields={"before": "pre", "after": "new"})
