"""What is taken off after ast-grep has written: its own blanks on empty lines, and nothing that was there."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.equality import normalize_blank_lines
from graftline.sandbox.actions.memory import MemorySandbox


def after(before: str, action: PatternAction | RuleAction, language: Language = "python") -> tuple[str | None, str]:
    """Return the text after `action` as ast-grep writes it, and tidied."""
    [result] = MemorySandbox().apply_many(before, language, [action])
    return result.after, normalize_blank_lines(before, result)


TEXTS: dict[str, tuple[str, PatternAction, str, str]] = {
    "an empty line of a rewrite is indented": (
        "def f():\n    a()\n",
        PatternAction(pattern="a()", rewrite="b()\n\nc()"),
        "def f():\n    b()\n    \n    c()\n",
        "def f():\n    b()\n\n    c()\n",
    ),
    "with carriage returns": (
        "def f():\r\n    a()\r\n",
        PatternAction(pattern="a()", rewrite="b()\r\n\r\nc()"),
        "def f():\r\n    b()\r\n    \r\n    c()\r\n",
        "def f():\r\n    b()\r\n\r\n    c()\r\n",
    ),
    "a deletion leaves the blanks before it": (
        "def f():\n    a()\n    b()\n",
        PatternAction(pattern="a()", rewrite=""),
        "def f():\n    \n    b()\n",
        "def f():\n\n    b()\n",
    ),
    "blanks elsewhere stay": (
        "    \ndef f():\n    a()\n  \t\nx\n",
        PatternAction(pattern="a()", rewrite="b()"),
        "    \ndef f():\n    b()\n  \t\nx\n",
        "    \ndef f():\n    b()\n  \t\nx\n",
    ),
    "blanks that the replaced text had stay": (
        "def f():\n    a(1,\n    \n      2)\n",
        PatternAction(pattern="a($A, $B)", rewrite="b($A,\n\n  $B)"),
        "def f():\n    b(1,\n    \n      2)\n",
        "def f():\n    b(1,\n    \n      2)\n",
    ),
    "the line of the first thing goes with it": ("a()\nb()\n", PatternAction(pattern="a()", rewrite=""), "\nb()\n", "b()\n"),
    "the line of the last thing goes with it": ("a()\nb()\n", PatternAction(pattern="b()", rewrite=""), "a()\n\n", "a()\n"),
    "an empty line that the text began with stays": (
        "\na()\nb()\n",
        PatternAction(pattern="a()", rewrite=""),
        "\n\nb()\n",
        "\n\nb()\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("before", "action", "written", "tidy"), TEXTS.values(), ids=TEXTS)
def test_only_blanks_that_an_edit_made_are_taken_off(
    before: str, action: PatternAction, written: str, tidy: str
) -> None:
    assert after(before, action) == (written, tidy)


@pytest.mark.parametrize("pattern", ["zzz($A)", "f($A"])
def test_a_text_that_was_not_changed_comes_back_as_it_was(pattern: str) -> None:
    before = "\n   \nx = 1  \n\n\n"
    assert after(before, PatternAction(pattern=pattern, rewrite=""))[1] == before


def test_several_edits_of_one_text_are_all_tidied() -> None:
    before = "if a:\n    f(1)\n    \n    g(2)\n    f(3)\n"
    [_, tidy] = after(before, PatternAction(pattern="f($A)", rewrite="h($A)\n\nk()"))
    assert tidy == "if a:\n    h(1)\n\n    k()\n    \n    g(2)\n    h(3)\n\n    k()\n"
