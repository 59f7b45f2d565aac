"""Differences of texts, as they are shown and stored."""

import pytest

from graftline.text_diff import unified_diff


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
