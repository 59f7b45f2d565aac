"""Files of pairs: what becomes of good ones, and the one error of bad ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.evals import cases
from graftline.evals.cases import HeldOutExample, read_pairs

PAIR = {"language": "python", "pre": "x = old(1)\n", "post": "x = new(1)\n"}


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def test_a_pair_is_a_task_of_which_all_else_may_be_left_out(tmp_path: Path) -> None:
    [case] = read_pairs(written(tmp_path / "mine.jsonl", PAIR))

    assert (case.id, case.edit_class, case.unseen, case.task.instruction) == ("mine:1", "mine", None, "")
    assert (case.task.before, case.task.target, case.task.origin) == (PAIR["pre"], PAIR["post"], "mine.jsonl:1")


def test_a_pair_may_have_a_name_a_class_an_instruction_and_unseen_code(tmp_path: Path) -> None:
    unseen = {"pre": "y = old(a)\n", "post": "y = new(a)\n"}
    row = {**PAIR, "id": "p", "class": "rename", "instruction": "Rename it.", "unseen": unseen}
    [case] = read_pairs(written(tmp_path / "mine.jsonl", row))

    assert (case.id, case.edit_class, case.task.instruction) == ("p", "rename", "Rename it.")
    assert case.unseen == HeldOutExample(**unseen)


def test_a_packed_file_is_read_whatever_it_is_called_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "mine.data"
    path.write_bytes(gzip.compress(f"\n{json.dumps(PAIR)}\n\n".encode()))

    assert [case.id for case in read_pairs(path)] == ["mine:2"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "line 2: .*JSON"),
        ("[]", "line 2: .*object"),
        ({**PAIR, "language": "cobol"}, "line 2: language: .*'python'"),
        ({"language": "python", "pre": "x\n"}, "line 2: post: field required"),
        ({**PAIR, "more": 1}, "line 2: more: "),
        ({**PAIR, "unseen": {"pre": "x = 1\n"}}, "line 2: unseen.post: field required"),
        ({**PAIR, "post": "x = old( 1 )\n"}, "line 2: pre and post are the same python"),
        ({**PAIR, "unseen": {"pre": "a\n", "post": "a\n"}}, "line 2: unseen.pre and post are the same"),
        ({**PAIR, "id": "first"}, "line 2: id 'first' was there before"),
        ({**PAIR, "pre": "x" * 100_001}, "line 2: pre: .*at most 100000"),
    ],
)
def test_a_bad_line_is_one_error_that_names_it(tmp_path: Path, row: Any, reason: str) -> None:
    path = written(tmp_path / "mine.jsonl", {**PAIR, "id": "first"}, row)

    with pytest.raises(DataError, match=reason) as error:
        read_pairs(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_missing_empty_or_damaged_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(json.dumps(PAIR).encode())[:-9])

    with pytest.raises(DataError, match="cannot be read"):
        read_pairs(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match="holds no pair"):
        read_pairs(written(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match="damaged gzip"):
        read_pairs(damaged)


def test_a_line_or_a_file_that_is_too_long_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * (4 << 20)))
    with pytest.raises(DataError, match="line 1: has more than 1048576 bytes"):
        read_pairs(path)

    monkeypatch.setattr(cases, "MOST_BYTES", 100)
    with pytest.raises(DataError, match="has more than 100 bytes, unpacked"):
        read_pairs(written(tmp_path / "long.jsonl", PAIR, PAIR, PAIR))
