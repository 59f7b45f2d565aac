"""Differences of trees: the sites of known changes, and that sites always make the text after."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from graftline.astgrep.binding import Language, Node, parse
from graftline.codemod.diff import Site, apply_sites, diff_trees, is_sequence

Pairs = Callable[[int, int], list[tuple[str, str, Language]]]

# before, after, and what becomes of which characters; a blank site is marked
CHANGES: dict[str, tuple[Language, str, str, list[tuple[int, int, str, bool]]]] = {
    "nothing": ("python", "x = 1\n", "x = 1\n", []),
    "a name": ("python", "x = old(a)\n", "x = new(a)\n", [(4, 7, "new", False)]),
    "two names": ("python", "f(a, b)\n", "f(b, a)\n", [(2, 3, "b", False), (5, 6, "a", False)]),
    "all of a string": ("python", "x = 'a b'\n", "x = 'a c'\n", [(5, 8, "a c", False)]),
    "all of a comment": ("python", "# a\nx\n", "# b\nx\n", [(0, 3, "# b", False)]),
    # a node that stays whole inside another is one site, not one on each side of it
    "wrapped": ("python", "f(a)\n", "g(f(a))\n", [(0, 4, "g(f(a))", False)]),
    "unwrapped": ("python", "g(f(a))\n", "f(a)\n", [(0, 7, "f(a)", False)]),
    "a link out of a chain": ("python", "x.a().b().c()\n", "x.b().c()\n", [(0, 5, "x", False)]),
    "a link into a chain": ("python", "x.b().c()\n", "x.a().b().c()\n", [(0, 1, "x.a()", False)]),
    "into a block": (
        "python",
        "def f():\n    a()\n",
        "def f():\n    if x:\n        a()\n",
        [(13, 16, "if x:\n        a()", False)],
    ),
    # the blanks beside what is deleted are a site of their own
    "a statement deleted": ("python", "a()\nb()\nc()\n", "a()\nc()\n", [(4, 7, "", False), (7, 8, "", True)]),
    "a first statement deleted": (
        "python",
        "def f():\n    a()\n    b()\n",
        "def f():\n    b()\n",
        [(13, 16, "", False), (16, 21, "", True)],
    ),
    "an argument deleted": ("python", "f(a, b, c)\n", "f(a, c)\n", [(5, 7, "", False), (7, 8, "", True)]),
    "a statement inserted": ("python", "a()\nc()\n", "a()\nb()\nc()\n", [(4, 4, "b()\n", False)]),
    "an argument inserted": ("python", "f(a, c)\n", "f(a, b, c)\n", [(5, 5, "b, ", False)]),
    "an annotation inserted": (
        "java",
        "class A { int f() { return 1; } }",
        "class A { @B int f() { return 1; } }",
        [(10, 10, "@B ", False)],
    ),
    "blanks": ("python", "x=1\n", "x = 1\n", [(1, 1, " ", True), (2, 2, " ", True)]),
    "empty lines": ("python", "a\n", "a\n\n\n", [(1, 2, "\n\n\n", True)]),
    "indentation": ("python", "if a:\n  b\n", "if a:\n    b\n", [(5, 8, "\n    ", True)]),
    "another kind": ("python", "a, b\n", "a\n", [(0, 4, "a", False)]),
    "one statement into two": (
        "javascript",
        "var a = 1, b = 2;\n",
        "const a = 1;\nconst b = 2;\n",
        [(0, 17, "const a = 1;\nconst b = 2;", False)],
    ),
    "from nothing": ("python", "", "x = 1\n", [(0, 0, "x = 1\n", False)]),
    "to nothing": ("python", "x = 1\n", "", [(0, 6, "", False)]),
    # offsets are characters
    "beyond ASCII": ("python", "f('日本', é)\n", "f('日本', ü)\n", [(8, 9, "ü", False)]),
}


@pytest.mark.parametrize(("language", "before", "after", "sites"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_found_where_it_is(
    language: Language, before: str, after: str, sites: list[tuple[int, int, str, bool]]
) -> None:
    found = diff_trees(parse(before, language), parse(after, language))
    assert [(site.start, site.end, site.text, site.is_blank) for site in found] == sites


@pytest.mark.parametrize(("language", "before", "after", "_"), CHANGES.values(), ids=CHANGES)
def test_the_sites_of_a_change_make_the_text_after(language: Language, before: str, after: str, _: object) -> None:
    there = diff_trees(parse(before, language), parse(after, language))
    back = diff_trees(parse(after, language), parse(before, language))
    assert (apply_sites(before, there), apply_sites(after, back)) == (after, before)


def test_the_sites_of_real_changes_make_the_texts_after_in_order(sample_pairs: Pairs) -> None:
    for before, after, language in sample_pairs(250, 1):
        sites = diff_trees(parse(before, language), parse(after, language))
        assert apply_sites(before, sites) == after
        assert [after[site.new_start : site.new_end] for site in sites] == [site.text for site in sites]
        ends = [end for site in sites for end in (site.start, site.end)]
        assert ends == sorted(ends)


def test_the_sites_between_unrelated_texts_make_the_text_after(sample_pairs: Pairs) -> None:
    pairs = sample_pairs(60, 2)
    for (before, _, language), (_, after, other) in pairwise(pairs):
        # the second is often of another language, and then mostly error to the parser
        assert apply_sites(before, diff_trees(parse(before, language), parse(after, language))) == after
        assert apply_sites(before, diff_trees(parse(before, other), parse(after, other))) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = (\n", "x = )\n"),
        ("", "\n"),
        ("\n\n", ""),
        ("\r\nx\r\n", "\nx\n"),
        ("def f(:\n\tpass", "def f():\n\tpass\n"),
        ("\x00", "\x01"),
        ("a" * 100 + "\n", "b" * 100 + "\n"),
        ("f(" * 90 + ")" * 90, "g(" * 90 + ")" * 90),
        ("x = 1\n" * 300, "x = 1\n" * 150 + "y = 2\n" + "x = 1\n" * 149),
    ],
)
def test_the_sites_of_odd_texts_make_the_text_after(before: str, after: str) -> None:
    assert apply_sites(before, diff_trees(parse(before, "python"), parse(after, "python"))) == after


def test_a_part_of_a_text_can_be_replaced_alone() -> None:
    sites = [Site(2, 3, 0, 0, "X", False), Site(4, 4, 0, 0, "Y", False)]
    # characters 1 to 6 of "abcdefgh" are "bcdef"
    assert apply_sites("abcdefgh", sites, 1, 6) == "bXdYef"


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("f(a)\n", "python", {"module", "argument_list"}),
        ("def f(a): return [1]\n", "python", {"module", "parameters", "block", "list"}),
        ("f({a: 1}, [2]);\n", "javascript", {"program", "arguments", "object", "array"}),
        ("import {a} from 'b';\n", "javascript", {"program", "named_imports"}),
        ("class A { void f() {} }\n", "java", {"program", "class_body", "formal_parameters", "block"}),
    ],
)
def test_lists_of_like_things_are_told_from_forms(text: str, language: Language, expected: set[str]) -> None:
    nodes: list[Node] = list(parse(text, language).root.walk())
    assert {node.kind for node in nodes if is_sequence(node)} == expected
