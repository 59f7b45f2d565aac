"""What a snippet offers to template families."""

import random

import pytest

from graftline.astgrep.binding import Language, parse
from graftline.datasets.synthetic.candidates import Names, parts_of
from graftline.datasets.synthetic.family import Role, Site, fill
from graftline.datasets.synthetic.sites import sites_in


def of_role(language: Language, text: str, role: Role) -> list[Site]:
    return [site for site in sites_in(parse(text, language)) if site.role == role]


@pytest.mark.parametrize(
    ("language", "text", "site"),
    [
        ("python", "f(1, 2)\n", Site("function", "f", arguments=2, is_statement=True)),
        ("python", "x = f()\n", Site("function", "f")),
        ("python", "a.f(x, k=1)\n", Site("method", "f", "a", arguments=2, keywords=("k",), is_statement=True)),
        ("python", "a.b.f()\n", Site("method", "f", arguments=0, is_statement=True)),
        ("python", "f(a, *b, **c)\n", Site("function", "f", arguments=3, is_statement=True)),
        ("python", "f(k=True)\n", Site("keyword", "k", "f", "true")),
        ("python", "x = a.size\n", Site("attribute", "size", "a")),
        ("python", "raise NoWay(1)\n", Site("class", "NoWay", key="constructed", arguments=1)),
        ("python", "def f(a, b=1): g()\n", Site("definition", "f", "a", "expression_statement", 2, ("a", "b"))),
        ("python", "import os\n", Site("module", "os", key="whole")),
        ("python", "from os import path\n", Site("imported", "path", "os")),
        ("python", "f(10)\n", Site("number", "10", key="argument")),
        ("javascript", "a.f(1, 2);", Site("method", "f", "a", arguments=2, is_statement=True)),
        ("javascript", "const x = a?.f();", Site("method", "f", "a")),
        ("javascript", "new Ab(1);", Site("class", "Ab", key="constructed")),
        ("javascript", "f({ k: true });", Site("keyword", "k", "f", "true")),
        ("javascript", "const a = require('./b');", Site("imported", "a", "./b", "required")),
        ("javascript", "import a from 'b';", Site("imported", "a", "b", "default")),
        ("typescript", "this.f<T>(x);", Site("method", "f", arguments=1, is_statement=True)),
        ("java", "int x() { return f(1); }", Site("function", "f", arguments=1)),
        ("java", "void x() { a.f(1, 2); }", Site("method", "f", "a", arguments=2, is_statement=True)),
        ("java", "void x() { g(new List<A>()); }", Site("class", "List", key="A")),
        ("java", "void x() { Ab b = c; }", Site("type", "Ab", key="local")),
        ("java", "import a.b.C;", Site("imported", "C", "a.b")),
        ("java", "@Mark void x() {}", Site("decorator", "Mark")),
    ],
)
def test_what_a_name_stands_for_is_found(language: Language, text: str, site: Site) -> None:
    sites = of_role(language, text, site.role)
    if site.owner == "" and site.role == "method":
        # `this` is no name that could be another one
        sites = [Site(**{**fields(site), "owner": ""}) for site in sites]
    assert site in sites


def fields(site: Site) -> dict[str, object]:
    return {name: getattr(site, name) for name in Site.__slots__}


@pytest.mark.parametrize(
    ("language", "text", "role"),
    [
        pytest.param("python", "t[0]()\nf()()\n", "method", id="calls without a name"),
        pytest.param("python", "a.__init__()\n", "method", id="names that Python gives a meaning"),
        pytest.param("python", "f('a$b')\n", "string", id="texts that are more than words"),
        pytest.param("python", "x = 0\n", "number", id="zero, which means nothing by itself"),
        pytest.param("javascript", "a.#f(); a['g']();", "method", id="names that are no words"),
        pytest.param("javascript", "function f($a) {}", "variable", id="names that would be variables of a pattern"),
        pytest.param("javascript", "let ab = 1; f({ ab });", "variable", id="properties in short form"),
    ],
)
def test_what_cannot_be_filled_in_is_left_out(language: Language, text: str, role: Role) -> None:
    assert of_role(language, text, role) == []


def test_a_new_name_is_near_in_style_and_words_and_not_taken() -> None:
    names = Names(Site("function", name) for name in ("loadAll", "load_all", "load_one", "save", "Load"))
    assert names.another("function", "load_it", {"load_all"}, random.Random(0)) == "load_one"


@pytest.mark.parametrize(
    ("role", "old", "new"),
    [("function", "load_it", "load_it_v2"), ("method", "loadIt", "loadItV2"), ("number", "10", "20"), ("module", "./a", "./a2")],
)  # fmt: skip
def test_a_name_is_numbered_where_no_other_code_has_one(role: Role, old: str, new: str) -> None:
    assert Names([]).another(role, old, set(), random.Random(0)) == new


@pytest.mark.parametrize(
    ("name", "parts"), [("getHTTPCode2", ["get", "http", "code", "2"]), ("_load_it", ["load", "it"]), ("$", [])]
)
def test_names_are_made_of_words(name: str, parts: list[str]) -> None:
    assert parts_of(name) == parts


def test_only_slots_are_filled_and_other_braces_stay() -> None:
    assert fill("{name}({ k: {new} }, {x})", {"name": "f", "new": "g"}) == "f({ k: g }, {x})"
