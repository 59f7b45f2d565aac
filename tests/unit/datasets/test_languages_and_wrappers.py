"""A function, a method or a member alone is parsed as what it is in its file."""

import pytest

from graftline.actions.astgrep import Language
from graftline.datasets.catalogue import Cleaning
from graftline.datasets.edit import Edit
from graftline.datasets.ingest import clean
from graftline.datasets.language import parsable

WRAPPED = {"": "{}", "class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"}


@pytest.mark.parametrize(
    ("language", "text", "wrapper"),
    [
        pytest.param("python", "def f(a):\n    return a\n", "", id="python function"),
        pytest.param("python", "    def f(self):\n        return 1\n", "", id="python method, indented"),
        pytest.param("python", "async def f():\n    await g()\n", "", id="python coroutine"),
        pytest.param("javascript", "function f(a) {\n  return a;\n}", "", id="javascript function"),
        pytest.param("javascript", "const f = (a) => a;", "", id="javascript arrow"),
        pytest.param("javascript", "f(a) {\n  return a;\n}", "class", id="javascript method"),
        pytest.param("javascript", "async f(a) {\n  return await a;\n}", "class", id="javascript async method"),
        pytest.param("javascript", "get size() {\n  return this.n;\n}", "class", id="javascript getter"),
        pytest.param("javascript", "static f() {\n  return 1;\n}", "class", id="javascript static method"),
        pytest.param("javascript", "*f() {\n  yield 1;\n}", "class", id="javascript generator method"),
        pytest.param("javascript", "f: function (a) {\n  return a;\n},", "object", id="javascript member, comma"),
        pytest.param("javascript", "'a-b': (c) => c", "object", id="javascript member, quoted"),
        pytest.param("javascript", "f() {\n  return 1;\n},\ng() {\n  return 2;\n}", "object", id="two members"),
        # a label and a function: not what was meant, yet the same text either way
        pytest.param("javascript", "f: function (a) {\n  return a;\n}", "", id="javascript member, bare"),
        pytest.param("typescript", "private f(a: number): number {\n  return a;\n}", "class", id="typescript method"),
        pytest.param("tsx", "render() {\n  return <p>hello</p>;\n}", "class", id="tsx method"),
        pytest.param("java", "public int f(int a) {\n    return a;\n}", "", id="java method"),
        pytest.param("java", "@Override\npublic <T> void f(T a) {}", "", id="java generic method"),
        pytest.param("java", "public Foo(int a) {\n    this.a = a;\n}", "class", id="java constructor"),
        pytest.param("java", "class A {\n    int f() {\n        return 1;\n    }\n}", "", id="java class"),
    ],
)
def test_a_text_gets_the_wrapper_it_needs_and_no_other(language: Language, text: str, wrapper: str) -> None:
    whole = WRAPPED[wrapper].format(text)
    assert parsable(text, text, language) == (whole, whole, wrapper)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", "def f(:\n"),
        ("python", "return = 1"),
        ("javascript", "function ("),
        ("javascript", "f(a) { return a; "),
        ("typescript", "f(a: ) { }"),
        ("java", "int f(int a { }"),
        ("java", "Foo(int a) { this. }"),
    ],
)
def test_a_text_that_no_wrapper_helps_is_none(language: Language, text: str) -> None:
    assert parsable(text, text, language) is None


def test_both_sides_get_the_same_wrapper() -> None:
    # the function alone would need none
    method, function = "f(a) {\n  return a;\n}", "g() {\n  return 2;\n}"
    assert parsable(method, function, "javascript") == (
        WRAPPED["class"].format(method),
        WRAPPED["class"].format(function),
        "class",
    )


def test_sides_that_need_different_wrappers_are_none() -> None:
    # a class has no comma between its members, and an object needs one
    assert parsable("f() {\n  a();\n}\ng() {\n  b();\n}", "f: 1,", "javascript") is None


def test_braces_in_a_text_are_left_alone() -> None:
    text = 'f() {\n  return "{}{0}{x}";\n}'
    assert parsable(text, text, "javascript") == (f"class Enclosing {{\n{text}\n}}",) * 2 + ("class",)


def test_a_wrapped_edit_is_tagged_with_its_wrapper() -> None:
    edit = Edit(
        instruction="Call fresh.",
        pre="f() { old(); }",
        post="f() { fresh(); }",
        language="javascript",
        tags=("release_pairs",),
        id="a",
        dataset="demo",
        licence="MIT",
        group="npm:a",
        origin="a.js",
    )
    wrapped = {
        "pre": "class Enclosing {\nf() { old(); }\n}",
        "post": "class Enclosing {\nf() { fresh(); }\n}",
        "tags": ("release_pairs", "wrapped:class"),
    }
    assert clean(edit, Cleaning()) == edit.model_copy(update=wrapped)


def test_an_edit_that_parses_alone_is_not_touched() -> None:
    edit = Edit(
        instruction="Call new.",
        pre="old()\n",
        post="new()\n",
        language="python",
        id="a",
        dataset="demo",
        licence="MIT",
        group="pypi:a",
        origin="a.py",
    )
    assert clean(edit, Cleaning()) == edit
