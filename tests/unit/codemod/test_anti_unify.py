"""Templates of a region under each policy: what becomes a variable, and where no template can be written."""

import pytest

from graftline.astgrep.binding import Language, parse
from graftline.codemod.anti_unify import POLICIES, Lists, Policy, Template, make_template
from graftline.codemod.change import Change, Region, bound_names

NAMES = [f"{policy} {lists}" for policy, lists in POLICIES]


def change(language: Language, before: str, after: str) -> Change:
    return Change.between(before, after, language)


def templates(language: Language, before: str, after: str, region: str) -> dict[str, tuple[str, str] | None]:
    changed = change(language, before, after)
    node = next(node for node in changed.before.root.walk() if changed.before.of(node) == region)
    found = [make_template(changed, Region(node, node), policy, lists) for policy, lists in POLICIES]
    return {name: one and (one.pattern, one.rewrite) for name, one in zip(NAMES, found, strict=True)}


def test_the_policies_go_from_the_names_kept_to_nothing_free() -> None:
    assert NAMES == [
        "scoped long_runs",
        "scoped items",
        "scoped runs",
        "named long_runs",
        "named items",
        "all long_runs",
        "all items",
        "literal items",
    ]


def test_a_scoped_template_keeps_receivers_keywords_and_constants() -> None:
    call = "m.old(a, b.c, k=1, None)"
    assert templates("python", f"{call}\n", call.replace("old", "new") + "\n", call) == {
        "scoped long_runs": ("m.old($$$A)", "m.new($$$A)"),
        "scoped items": ("m.old($A, $B, k=$C, None)", "m.new($A, $B, k=$C, None)"),
        "scoped runs": ("m.old($$$A)", "m.new($$$A)"),
        "named long_runs": ("m.old($$$A)", "m.new($$$A)"),
        "named items": ("m.old($A, $B, k=$C, None)", "m.new($A, $B, k=$C, None)"),
        "all long_runs": ("$A.old($$$B)", "$A.new($$$B)"),
        "all items": ("$A.old($B, $C, k=$D, None)", "$A.new($B, $C, k=$D, None)"),
        "literal items": ("m.old(a, b.c, k=1, None)", "m.new(a, b.c, k=1, None)"),
    }


def test_a_receiver_that_the_text_binds_is_free_under_every_policy_but_the_literal() -> None:
    found = templates("python", "def f(m):\n    m.old(a)\n", "def f(m):\n    m.new(a)\n", "m.old(a)")
    assert found == {
        "scoped long_runs": ("$A.old($B)", "$A.new($B)"),
        "scoped items": ("$A.old($B)", "$A.new($B)"),
        "scoped runs": ("$A.old($$$B)", "$A.new($$$B)"),
        "named long_runs": ("$A.old($B)", "$A.new($B)"),
        "named items": ("$A.old($B)", "$A.new($B)"),
        "all long_runs": ("$A.old($B)", "$A.new($B)"),
        "all items": ("$A.old($B)", "$A.new($B)"),
        "literal items": ("m.old(a)", "m.new(a)"),
    }


def test_a_named_template_keeps_what_is_defined_and_the_callee_of_a_call_that_moves() -> None:
    before, after = (
        "async function g() {\n  const x = await load(a, b);\n}\n",
        "async function g() {\n  const x = load(a, b);\n}\n",
    )
    found = templates("javascript", before, after, "const x = await load(a, b);")
    assert (found["scoped items"], found["named items"]) == (
        ("const $A = await $B;", "const $A = $B;"),
        ("const x = await load($A, $B);", "const x = load($A, $B);"),
    )


# region and new text under ("scoped", "items"), the policy with one variable for each thing
ITEMS: dict[str, tuple[Language, str, str, str, str]] = {
    "one text is one variable": ("python", "old(a, a, b)", "new(a, a, b)", "old($A, $A, $B)", "new($A, $A, $B)"),
    "what moves keeps its variable": ("python", "f(a, b)", "f(b, a)", "f($A, $B)", "f($B, $A)"),
    "what is repeated is repeated": ("python", "f(a)", "g(a, a)", "f($A)", "g($A, $A)"),
    "what is new is written out": ("python", "f(a, d)", "f(a, b, d)", "f($A, $B)", "f($A, b, $B)"),
    "what goes is written out": ("python", "f(a, b, c)", "f(a, c)", "f($A, b, $B)", "f($A, $B)"),
    "what is replaced is written out": ("python", "f(a)", "g(b)", "f(a)", "g(b)"),
    "a callee stays": ("python", "a(b)(c)", "a(d)(c)", "a(b)($A)", "a(d)($A)"),
    "a type stays": ("java", "new A<B>(c)", "new D<B>(c)", "new A<B>($A)", "new D<B>($A)"),
    "a method name stays": ("java", "a.b(c).d(e)", "a.b(c).f(e)", "a.b($A).d($B)", "a.b($A).f($B)"),
    "a property stays": ("javascript", "f({a: b, c: d})", "g({a: b, c: d})", "f($A)", "g($A)"),
    "an operator stays": ("python", "a == b", "a is b", "$A == $B", "$A is $B"),
    "a literal goes free": ("python", "f(1, 'x')", "g(1, 'x')", "f($A, $B)", "g($A, $B)"),
}


@pytest.mark.parametrize(("language", "old", "new", "pattern", "rewrite"), ITEMS.values(), ids=ITEMS)
def test_what_the_change_leaves_alone_becomes_a_variable(
    language: Language, old: str, new: str, pattern: str, rewrite: str
) -> None:
    before, after = (
        f"x = {text};\n" if language != "java" else f"class X {{ Y x = {text}; }}\n" for text in (old, new)
    )
    assert templates(language, before, after, old)["scoped items"] == (pattern, rewrite)


