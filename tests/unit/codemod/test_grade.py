"""Progress, counted by hand; what an action does elsewhere; and which actions count as general."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod import background
from graftline.codemod.cost import description_length
from graftline.codemod.equality import Level
from graftline.codemod.grade import Grade, Measures, count_background_matches, difference_cost, grade, measure, parse_ok
from graftline.core.errors import DataError
from graftline.sandbox import Isolation, SandboxResult, Verdict
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Sandbox


@pytest.mark.parametrize(
    ("before", "after", "cost"),
    [
        ("f(a)\n", "f(a)\n", 0),
        # f goes, g comes
        ("f(a)\n", "g(a)\n", 2),
        # and a goes, b comes
        ("f(a)\n", "g(b)\n", 4),
        # a, ( and ) go
        ("a()\nb()\n", "b()\n", 3),
        # the comma and b come
        ("f(a)\n", "f(a, b)\n", 2),
        # white space is nothing
        ("f(a,b)\n", "f(a, b)\n", 0),
        # a string is one place: ' stays, two words go, two come
        ("x = 'a b'\n", "x = 'c d'\n", 4),
        # f(a) is one node that another wraps: f ( a ) go, g ( f ( a ) ) come
        ("f(a)\n", "g(f(a))\n", 11),
    ],
)
def test_the_cost_of_a_difference_is_the_tokens_that_go_and_come(before: str, after: str, cost: int) -> None:
    assert difference_cost(before, after, "python") == cost


@pytest.mark.parametrize(
    ("before", "text", "wanted", "expected"),
    [
        ("f(a)\n", "g(b)\n", "g(b)\n", Grade(Level.EXACT, 1.0)),
        ("f(a)\n", "g(b)  \n", "g(b)\n", Grade(Level.BLANKS, 1.0)),
        ("f(a)\n", "g( b,)\n", "g(b)\n", Grade(Level.TREE, 1.0)),
        # 2 of 4 tokens are left
        ("f(a)\n", "g(a)\n", "g(b)\n", Grade(Level.PARTIAL, 0.5)),
        # a, b, c to d, e, f costs 6; with one of them done 4 are left: 1 - 4/6
        ("f(a, b, c)\n", "f(d, b, c)\n", "f(d, e, f)\n", Grade(Level.PARTIAL, 0.333333)),
        ("f(a)\n", "f(a)\n", "g(b)\n", Grade(Level.NONE, 0.0)),
        # another wrong name is as far away
        ("f(a)\n", "h(a)\n", "g(b)\n", Grade(Level.NONE, 0.0)),
        # 2 were to do and 4 are now
        ("f(a)\n", "h(b)\n", "g(a)\n", Grade(Level.NONE, 0.0)),
        # one right and one wrong: 2 of 2 are left
        ("f(a)\n", "g(b)\n", "g(a)\n", Grade(Level.NONE, 0.0)),
        # nothing was to do
        ("f(a)\n", "g(a)\n", "f(a)\n", Grade(Level.NONE, 0.0)),
        # an empty text is far from everything
        ("f(a)\n", "", "g(a)\n", Grade(Level.NONE, 0.0)),
    ],
)
def test_a_text_is_graded_by_what_is_left_to_do(before: str, text: str, wanted: str, expected: Grade) -> None:
    found = grade(before, text, wanted, "python")
    assert found == expected
    assert found.is_verified is (found.progress == 1.0)


def test_a_text_with_which_the_tests_pass_is_verified_unless_it_is_nearer_than_that() -> None:
    found = [grade("f(a)\n", text, "g(b)\n", "python", passes_tests=True) for text in ("h(b)\n", "g( b )\n")]
    assert found == [Grade(Level.TESTS, 1.0), Grade(Level.TREE, 1.0)]


def test_a_dedented_statement_is_not_verified_however_near_it_is() -> None:
    wanted = "if a:\n    b(1)\n    c(1)\n"
    found = grade("if a:\n    b(0)\n    c(1)\n", "if a:\n    b(1)\nc(1)\n", wanted, "python")
    assert found.is_verified is False


def test_a_text_too_deep_to_be_read_is_an_error_of_the_data() -> None:
    with pytest.raises(DataError):
        grade("f(a)\n", "-" * 400 + "1\n", "g(a)\n", "python")


def pattern(old: str, new: str) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new)


@pytest.fixture
def sandbox() -> Sandbox:
    return MemorySandbox()


def measures(
    action: PatternAction | RuleAction, text: str, wanted: str, sandbox: Sandbox, negatives: tuple[str, ...] = ()
) -> Measures:
    [result] = sandbox.apply_many(text, "python", [action])
    return measure(action, text, result, wanted, "python", sandbox, negatives)


def test_an_action_that_does_what_is_wanted_does_nothing_else(sandbox: Sandbox) -> None:
    action, literals = pattern("old($A)", "new($A)"), [pattern(f"old({n})", f"new({n})") for n in (1, 2)]
    found = measures(action, "old(1)\nold(2)\n", "new(1)\nnew(2)\n", sandbox)
    mdl = round(description_length(action) / sum(map(description_length, literals)), 3)
    assert found == Measures(
        false_positives=0,
        background_matches=0.0,
        idempotent=True,
        negatives_changed=None,
        description_length=mdl,
        support=2,
    )


@pytest.mark.parametrize(
    ("old", "new", "text", "wanted", "over_in", "support"),
    [
        # one of two is wanted
        ("f($A)", "g($A)", "f(1)\nf(2)\n", "g(1)\nf(2)\n", 1, 1),
        # none is
        ("f($A)", "h($A)", "f(1)\nf(2)\n", "g(1)\nf(2)\n", 2, 0),
        # what matches and stays is neither
        ("f($A)", "f($A)", "f(1)\n", "g(1)\n", 0, 0),
        # a part of what is wanted of one place, and of many
        ("f($A, b)", "g($A, b)", "f(a, b)\n", "g(a, c)\n", 0, 1),
        ("f($A, $$$B)", "g($A, $$$B)", "f(a, b, c, d, e, f, g)\n", "g(a, h, h, h, h, h, h)\n", 0, 1),
        # right, and something more
        ("f($A)", "g($A, 0)", "f(1)\n", "g(1)\n", 1, 0),
        # blanks alone are no edit
        ("f($A)", "g( $A )", "f(1)\n", "g(1)\n", 0, 1),
    ],
)
def test_a_match_is_unwanted_where_it_changes_what_is_not_to_change(
    old: str, new: str, text: str, wanted: str, over_in: int, support: int, sandbox: Sandbox
) -> None:
    found = measures(pattern(old, new), text, wanted, sandbox)
    assert (found.false_positives, found.support) == (over_in, support)


@pytest.mark.parametrize(
    ("old", "new", "text", "wanted", "idempotent"),
    [
        ("f($A)", "g($A)", "f(1)\n", "g(1)\n", True),
        # its own result matches again
        ("f($A)", "f(f($A))", "f(1)\n", "f(f(1))\n", False),
        # in the wanted text one f has to stay
        ("f($A)", "g($A)", "f(1)\nf(2)\n", "g(1)\nf(2)\n", False),
        # it matches its own result and leaves it as it is
        ("$A(1)", "g(1)", "f(1)\n", "g(1)\n", True),
    ],
)
def test_an_action_is_idempotent_where_twice_is_once(
    old: str, new: str, text: str, wanted: str, idempotent: bool, sandbox: Sandbox
) -> None:
    assert measures(pattern(old, new), text, wanted, sandbox).idempotent is idempotent


def test_negatives_that_are_changed_are_counted(sandbox: Sandbox) -> None:
    negatives = ("old(1, 2)\n", "other(1)\n", "if a:\n    old(3)\n")
    assert measures(pattern("old($A)", "new($A)"), "old(1)\n", "new(1)\n", sandbox, negatives).negatives_changed == 1


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.OK])
def test_nothing_is_measured_of_an_action_that_was_not_applied(verdict: Verdict, sandbox: Sandbox) -> None:
    result = SandboxResult(verdict, None, Isolation("none", "memory"))
    assert measure(pattern("f($A)", "g($A)"), "f(1)\n", result, "g(1)\n", "python", sandbox) == Measures()


@pytest.mark.parametrize("verdict", list(Verdict))
def test_ast_grep_accepts_or_refuses_or_never_says(verdict: Verdict) -> None:
    expected = {"ok": True, "no_match": True, "action_error": False}.get(verdict.value)
    assert parse_ok(verdict) is expected


@pytest.mark.parametrize(
    "action",
    [
        pattern("len($A)", "size($A)"),
        pattern("$A is None", "$A == None"),
        PatternAction(pattern="self.$A = $B", rewrite="self.$A = f($B)"),
        PatternAction(pattern="class C:\n    return $A", rewrite="return f($A)", selector="return_statement"),
        RuleAction(rule={"kind": "identifier", "regex": "^name$"}, fix="other"),
        RuleAction(rule={"all": [{"pattern": "return $A"}, {"inside": {"kind": "if_statement", "stopBy": "end"}}]}, fix="x"),
        RuleAction(rule={"pattern": "$F($$$A)", "has": {"regex": "^isinstance$"}}, fix="$F(1)"),
    ],
    ids=range(7),
)  # fmt: skip
def test_texts_that_lack_a_needed_word_are_left_out_without_missing_a_place(
    action: PatternAction | RuleAction, sandbox: Sandbox
) -> None:
    changed = 0
    for text in background.texts("python"):
        [result] = sandbox.apply_many(text, "python", [action])
        changed += sum(text[match.start : match.end] != match.replacement for match in result.matches)
    assert changed > 0
    assert count_background_matches(action, "python", sandbox) == round(
        changed * 100_000 / background.size("python"), 3
    )


def test_how_often_foreign_code_is_changed_is_not_known_of_what_cannot_be_applied(sandbox: Sandbox) -> None:
    assert count_background_matches(pattern("len($A)", "$UNDEFINED"), "python", sandbox) is None


def test_a_copy_of_the_own_text_in_the_background_is_not_foreign(sandbox: Sandbox) -> None:
    action, program = pattern("return $A", "return f($A)"), background.texts("python")[0]
    own = next(row.text for row in background.rows() if row.language == "python" and "return " in row.text)
    [inside] = sandbox.apply_many(own, "python", [action])
    known, foreign = (
        count_background_matches(action, "python", sandbox),
        count_background_matches(action, "python", sandbox, f"\n{own}\n"),
    )
    assert (own in program, known is not None, foreign is not None) == (True, True, True)
    size = background.size("python")
    changed = round((known or 0.0) * size / 100_000)
    assert foreign == round((changed - len(inside.matches)) * 100_000 / (size - len(own.strip())), 3)


def test_a_place_that_stays_as_it_is_counts_for_nothing(sandbox: Sandbox) -> None:
    assert count_background_matches(pattern("$A is None", "$A is None"), "python", sandbox) == 0.0
