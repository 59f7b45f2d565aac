"""How equal two texts are: what is ignored at which level, and what never is."""

import pytest

from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level, compare_texts, differ_in_words_alone, normalize_whitespace
from graftline.core.errors import DataError

SAME: dict[str, tuple[Language, str, str, Level]] = {
    "the same bytes": ("python", "x = 1\n", "x = 1\n", Level.EXACT),
    "nothing": ("python", "", "", Level.EXACT),
    "blanks at a line end": ("python", "x = 1  \ny = 2\t\n", "x = 1\ny = 2\n", Level.BLANKS),
    "empty lines": ("python", "x = 1\n\n\n  \ny = 2\n", "x = 1\ny = 2\n", Level.BLANKS),
    "the two ends": ("python", "\n\nx = 1", "x = 1\n", Level.BLANKS),
    "white space between tokens": ("python", "f( a,b )\n", "f(a, b)\n", Level.TREE),
    "line breaks between tokens": ("python", "f(\n    a,\n    b\n)\n", "f(a, b)\n", Level.TREE),
    "the width of an indentation": ("python", "if a:\n  b\n", "if a:\n    b\n", Level.TREE),
    "the column of a comment": ("python", "a\n  # b\nc\n", "a\n# b\nc\n", Level.TREE),
    "indentation where it means nothing": ("javascript", "if (a) {\nb;\n}\n", "if (a) {\n  b;\n}\n", Level.TREE),
    "carriage returns": ("python", "a\r\nb\r\n", "a\nb\n", Level.TREE),
    "a trailing comma of arguments": ("python", "f(a, b,)\n", "f(a, b)\n", Level.TREE),
    "a trailing comma of parameters": ("python", "def f(a,): b\n", "def f(a): b\n", Level.TREE),
    "a trailing comma of a list": ("python", "[\n    a,\n    b,\n]\n", "[a, b]\n", Level.TREE),
    "a trailing comma before a comment": ("python", "[\n    a,  # b\n]\n", "[\n    a  # b\n]\n", Level.TREE),
    "a trailing comma of an array": ("javascript", "[a, b,];\n", "[a, b];\n", Level.TREE),
    "a trailing comma of an object": ("javascript", "f({a: 1,});\n", "f({a: 1});\n", Level.TREE),
    "a trailing comma of imports": ("javascript", "import {a,} from 'b';\n", "import {a} from 'b';\n", Level.TREE),
    "a trailing comma of an initializer": (
        "java",
        "class A { int[] a = {1, 2,}; }\n",
        "class A { int[] a = {1, 2}; }\n",
        Level.TREE,
    ),
    "a semicolon at a line end": ("javascript", "a()\nb()\n", "a();\nb();\n", Level.TREE),
    "imports in another order": (
        "python",
        "import a\nfrom b import c\nx()\n",
        "from b import c\nimport a\nx()\n",
        Level.TREE,
    ),
    "imports of Java in another order": (
        "java",
        "import b.B;\nimport a.A;\n",
        "import a.A;\nimport b.B;\n",
        Level.TREE,
    ),
    "a semicolon of Python": ("python", "a; b\n", "a\nb\n", Level.TREE),
}


@pytest.mark.parametrize(("language", "text", "wanted", "level"), SAME.values(), ids=SAME)
def test_what_means_the_same_counts_as_wanted(language: Language, text: str, wanted: str, level: Level) -> None:
    assert compare_texts(text, wanted, language) is level
    assert compare_texts(wanted, text, language) is level
    assert level.is_verified


