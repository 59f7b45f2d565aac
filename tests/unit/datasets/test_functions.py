"""Functions of a file by qualified name: what counts as one, what its text is."""

import pytest

from graftline.astgrep.binding import Language
from graftline.core.errors import DataError
from graftline.datasets.readers.package_releases import Function, functions_in

PYTHON = '''\
import os

limit = lambda x: x


@cache
def top(a):
    """Text.

    More.
    """
    return a  # why


class Box:
    size = 1

    @property
    def wide(self):
        def inner():
            return 1

        return inner()

    class Lid:
        async def shut(self):
            pass
'''

JAVASCRIPT = """\
const hidden = () => 1;
function* numbers() { yield 1; }
class Box extends Thing {
  static async open(a) {
    return a;
  }
  get "wide one"() { return 1; }
}
module.exports = class extends Thing {
  shut() {}
};
Box.prototype.close = function close() {
    return 2;
};
Box.prototype.lost = function () {};
    later(function late() {
        return 3;
    });
const table = {
  key: 1,
  first: function named() { return 4; },
  second: x =>
    x,
  third(y) { return y; },
};
"""

TYPESCRIPT = """\
declare function told(a: string): void;
abstract class Box<T> {
  abstract lid(): T;
  put(item: T): void {
    this.item = item;
  }
}
namespace Tools {
  export function cut<T>(a: T): T { return a; }
}
"""

JAVA = """\
class Box {
    Box(int a) {
        this.a = a;
    }

    @Override
    public String toString() {
        return new Object() {
            public String toString() { return "in"; }
        }.toString();
    }

    interface Lid {
        void shut();
    }

    record Pair(int a) {
        Pair { check(a); }
    }
}
"""


def _names(text: str, language: Language) -> list[str]:
    return [function.qualified_name for function in functions_in(text, language)]


def test_names_of_python_functions_hold_the_classes_and_functions_round_them() -> None:
    assert _names(PYTHON, "python") == ["top", "Box.wide", "Box.wide.inner", "Box.Lid.shut"]


def test_a_python_function_is_whole_lines_with_decorators_as_far_left_as_it_goes() -> None:
    functions = functions_in(PYTHON, "python")
    assert functions[0].text == '@cache\ndef top(a):\n    """Text.\n\n    More.\n    """\n    return a  # why\n'
    assert functions[1:3] == [
        Function("Box.wide", "@property\ndef wide(self):\n    def inner():\n        return 1\n\n    return inner()\n"),
        Function("Box.wide.inner", "def inner():\n    return 1\n"),
    ]


def test_javascript_functions_have_a_name_of_their_own_or_that_of_their_key() -> None:
    assert _names(JAVASCRIPT, "javascript") == [
        "numbers",
        "Box.open",
        'Box."wide one"',
        "shut",  # a class without a name has none to give
        "close",
        "late",
        "first",  # once, not again as `first.named`
        "second",
        "third",
    ]


def test_javascript_functions_are_moved_left_by_the_margin_of_their_line() -> None:
    texts = {function.qualified_name: function.text for function in functions_in(JAVASCRIPT, "javascript")}
    assert texts["Box.open"] == "static async open(a) {\n  return a;\n}"
    assert texts["close"] == "function close() {\n    return 2;\n}"
    assert texts["late"] == "function late() {\n    return 3;\n}"
    assert texts["second"] == "second: x =>\n  x"


@pytest.mark.parametrize("language", ["typescript", "tsx"])
def test_typescript_functions_are_those_with_a_body(language: Language) -> None:
    assert _names(TYPESCRIPT, language) == ["Box.put", "Tools.cut"]


def test_java_functions_are_constructors_and_methods_abstract_and_anonymous_ones_included() -> None:
    functions = functions_in(JAVA, "java")
    assert [function.qualified_name for function in functions] == [
        "Box.Box",
        "Box.toString",
        "Box.toString.toString",
        "Box.Lid.shut",
        "Box.Pair.Pair",
    ]
    assert functions[0].text == "Box(int a) {\n    this.a = a;\n}"
    assert functions[1].text.startswith("@Override\npublic String toString() {\n    return new Object() {\n")
    assert functions[3].text == "void shut();"


def test_text_beyond_the_basic_plane_does_not_shift_a_function() -> None:
    assert functions_in("# \U0001f600 é\ndef f():\n    return '\U0001f600'\n", "python") == [
        Function("f", "def f():\n    return '\U0001f600'\n")
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def f(:\n", "source is not python that the parser understands"),
        (f"x = '{'a' * 10_000}'\n", "source with a line of 10006 characters; at most 10000 are parsed"),
        (f"x = {'[' * 400}{']' * 400}\n", "source is nested deeper than 300 levels"),
    ],
)
def test_a_file_that_the_parser_does_not_understand_whole_has_no_functions(text: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        functions_in(text, "python")
    assert str(caught.value) == reason
