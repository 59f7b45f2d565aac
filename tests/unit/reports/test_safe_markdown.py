"""Texts of others as Markdown."""

import pytest

from assets.reports.markdown import diff, fence_code, picture, plain, without_pictures


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("src/a.py:1: it is not valid", "src/a.py:1: it is not valid"),  # nothing to do
        ("a\nb\t c", "a b c"),  # a table has no lines
        ("<script>&", "&#60;script&#62;&#38;"),  # HTML
        ("`a` *b* [c](d)", "&#96;a&#96; &#42;b&#42; &#91;c&#93;(d)"),  # code, emphasis, links
        ("a\x1b[31m\x00", "a␛&#91;31m␀"),  # a terminal would obey
        ("user\u202etxt.exe", "user\\u{202e}txt.exe"),  # turns the reading direction
        ("x\x7fy\u2028z", "x\\u{7f}y\\u{2028}z"),
        ("a" * 161, "a" * 159 + "…"),
    ],
)
def test_a_text_in_a_table_is_one_line_without_markup(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_an_example_in_a_table_is_cut_before_markup_is_taken_out() -> None:
    # else half an entity could be left
    assert plain("<" * 200, 3) == "&#60;&#60;…"


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("a = 1\n", "```python\na = 1\n```\n"),
        ("", "```python\n\n```\n"),
        ("a ``` b", "````python\na ``` b\n````\n"),  # three would end it
        ("`````\n```\n", "``````python\n`````\n```\n``````\n"),
        ("one ` two ``", "```python\none ` two ``\n```\n"),  # fewer than three end nothing
        ("a\r\nb\n", "```python\na␍\nb\n```\n"),  # a bare return ends a line in Markdown
        ("\ta\n\n\n", "```python\n\ta\n```\n"),
    ],
)
def test_a_fence_is_longer_than_every_run_of_backticks_in_it(text: str, block: str) -> None:
    assert fence_code(text, "python") == block


def test_a_line_without_end_is_cut() -> None:
    assert fence_code("x" * 10_000) == "```text\n" + "x" * 399 + "…\n```\n"


def test_a_diff_shows_what_goes_and_what_comes() -> None:
    assert diff("a\nb\nc\n", "a\nx\nc\n") == "--- before\n+++ after\n@@ -1,4 +1,4 @@\n a\n-b\n+x\n c\n "


def test_a_long_diff_is_cut_and_says_how_much_is_missing() -> None:
    lines = diff("", "\n".join(str(number) for number in range(300))).split("\n")
    # two names, one place, the empty line that goes, 300 that come: 304 lines, of which 160 stay
    assert (len(lines), lines[-1]) == (161, "… 144 more lines")


def test_pictures_go_where_a_page_is_shown_without_its_files() -> None:
    page = "\n".join(["# Title", "", picture("a.funnel.png", "from rows"), "## Next", "", "![x](y.png) in a line"])
    assert without_pictures(page) == "# Title\n\n## Next\n\n![x](y.png) in a line"
