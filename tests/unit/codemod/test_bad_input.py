"""Texts that nobody would write: a clear answer, quickly, and never "verified" for what is not the wanted text."""

import ast
import string
import warnings

import pytest

from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level, normalize_blank_lines
from graftline.codemod.induce import Induction, induce
from graftline.sandbox.actions.memory import MemorySandbox


def checked(before: str, after: str, language: Language = "python") -> Induction:
    """Return the induction, of which all that it says has been looked at."""
    sandbox = MemorySandbox()
    found = induce(before, after, language, sandbox)
    text = before
    for step in found.steps:
        assert step.before == text
        text = normalize_blank_lines(text, *sandbox.apply_many(text, language, [step.action]))
    assert text == found.result
    assert (found.level is Level.EXACT) == (text == after)
    assert found.is_verified == (not found.unsolved)
    if found.is_verified and language == "python":
        assert meaning(text) == meaning(after)
    return found


def meaning(text: str) -> str | None:
    """Return what Python reads; None for what it refuses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd escapes in strings
        try:
            return ast.dump(ast.parse(text))
        except (SyntaxError, ValueError):
            return None


FRAGMENTS = [
    *string.punctuation,
    *("\\d", "\\p{L}", "\\x{41}", "(?i)a", "(?x) a #", "[[:alpha:]]", "[a&&b]", "[a--b]", "[a~~b]", "\\Q.\\E"),
    *("(?P<n>a)", "a{1,2}", "a{999999999}", "((((", "(a+)+$", "\\u{1F600}", "(?#a)", "\\n", "\\r", "\\"),
    *("é", "e\u0301", "\u2028", "\u00a0", "\u200b", "𠮷", "\U0010ffff", "\x7f", "\x01", "\x1b[0m", "\ufffd", "\t", "\x0b"),
]  # fmt: skip


@pytest.mark.parametrize("sign", FRAGMENTS, ids=ascii)
def test_what_means_something_in_regular_expressions_is_taken_as_text(sign: str) -> None:
    comment = f"# q {sign} b\nx = 1\n"
    assert checked(comment, comment.replace(" b", " c")).level is Level.EXACT
    block = f"/* q {sign} b\n * {sign}\n */\nint a;\n".replace("*/ b", "b").replace(f"* {sign}\n", "* a\n")
    assert checked(block, block.replace(" b", " c"), "java").level is Level.EXACT


VARIABLES = ["$A", "$$$", "$$A", "$$$A", "$1", "${x}", "$_", "$", "$$", "$a", "$ABC_1", "A$", "$É"]


@pytest.mark.parametrize("name", VARIABLES)
def test_what_reads_as_a_variable_is_taken_as_text_where_it_stays(name: str) -> None:
    assert checked(f"x = f('{name}', b)\n", f"x = g('{name}', b)\n").level is Level.EXACT
    assert checked(f"# {name} a b\nx\n", f"# {name} a c {name}\nx\n").level is Level.EXACT
    assert checked(f"const x = {name}(a, b);\n", f"const x = {name}(b, a);\n", "javascript").is_verified
    # what is new cannot always be written: whether it is solved or not, it is not wrong
    checked("x = f(b)\n", f"x = f('{name}', b)\n")
    checked(f"const {name} = 1; g({name});\n", f"const {name}2 = 1; g({name}2);\n", "javascript")
    checked(f"class A {{ $P.B a = new B({name}); }}\n", f"class A {{ $P.C a = new C({name}); }}\n", "java")


ODD: dict[str, tuple[str, str, Language]] = {
    "no program before": ("x = (\n", "x = 2\n", "python"),
    "no program after": ("x = 2\n", "x = (\n", "python"),
    "no program at all": (")))\n", "(((\n", "python"),
    "from nothing": ("", "x = 1\n", "python"),
    "to nothing": ("x = 1\n", "", "python"),
    "carriage returns that come": ("a\nf(b)\n", "a\r\ng(b)\r\n", "python"),
    "carriage returns that go": ("a\r\nf(b)\r\n", "a\ng(b)\n", "python"),
    "carriage returns alone": ("a\rf(b)\r", "a\rg(b)\r", "python"),
    "a comment before a carriage return": ("x = 1  # aé\r\n", "x = 1  # bé\r\n", "python"),
    "tabs to blanks": ("if a:\n\tb(c)\n", "if a:\n        d(c)\n", "python"),
    "tabs that stay": ("def f():\n\tif a:\n\t\tb(c)\n", "def f():\n\tif a:\n\t\td(c)\n\t\te()\n", "python"),
    "separators of lines": ("x = 'a\u2028b\u0085c'\ny = f(x)\n", "x = 'a\u2028c'\ny = g(x)\n", "python"),
    "zero bytes": ("f('\x00')\n", "g('\x00')\n", "python"),
    "what reads as a list variable": ("f($$$A);\n", "g($$$A, $_);\n", "javascript"),
    "quotes": ('x = "\\"\'\\n"\n', 'x = "\'\\"\\n"\n', "python"),
    "a comment that suppresses": ("# ast-grep-ignore\nf(a)\n", "# ast-grep-ignore\ng(a)\n", "python"),
    "a long line": ("x = f(" + "a, " * 400 + "b)\n", "x = g(" + "a, " * 400 + "b)\n", "python"),
    "a long insertion": ("def f():\n    a()\n", "def f():\n    a()\n" + "    b('é')\n" * 3000, "python"),
    "a long comment": ("# a\n", "# " + "é" * 30_000 + "\n", "python"),
}


@pytest.mark.parametrize(("before", "after", "language"), ODD.values(), ids=ODD)
def test_odd_texts_neither_break_induction_nor_are_taken_for_done(before: str, after: str, language: Language) -> None:
    checked(before, after, language)


LINE_ENDS: dict[str, tuple[str, str]] = {
    "carriage returns": ("def f():\r\n    a(1)\r\n    b(2)\r\n", "def f():\r\n    c(1)\r\n    b(2)\r\n"),
    "a mixture": ("a(1)\r\nb(2)\nc(3)\r", "a(1)\r\nd(2)\nc(3)\r"),
    "carriage returns in a string": ('x = """a\r\nb"""\r\ny = f(1)\r\n', 'x = """a\r\nb"""\r\ny = g(1)\r\n'),
    "tabs and blanks": ("if a:\n\tif b:\n\t    c(1)\n", "if a:\n\tif b:\n\t    d(1)\n"),
    "form feeds": ("a(1)\n\x0c\nb(2)\n", "a(1)\n\x0c\nc(2)\n"),
    "no newline at the end": ("a(1)\nb(2)", "a(1)\nc(2)"),
    "a byte order mark": ("\ufeffa(1)\n", "\ufeffb(1)\n"),
    "letters that are several bytes": ("𠮷𠮷 = größe(é)\nname = 'e\u0301'\n", "𠮷𠮷 = länge(é)\nname = 'e\u0301'\n"),
}


@pytest.mark.parametrize(("before", "after"), LINE_ENDS.values(), ids=LINE_ENDS)
def test_line_ends_and_letters_of_any_kind_come_through(before: str, after: str) -> None:
    assert checked(before, after).level is Level.EXACT


def nested(depth: int, name: str) -> str:
    return "f(\n" * depth + name + "\n)" * depth + "\n"


@pytest.mark.parametrize("depth", [10, 60, 140, 149, 150, 151, 299, 300, 301, 5_000])
def test_any_depth_has_an_answer(depth: int) -> None:
    found = checked(nested(depth, "a"), nested(depth, "b"))
    # two levels of the tree are one call; beyond three hundred nobody looks
    assert found.unsolved == ("" if depth < 149 else "unreadable")


LARGE: dict[str, tuple[str, str, str]] = {
    "five megabytes": ("x = 1\n" * 900_000, "x = 1\n" * 900_000 + "y\n", "too_large"),
    "five megabytes in one line": ("x=1;" * 1_300_000, "x=1;" * 1_300_000 + "y", "too_large"),
    "one line of a minified file": ("f(1);" * 3_000, "f(1);" * 3_000 + "g(2);", "too_large"),
    "one long expression": ("x = " + "1 + " * 5_000 + "1\n", "x\n", "too_large"),
    "half a surrogate pair": ("x = '\ud800'\n", "x = 1\n", "unreadable"),
    "a different file": ("f(1)\n" * 500, "".join(f"g{n}({n})\n" for n in range(500)), "no_candidate"),
}


@pytest.mark.parametrize(("before", "after", "unsolved"), LARGE.values(), ids=LARGE)
def test_what_is_too_much_is_said_to_be(before: str, after: str, unsolved: str) -> None:
    found = checked(before, after)
    assert (found.steps, found.result, found.level, found.unsolved) == ((), before, Level.NONE, unsolved)


MANY: dict[str, tuple[str, str, Language]] = {
    "one change of a large file": ("x = f(a, 1)\n" * 1_000 + "g(b)\n", "x = f(a, 1)\n" * 1_000 + "h(b)\n", "python"),
    "one of many that are the same": ("f(1)\n" * 400, "f(1)\n" * 200 + "f(2)\n" + "f(1)\n" * 199, "python"),
    "a place in a long list": ("x = [" + "a, " * 800 + "b]\n", "x = [" + "a, " * 800 + "c]\n", "python"),
    "a word of a long comment": ("# " + "ab " * 1_500 + "cd\nx\n", "# " + "ab " * 1_500 + "ef\nx\n", "python"),
    "one line with many functions": (
        "!function(e){" + "".join(f"var t{n}=e.n{n}(function(r){{return r.a{n}}});" for n in range(40)) + "}(w);\n",
        "!function(e){"
        + "".join(f"var t{n}=e.{'m' if n == 3 else 'n'}{n}(function(r){{return r.a{n}}});" for n in range(40))
        + "}(w);\n",
        "javascript",
    ),
}


@pytest.mark.parametrize(("before", "after", "language"), MANY.values(), ids=MANY)
def test_one_place_among_very_many_is_found(before: str, after: str, language: Language) -> None:
    assert checked(before, after, language).level is Level.EXACT
