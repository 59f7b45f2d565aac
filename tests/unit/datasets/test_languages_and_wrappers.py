"""A function, a method or a member alone is parsed as what it is in its file, in the language it is really in."""

from collections.abc import Callable

import pytest

from graftline.astgrep.binding import Language
from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Edit, Label, Rejection, RejectReason
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.language import confirm_language, wrap_excerpt
from tests.unit.datasets.fixtures import dataset, source_that_makes

WRAPPED = {"": "{}", "block": "def enclosing():\n{}", "class": "class Enclosing {{\n{}\n}}", "object": "({{\n{}\n}})"}


@pytest.mark.parametrize(
    ("language", "text", "wrapper"),
    [
        pytest.param("python", "def f(a):\n    return a\n", "", id="python function"),
        pytest.param("python", "    def f(self):\n        return 1\n", "block", id="python method, indented"),
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
    result = (text, text, "") if confirm_language(text, text, language) else wrap_excerpt(text, text, language)
    assert result == (whole, whole, wrapper)


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
    assert (confirm_language(text, text, language), wrap_excerpt(text, text, language)) == (None, None)


@pytest.mark.parametrize(
    ("named", "text", "result"),
    [
        pytest.param("javascript", "const x: number = 1;", "tsx", id="types in a .js file are Flow's"),
        pytest.param("javascript", "const x = <p>hi</p>;", "javascript", id="JSX is JavaScript"),
        pytest.param("typescript", "const x = <p>hi</p>;", "tsx", id="JSX in a .ts file is TSX"),
        pytest.param("typescript", "const x = <T>y;", "typescript", id="a cast in angle brackets"),
        pytest.param("tsx", "const x = <T>y;", None, id="TSX is not tried as TypeScript"),
        pytest.param("python", "print 'Python 2'\n", None, id="Python 2"),
        pytest.param("java", "f = (x) => x;", None, id="no other language is tried"),
    ],
)
def test_a_language_is_what_both_sides_parse_as(named: Language, text: str, result: Language | None) -> None:
    assert confirm_language(text, text, named) == result


def test_both_sides_are_in_one_language() -> None:
    flow, plain = "const x: number = 1;", "const x = 1;"
    assert [confirm_language(*sides, "javascript") for sides in ((flow, plain), (plain, flow))] == ["tsx", "tsx"]
    # a cast in angle brackets is no TSX, and JSX no TypeScript
    assert confirm_language("const x = <T>y;", "const x = <p>hi</p>;", "typescript") is None


def test_both_sides_get_the_same_wrapper() -> None:
    # the function alone would need none
    method, function = "f(a) {\n  return a;\n}", "g() {\n  return 2;\n}"
    assert wrap_excerpt(method, function, "javascript") == (
        WRAPPED["class"].format(method),
        WRAPPED["class"].format(function),
        "class",
    )


def test_sides_that_need_different_wrappers_are_none() -> None:
    # a class has no comma between its members, and an object needs one
    assert wrap_excerpt("f() {\n  a();\n}\ng() {\n  b();\n}", "f: 1,", "javascript") is None


def test_braces_in_a_text_are_left_alone() -> None:
    text = 'f() {\n  return "{}{0}{x}";\n}'
    assert wrap_excerpt(text, text, "javascript") == (f"class Enclosing {{\n{text}\n}}",) * 2 + ("class",)


def clean_message(edit: Edit, is_snippet: bool = True, cleaning: Cleaning | None = None) -> Edit | Rejection:
    """Return what ingestion makes of a row that becomes `edit`."""
    source = source_that_makes(edit, is_snippet=is_snippet)
    [[result]] = Ingest("demo", dataset("release_pairs"), source, cleaning or Cleaning()).outcomes([{}])
    assert not isinstance(result, Label)
    return result.edit if isinstance(result, CleanEdit) else result


METHOD = {"pre": "f() { old(); }", "post": "f() { fresh(); }", "language": "javascript", "tags": ("demo",)}


def test_a_wrapped_edit_is_tagged_with_its_wrapper(edit: Callable[..., Edit]) -> None:
    method = edit("a", **METHOD)
    assert clean_message(method) == method.model_copy(
        update={
            "pre": "class Enclosing {\nf() { old(); }\n}",
            "post": "class Enclosing {\nf() { fresh(); }\n}",
            "tags": ("demo", "wrapped:class"),
        }
    )


def test_an_edit_of_whole_files_is_not_wrapped(edit: Callable[..., Edit]) -> None:
    assert clean_message(edit("a", **METHOD), is_snippet=False) == Rejection(
        RejectReason.UNPARSABLE, "one side is not valid javascript"
    )


def test_an_edit_in_a_related_language_is_tagged_with_it(edit: Callable[..., Edit]) -> None:
    flow = edit("a", pre="const x: A = 1;", post="const x: B = 1;", language="javascript")
    assert clean_message(flow) == flow.model_copy(update={"language": "tsx", "tags": ("parsed-as:tsx",)})


@pytest.mark.parametrize("is_snippet", [True, False])
def test_an_edit_that_parses_alone_is_not_touched(edit: Callable[..., Edit], is_snippet: bool) -> None:
    assert clean_message(edit("a"), is_snippet) == edit("a")


def test_without_the_check_an_edit_is_what_its_row_says(edit: Callable[..., Edit]) -> None:
    broken = edit("a", pre="f() {", post="const x: A = 1;", language="javascript")
    assert clean_message(broken, cleaning=Cleaning(check_syntax=False)) == broken