OTHER: dict[str, tuple[Language, str, str]] = {
    "a name": ("python", "f(a)\n", "f(b)\n"),
    "the order of imports for what they do": ("javascript", "import 'a';\nimport 'b';\n", "import 'b';\nimport 'a';\n"),
    "an import after a statement": ("python", "import a\nx()\nimport b\n", "import b\nx()\nimport a\n"),
    "the order": ("python", "f(a, b)\n", "f(b, a)\n"),
    "one thing more": ("python", "f(a)\n", "f(a, b)\n"),
    "a dedented statement": ("python", "if a:\n    b\n    c\n", "if a:\n    b\nc\n"),
    "an indented statement": (
        "python",
        "for a in b:\n    if a:\n        c\n    d\n",
        "for a in b:\n    if a:\n        c\n        d\n",
    ),
    "a statement moved out of a function": ("python", "def f():\n    a\n    return b\n", "def f():\n    a\nreturn b\n"),
    # Python would refuse the first, though the parser reads both alike
    "a statement at a column of its own": ("python", "a\n  b\n", "a\nb\n"),
    "a statement between two columns": ("python", "if a:\n    b\n  c\n", "if a:\n    b\nc\n"),
    "a statement deeper than its block": ("python", "def f():\n    a\n      b\n", "def f():\n    a\n    b\n"),
    "a block without indentation": ("python", "if a:\nb\n", "if a:\n    b\n"),
    "blanks in a string": ("python", "x = 'a  b'\n", "x = 'a b'\n"),
    "the quotes of a string": ("python", 'x = "a"\n', "x = 'a'\n"),
    "the prefix of a string": ("python", "x = b'a'\n", "x = 'a'\n"),
    "the indentation in a string": ("python", "x = '''a\n    b'''\n", "x = '''a\n  b'''\n"),
    "a blank before a line end in a string": ("python", "x = '''a \nb'''\n", "x = '''a\nb'''\n"),
    "an empty line in a docstring": ("python", "def f():\n    '''a\n\n    b'''\n", "def f():\n    '''a\n    b'''\n"),
    "a blank line end in a template": ("javascript", "x = `a \nb`;\n", "x = `a\nb`;\n"),
    "blanks in a template": ("javascript", "x = `a  b`;\n", "x = `a b`;\n"),
    "blanks in a regular expression": ("javascript", "x = /a b/;\n", "x = /a  b/;\n"),
    "a comment": ("python", "a  # b\n", "a  # c\n"),
    "blanks in a comment": ("python", "a  # b c\n", "a  # b  c\n"),
    "a comment gone": ("python", "a  # b\n", "a\n"),
    "a comment in a block": ("java", "class A { /* a */ }\n", "class A { /* b */ }\n"),
    "blanks in a text between tags": ("tsx", "x = <a> b  c </a>;\n", "x = <a> b c </a>;\n"),
    "the comma of a tuple": ("python", "x = (a,)\n", "x = (a)\n"),
    "the comma of a bare tuple": ("python", "x = a,\n", "x = a\n"),
    "the comma of a target": ("python", "for a, in b: c\n", "for a in b: c\n"),
    "the comma of a subscript": ("python", "a[b,]\n", "a[b]\n"),
    "a hole in an array": ("javascript", "[a,, b];\n", "[a, b];\n"),
    "a hole at the end of an array": ("javascript", "[a,,];\n", "[a,];\n"),
    "an array of one hole": ("javascript", "[,];\n", "[];\n"),
    "a hole in a pattern": ("javascript", "const [, a] = b;\n", "const [a] = b;\n"),
    "the parts of a loop": ("javascript", "for (;; a()) {}\n", "for (; a();) {}\n"),
    "the parts of a loop of Java": (
        "java",
        "class A { void f() { for (; a();) {} } }\n",
        "class A { void f() { for (;; a()) {} } }\n",
    ),
    "the comma of a pattern of one": ("python", "(x) = y\n", "(x,) = y\n"),
    "a semicolon that Java needs": ("java", "class A { int x }\n", "class A { int x; }\n"),
    "the indentation of the first line": ("python", "  x = 1\ny = 2\n", "x = 1\ny = 2\n"),
    "a blank after a backslash": ("python", "x = 1 + \\ \n    2\n", "x = 1 + \\\n    2\n"),
    "an empty body": ("javascript", "if (a);\nb();\n", "if (a) b();\n"),
    "a line break after return": ("javascript", "return\na\n", "return a\n"),
    "parentheses": ("python", "a * (b + c)\n", "a * b + c\n"),
    "a text that does not parse": ("python", "f(a\n", "f(a)\n"),
}


@pytest.mark.parametrize(("language", "text", "wanted"), OTHER.values(), ids=OTHER)
def test_what_means_something_else_does_not(language: Language, text: str, wanted: str) -> None:
    assert compare_texts(text, wanted, language) is Level.NONE
    assert compare_texts(wanted, text, language) is Level.NONE


@pytest.mark.parametrize("level", list(Level))
def test_only_the_three_kinds_of_equality_are_verified(level: Level) -> None:
    assert level.is_verified is (level in ("exact", "ws", "ast", "tests"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("  \n\t\n", ""),
        ("a \t\n", "a"),
        ("a\n\n\n    b\n", "a\n    b"),
        ("a\n   \n\tb", "a\n\tb"),
        ("a  b", "a  b"),
    ],
)
def test_blanks_at_line_ends_and_empty_lines_go_and_indentation_stays(text: str, expected: str) -> None:
    assert normalize_whitespace(text) == expected
    assert normalize_whitespace(expected) == expected


@pytest.mark.parametrize(("text", "wanted"), [("-" * 400 + "1", "x\n"), ("x\n", "-" * 400 + "1"), ("\ud800", "x\n")])
def test_a_text_that_cannot_be_parsed_is_an_error_of_the_data(text: str, wanted: str) -> None:
    with pytest.raises(DataError):
        compare_texts(text, wanted, "python")


def test_a_text_that_cannot_be_parsed_still_equals_itself() -> None:
    assert compare_texts("-" * 400 + "1", "-" * 400 + "1", "python") is Level.EXACT


@pytest.mark.parametrize("unit", ["f(", "[", "a[", "{1: "])
def test_the_deepest_texts_are_compared(unit: str) -> None:
    closing = {"f(": ")", "[": "]", "a[": "]", "{1: ": "}"}[unit]
    levels = {"f(": 98, "[": 148, "a[": 148, "{1: ": 98}[unit]
    text, wanted = (unit * levels + end + closing * levels + "\n" for end in ("1", "2"))
    assert compare_texts(text, wanted, "python") is Level.NONE
    assert compare_texts(text, text.replace("1" + closing, "1 " + closing), "python") is Level.TREE


@pytest.mark.parametrize(
    ("language", "text", "other", "is_words"),
    [
        ("python", "def f():\n    '''A.'''\n    return 1  # a\n", "def f():\n    '''B.'''\n    return 1\n", True),
        ("python", "def f():\n    '''A.'''\n    return 1\n", "def f():\n    return 1\n", True),
        ("python", "def f():\n    return 'a'\n", "def f():\n    return 'b'\n", False),
        ("python", "f('a')  # a\n", "f('b')  # b\n", False),
        ("javascript", "f(); // a\n", "/* b */ f();\n", True),
        ("java", "class A { /** a */ void f() {} }\n", "class A { void g() {} }\n", False),
    ],
)
def test_other_comments_and_docstrings_are_no_other_code(
    language: Language, text: str, other: str, is_words: bool
) -> None:
    assert differ_in_words_alone(text, other, language) is is_words
