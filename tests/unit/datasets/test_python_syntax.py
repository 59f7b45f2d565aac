"""What is Python by its own parser, and what an excerpt of a file needs round it to be."""

import warnings

import pytest

from graftline.datasets.language import confirm_language, wrap_excerpt
from graftline.datasets.python_syntax import parses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", True),
        ("\ufeffx = 1\r\n", True),
        ("return 1\n", True),  # no statement of a module, and an excerpt of a function
        ("def f():\n    nonlocal x\n", True),
        ("# coding: latin-1\nx = '\u00e4'\n", True),
        ("print x\n", False),
        ("except_ = 1\n    y = 2\n", False),
        ("if x:\n", False),
        ("-" * 9000 + "1", False),
        ("a" + ".a" * 4000, False),
    ],
)
def test_the_parser_of_the_interpreter_decides(text: str, expected: bool) -> None:
    assert parses(text) is expected


def test_an_escape_that_is_none_is_no_fault_and_no_warning() -> None:
    with warnings.catch_warnings(action="error"):
        assert parses("x = '\\d'\n")


@pytest.mark.parametrize(
    ("before", "above", "below"),
    [
        pytest.param("    return 1\n\ndef g():\n    pass\n", "def enclosing():\n", "", id="the end of a function"),
        pytest.param(
            "        a = 1\n    except A:\n        pass\nb = a\n",
            "def enclosing():\n    try:\n", "", id="the end of a try in a function",
        ),
        pytest.param("else:\n    a = 1\n", "if enclosing:\n    pass\n", "", id="what follows a block"),
        pytest.param("a = 1\nif a:\n", "", "    pass\n", id="the beginning of a block"),
        pytest.param("try:\n    a = 1\n", "", "finally:\n    pass\n", id="the beginning of a try"),
    ],
)  # fmt: skip
def test_an_excerpt_is_put_into_what_it_was_cut_from(before: str, above: str, below: str) -> None:
    after = before.replace("1", "2")
    assert confirm_language(before, after, "python") is None
    assert wrap_excerpt(before, after, "python") == (above + before + below, above + after + below, "block")


@pytest.mark.parametrize("text", ["print x\n", "f(a,\n", '"""\n', "    a\n  b\n c\nd e\n"])
def test_what_is_no_excerpt_stays_as_it_is(text: str) -> None:
    assert wrap_excerpt(text, f"{text}x = 1\n", "python") is None
