"""Markdown: tables that stay tables and fences that stay shut, whatever they hold."""

from typing import Any

import pytest

from graftline.core.markdown import plain_table, table


def test_a_table_takes_its_columns_from_the_first_row_and_sets_numbers_right() -> None:
    rows = [{"stage": "tasks", "rows": 1234, "rate": 0.5}, {"stage": "splits", "rows": 7, "rate": None}]
    assert table(rows) == (
        "| stage | rows | rate |\n"
        "|---|---:|---:|\n"
        "| tasks | 1,234 | 0.5 |\n"
        "| splits | 7 | - |\n"
    )  # fmt: skip


def test_columns_choose_and_order() -> None:
    assert table([{"a": 1, "b": "x", "c": 2}], ["b", "a"]) == "| b | a |\n|---|---:|\n| x | 1 |\n"


def test_one_text_in_a_column_of_numbers_sets_it_left() -> None:
    assert table([{"a": 1}, {"a": "many"}]) == "| a |\n|---|\n| 1 |\n| many |\n"


def test_no_rows_are_said_to_be_none() -> None:
    assert table([], ["a"]) == "*none*\n"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("a|b", "a\\|b"),
        ("a\nb", "a b"),
        ("a\r\nb\rc", "a b\\\\rc"),
        ("\x1b[31m\u202e", "\\\\x1b[31m\\\\u202e"),
        ("a\\|b", "a\\\\\\|b"),
        ("", ""),
        (None, "-"),
        (True, "True"),
        (-1234567, "-1,234,567"),
        (1234.5, "1234.5"),
        (["x"], "['x']"),
    ],
)
def test_a_cell_stays_in_its_cell(value: Any, cell: str) -> None:
    assert table([{"a": "text"}, {"a": value}]) == f"| a |\n|---|\n| text |\n| {cell} |\n"


def test_texts_of_others_are_shown_and_do_nothing() -> None:
    assert plain_table([{"a<b>": "<img>`x`[y](z)*&", "n": 1}]) == (
        "| a&#60;b&#62; | n |\n|---|---:|\n| &#60;img&#62;&#96;x&#96;&#91;y&#93;(z)&#42;&#38; | 1 |\n"
    )
