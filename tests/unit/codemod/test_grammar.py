"""Words that say nothing of one program."""

import keyword
from typing import get_args

from graftline.astgrep.binding import Language
from graftline.codemod.grammar import KEYWORDS


def test_every_language_has_its_keywords() -> None:
    assert set(KEYWORDS) == set(get_args(Language))


def test_the_keywords_of_python_are_those_of_the_interpreter_and_two_names() -> None:
    assert KEYWORDS["python"] == {*keyword.kwlist, "cls", "self"}


def test_typescript_has_those_of_javascript() -> None:
    assert KEYWORDS["javascript"] < KEYWORDS["typescript"]