@pytest.mark.parametrize(
    ("old", "new", "long_runs", "runs"),
    [
        ("f(a)", "g(a)", ("f($A)", "g($A)"), ("f($$$A)", "g($$$A)")),
        ("f(a, b)", "g(a, b)", ("f($$$A)", "g($$$A)"), ("f($$$A)", "g($$$A)")),
        # only untouched neighbors form a run
        ("f(a, b, c, d)", "f(a, b, d)", ("f($$$A, c, $B)", "f($$$A, $B)"), ("f($$$A, c, $$$B)", "f($$$A, $$$B)")),
        ("f(a, b)", "f(b, a)", ("f($A, $B)", "f($B, $A)"), ("f($A, $B)", "f($B, $A)")),
        ("f(a)", "g(b)", ("f(a)", "g(b)"), ("f(a)", "g(b)")),
        # a place where something is inserted ends a run
        ("f(a, d)", "f(a, b, d)", ("f($A, $B)", "f($A, b, $B)"), ("f($$$A, $$$B)", "f($$$A, b, $$$B)")),
        # a comment in a run would take the comma behind it along
        (
            "f(a, # c\n  b)",
            "g(a, # c\n  b)",
            ("f($A, # c\n  $B)", "g($A, # c\n  $B)"),
            ("f($$$A, # c\n  $$$B)", "g($$$A, # c\n  $$$B)"),
        ),
    ],
)
def test_untouched_neighbors_in_a_list_become_one_variable(
    old: str, new: str, long_runs: tuple[str, str], runs: tuple[str, str]
) -> None:
    found = templates("python", old + "\n", new + "\n", old)
    assert (found["scoped long_runs"], found["scoped runs"]) == (long_runs, runs)


def test_a_region_is_written_as_if_it_stood_at_the_margin() -> None:
    found = templates("python", "if a:\n    f(\n        b)\n", "if a:\n    g(\n        b)\n", "f(\n        b)")
    assert found["scoped items"] == ("f(\n    $A)", "g(\n    $A)")


@pytest.mark.parametrize(
    ("language", "before", "after", "region"),
    [
        ("javascript", "f($A);\n", "g($A);\n", "f($A)"),
        ("javascript", "f(a);\n", "f($B);\n", "f(a)"),
        ("javascript", "f($_x, a);\n", "g($_x, a);\n", "f($_x, a)"),
        # no site lies inside
        ("python", "f(a)\ng(b)\n", "f(a)\nh(b)\n", "f(a)"),
    ],
)
def test_no_template_is_written_that_would_say_something_else(
    language: Language, before: str, after: str, region: str
) -> None:
    assert set(templates(language, before, after, region).values()) == {None}


def test_no_template_frees_what_its_rewrite_repeats_as_it_is() -> None:
    # a name in short for a property is no expression, so that a variable cannot stand there
    found = templates("javascript", "f(a, b);\n", "f({ a, b });\n", "f(a, b)")
    assert {make_template[0] for make_template in found.values() if make_template} == {"f(a, b)"}


def test_no_template_is_written_that_would_match_everything() -> None:
    assert templates("python", "(a)\n", "a\n", "(a)") == {**dict.fromkeys(NAMES, None), "literal items": ("(a)", "a")}


def test_a_template_counts_its_variables() -> None:
    changed = change("python", "f(a, a, b)\n", "g(a, a, b)\n")
    call = next(node for node in changed.before.root.walk() if node.kind == "call")
    assert make_template(changed, Region(call, call), "scoped", "items") == Template(
        "f($A, $A, $B)", "g($A, $A, $B)", 2
    )


@pytest.mark.parametrize("lists", ["items", "runs", "long_runs"])
@pytest.mark.parametrize("policy", ["scoped", "all", "literal"])
def test_more_than_26_variables_have_names_ast_grep_can_read(policy: Policy, lists: Lists) -> None:
    names = ", ".join(f"a{number}" for number in range(40))
    changed = change("python", f"f({names})\n", f"g({names})\n")
    call = next(node for node in changed.before.root.walk() if node.kind == "call")
    found = make_template(changed, Region(call, call), policy, lists)
    assert found is not None
    if (policy, lists) == ("literal", "items"):
        assert found == Template(f"f({names})", f"g({names})", 0)
    elif lists == "items":
        assert found.pattern.endswith(
            "$Y, $Z, $V26, $V27, $V28, $V29, $V30, $V31, $V32, $V33, $V34, $V35, $V36, $V37, $V38, $V39)"
        )


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "def f(a, b=1, *c, d: int, **e): y\n", {"a", "b", "c", "d", "e", "int"}),
        ("python", "a = x\nb, c = y\nd += 1\n(e := 1)\n", {"a", "b", "c", "d", "e"}),
        ("python", "for a, b in x: y\n[c for d in z]\n", {"a", "b", "d"}),
        ("python", "import a\nf(b)\nc.d\n", set()),
        ("javascript", "function f(a, {b}, ...c) { let d = x; }\n", {"a", "b", "c", "d"}),
        ("javascript", "for (const a of x) {}\ntry {} catch (b) {}\n", {"a", "b"}),
        ("typescript", "const a: A = x;\n", {"A", "a"}),
        ("java", "class A { void f(int a) { int b = x; for (int c : y) {} } }\n", {"a", "b", "c"}),
    ],
)
def test_the_names_that_a_text_binds_are_known(language: Language, text: str, expected: set[str]) -> None:
    assert set(bound_names(parse(text, language))) == expected
