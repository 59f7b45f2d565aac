"""Differences of texts, as they are shown and stored."""

import pytest

from graftline.core.text_diff import keep_end, summarize_change, unified_diff


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("a\n", "a\n", ""),
        ("a\n", "b\n", "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n+b\n"),
        (
            "a",
            "b",
            "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        ),
        ("a\x0cb\n", "a\x0cc\n", "--- a/m\n+++ b/m\n@@ -1 +1 @@\n-a\x0cb\n+a\x0cc\n"),
        ("", "a\n", "--- a/m\n+++ b/m\n@@ -0,0 +1 @@\n+a\n"),
    ],
)
def test_a_difference_is_that_of_diff(before: str, after: str, expected: str) -> None:
    assert "".join(unified_diff(before, after, "a/m", "b/m")) == expected


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("x = load(a)\n", "x = read(a)\n", "-x = load(a)\n+x = read(a)"),
        ("f(a)", "if a:\n    f(a)", "-f(a)\n+if a:\n+    f(a)"),
        ("a\nb\nc\n", "a\nc\n", " a\n-b\n c"),
        ("same\n", "same\n", ""),
    ],
)
def test_a_change_is_shown_line_by_line(before: str, after: str, shown: str) -> None:
    assert summarize_change(before, after) == shown


def test_of_a_long_text_the_places_that_change_are_shown_with_a_line_around_them() -> None:
    lines = [f"line({number})" for number in range(30)]
    changed = [*lines[:5], "other(5)", *lines[6:25], "line()", *lines[26:]]
    shown = summarize_change("\n".join(lines), "\n".join(changed))
    assert shown == " line(4)\n-line(5)\n+other(5)\n line(6)\n...\n line(24)\n-line(25)\n+line()\n line(26)"


@pytest.mark.parametrize(
    ("text", "limit", "end"),
    [
        ("one two\nthree\n", 20, "one two\nthree"),
        ("one two\nthree\nfour\n", 10, "...\nthree\nfour"),
        ("one two\nthree\nfour\n", 9, "...\nfour"),
        ("one two three four", 9, "...\nfour"),
        ("o" * 30, 10, "...\n" + "o" * 10),
    ],
)
def test_the_end_of_a_text_begins_with_a_whole_line_or_a_whole_word(text: str, limit: int, end: str) -> None:
    assert keep_end(text, limit) == end
