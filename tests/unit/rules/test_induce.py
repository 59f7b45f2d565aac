"""Rules from examples: which rule known changes give, what is rejected on the way, and where induction gives up."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from graftline.actions.action import ACTION, PatternAction, RuleAction
from graftline.actions.astgrep import Language
from graftline.errors import DataError, SandboxError
from graftline.rules.equality import Level, equality
from graftline.rules.induce import Rejected, Step, induce, next_step
from graftline.sandbox import Isolation, SandboxResult
from graftline.sandbox.memory import MemorySandbox

Pairs = Callable[[int, int], list[tuple[str, str, Language]]]


def pattern(old: str, new: str, selector: str | None = None) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new, selector=selector)


RULES: dict[str, tuple[Language, str, str, PatternAction | RuleAction]] = {
    "a callee": ("python", "x = old(a)\n", "x = new(a)\n", pattern("old($A)", "new($A)")),
    "every call of it": (
        "python",
        "old(1)\nold(2)\nold(3)\n",
        "new(1)\nnew(2)\nnew(3)\n",
        pattern("old($A)", "new($A)"),
    ),
    "swapped arguments": ("python", "x = f(a, b)\n", "x = f(b, a)\n", pattern("f($A, $B)", "f($B, $A)")),
    "an unwrapped call": ("python", "x = g(f(a))\n", "x = f(a)\n", pattern("g($A)", "$A")),
    "a link out of a chain": ("python", "x.foo().bar()\n", "x.bar()\n", pattern("$A.foo()", "$A")),
    "an operator": (
        "python",
        "if a == None:\n    f(a)\n",
        "if a is None:\n    f(a)\n",
        pattern("$A == None", "$A is None"),
    ),
    "an expression to a call": (
        "python",
        "print('x' % a)\n",
        "print('x'.format(a))\n",
        pattern("$A % $B", "$A.format($B)"),
    ),
    "a value": ("python", "x = 'a'\n", "x = 'b'\n", pattern("$A = 'a'", "$A = 'b'")),
    # a keyword argument alone is no program: it is matched where it can stand
    "a keyword": (
        "python",
        "x = f(a, timeout=1)\n",
        "x = f(a, timeout_s=1)\n",
        pattern("f(timeout=$A)", "timeout_s=$A", "keyword_argument"),
    ),
    # nothing stays, so nothing is free
    "an argument replaced": ("python", "f(a)\ng(a)\n", "f(b)\ng(a)\n", pattern("f(a)", "f(b)")),
    "a deletion": ("python", "import os\nimport sys\n", "import sys\n", pattern("import os", "")),
    "a comment": (
        "python",
        "# old comment\nx = 1\n",
        "# new comment\nx = 1\n",
        RuleAction(rule={"kind": "comment", "regex": "^\\# old comment$"}, fix="# new comment"),
    ),
    "a keyword of JavaScript": ("javascript", "var x = 1;\n", "let x = 1;\n", pattern("var $A;", "let $A;")),
    "an await": (
        "javascript",
        "a.then(b);\n",
        "await a.then(b);\n",
        pattern("$A.then($B)", "await $A.then($B)"),
    ),
    "a replacement text with a dollar": (
        "javascript",
        "const x = s.replace(/a/, '$1');\n",
        "const x = s.replaceAll(/a/, '$1');\n",
        pattern("$A.replace", "$A.replaceAll"),
    ),
    "a type": (
        "typescript",
        "const x: string = f(a);\n",
        "const x: number = f(a);\n",
        pattern("const $A: string = $B;", "const $A: number = $B;"),
    ),
    "an attribute of a tag": (
        "tsx",
        "const x = <a b={c} />;\n",
        "const x = <a d={c} />;\n",
        pattern("<$A b={$B} />", "<$A d={$B} />"),
    ),
    "a method to a static one": (
        "java",
        "class A { int f() { return a.b(c); } }\n",
        "class A { int f() { return B.b(a, c); } }\n",
        pattern("$A.b($B)", "B.b($A, $B)"),
    ),
    "a modifier": (
        "java",
        "class A {\n  private int a;\n}\n",
        "class A {\n  private final int a;\n}\n",
        pattern("class A { private int $A; }", "private final int $A;", "field_declaration"),
    ),
    "beyond ASCII": ("python", "x = größe(wörld)\n", "x = länge(wörld)\n", pattern("größe($A)", "länge($A)")),
    "carriage returns": ("python", "x = f(1)\r\ny = 2\r\n", "x = g(1)\r\ny = 2\r\n", pattern("f($A)", "g($A)")),
    "tabs": ("python", "def f():\n\treturn a(1)\n", "def f():\n\treturn b(1)\n", pattern("a($A)", "b($A)")),
    # what reads as a variable in the source cannot be quoted in a pattern: the rule names its neighbour by kind
    "beside a name that reads as a variable": (
        "javascript",
        "const x = a(b, $Q);\n",
        "const x = c(b, $Q);\n",
        RuleAction(rule={"kind": "identifier", "regex": "^a$"}, fix="c"),
    ),
}


@pytest.mark.parametrize(("language", "before", "after", "action"), RULES.values(), ids=RULES)
def test_a_change_gives_one_rule_that_makes_it(
    language: Language, before: str, after: str, action: PatternAction | RuleAction
) -> None:
    steps, text = induce(before, after, language, MemorySandbox())
    assert [step.action for step in steps] == [action]
    assert equality(text, after, language).is_verified


def test_a_step_says_what_it_did() -> None:
    step = next_step("old(1)\nold(2)\nx = 3\n", "new(1)\nnew(2)\nx = 4\n", "python", MemorySandbox())
    # of three places two are done by one rule
    assert step == Step(
        action=pattern("old($A)", "new($A)"),
        after="new(1)\nnew(2)\nx = 3\n",
        matches=2,
        sites_fixed=2,
        sites_left=1,
        variables=1,
        rejected=(),
    )


def test_a_candidate_that_changes_too_much_is_rejected_with_its_first_line() -> None:
    before, after = "old(1)\nx = 2\nold(2)\nold(3)\n", "new(1)\nx = 2\nold(2)\nold(3)\n"
    step = next_step(before, after, "python", MemorySandbox())
    assert step is not None
    # the call with its argument written out is the only one that holds: it memorises
    assert (step.action, step.after, step.variables) == (pattern("old(1)", "new(1)"), after, 0)
    # old(2) on line 3 and old(3) would go as well
    assert step.rejected == (
        Rejected(pattern("old($A)", "new($A)"), unwanted=2, line=3),
        Rejected(pattern("old($$$A)", "new($$$A)"), unwanted=2, line=3),
    )


def test_what_only_a_few_of_many_places_want_is_done_one_by_one() -> None:
    before, after = "f(1)\nf(2)\nf(3)\n", "g(1)\nf(2)\ng(3)\n"
    steps, text = induce(before, after, "python", MemorySandbox())
    assert [step.action for step in steps] == [pattern("f(1)", "g(1)"), pattern("f(3)", "g(3)")]
    assert text == after


def test_the_number_of_steps_is_bounded() -> None:
    before, after = "f(1)\nf(2)\nf(3)\n", "g(1)\nf(2)\ng(3)\n"
    steps, text = induce(before, after, "python", MemorySandbox(), max_steps=1)
    assert (len(steps), text) == (1, "g(1)\nf(2)\nf(3)\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [("x = 1\n", "x = 1\n"), ("x = 1\n", "x = 1"), ("x = 1\n", "x = 1  \n\n\n"), ("", ""), ("", "\n\n")],
)
def test_sides_that_differ_in_blanks_at_most_give_no_steps(before: str, after: str) -> None:
    assert induce(before, after, "python", MemorySandbox()) == ([], before)


@pytest.mark.parametrize(("before", "after"), [("x = 1\n", "x  =  1\n"), ("if a:\n  b\n", "if a:\n    b\n")])
def test_blanks_inside_a_line_are_not_chased(before: str, after: str) -> None:
    assert next_step(before, after, "python", MemorySandbox()) is None


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
    "letters that are several bytes": ("日本(語)\n𠮷 = 'é'\n", "日本(𠮷, 語)\n𠮷 = 'ü'\n", "python"),
    "separators of lines": ("x = 'a\u2028b\u0085c'\ny = f(x)\n", "x = 'a\u2028c'\ny = g(x)\n", "python"),
    "a byte order mark": ("\ufefff(a)\n", "\ufeffg(a)\n", "python"),
    "zero bytes": ("f('\x00')\n", "g('\x00')\n", "python"),
    "what reads as a variable": ("const x = $A(b);\n", "const x = $B(b);\n", "javascript"),
    "what reads as a list variable": ("f($$$A);\n", "g($$$A, $_);\n", "javascript"),
    "what reads as a variable of the rule": ("class $A { int $B; }\n", "class $A { int $C; }\n", "java"),
    "signs of regular expressions": ("# a.*(b)[c]\\d{2}^$|+?\nx\n", "# a.*(b)[c]\\d{2}\nx\n", "python"),
    "blanks in a comment": ("#  a \t b # - & ~\nx\n", "#  a \t c # - & ~\nx\n", "python"),
    "quotes": ('x = "\\"\'\\n"\n', 'x = "\'\\"\\n"\n', "python"),
    "a comment that suppresses": ("# ast-grep-ignore\nf(a)\n", "# ast-grep-ignore\ng(a)\n", "python"),
    "a text of the insertion that reads as a variable": ("def f():\n    a\n", "def f():\n    a\n    '$A'\n", "python"),
    "one hundred levels": ("f(" * 90 + ")" * 90, "f(" * 45 + "g(" + "f(" * 44 + ")" * 90, "python"),
    "far too deep": ("-" * 500 + "a\n", "-" * 500 + "b\n", "python"),
    "a long line": ("x = f(" + "a, " * 400 + "b)\n", "x = g(" + "a, " * 400 + "b)\n", "python"),
    "a long insertion": ("def f():\n    a()\n", "def f():\n    a()\n" + "    b('é')\n" * 3000, "python"),
    "a long comment": ("# a\n", "# " + "é" * 30_000 + "\n", "python"),
}


@pytest.mark.parametrize(("before", "after", "language"), ODD.values(), ids=ODD)
def test_odd_texts_neither_break_induction_nor_are_taken_for_done(before: str, after: str, language: Language) -> None:
    sandbox = MemorySandbox()
    steps, text = induce(before, after, language, sandbox)
    reached = before
    for step in steps:
        [result] = sandbox.apply_many(reached, language, [step.action])
        assert result.after == step.after
        reached = step.after
    assert reached == text
    # it ends only when all is done, or when nothing more can be done
    if not equality_or_none(text, after, language).is_verified:
        assert next_or_none(text, after, language) is None


def equality_or_none(text: str, wanted: str, language: Language) -> Level:
    try:
        return equality(text, wanted, language)
    except DataError:
        return Level.NONE


def next_or_none(text: str, wanted: str, language: Language) -> Step | None:
    try:
        return next_step(text, wanted, language, MemorySandbox())
    except DataError:
        return None


def test_a_text_that_cannot_be_parsed_ends_the_induction_but_is_an_error_of_a_single_step() -> None:
    deep, deeper = "-" * 500 + "a\n", "-" * 501 + "a\n"
    assert induce(deep, deeper, "python", MemorySandbox()) == ([], deep)
    with pytest.raises(DataError):
        next_step(deep, deeper, "python", MemorySandbox())


class BrokenSandbox:
    """A sandbox that never answers."""

    isolation = Isolation("none", "broken")

    def apply_many(self, source: str, language: Language, actions: Any) -> list[SandboxResult]:
        raise SandboxError("broken")

    def close(self) -> None:
        """Nothing is held."""


def test_a_sandbox_that_fails_is_not_taken_for_candidates_that_fail() -> None:
    with pytest.raises(SandboxError):
        induce("f(a)\n", "g(a)\n", "python", BrokenSandbox())


def actions_of(pairs: list[tuple[str, str, Language]]) -> list[list[Any]]:
    return [
        [ACTION.dump_python(step.action, mode="json") for step in induce(*pair, MemorySandbox())[0]] for pair in pairs
    ]


def test_the_same_example_gives_the_same_rules_in_every_process(sample_pairs: Pairs) -> None:
    pairs = sample_pairs(25, 3)
    here = actions_of(pairs)
    assert actions_of(pairs) == here
    program = (
        "import json, sys\n"
        "from graftline.actions.action import ACTION\n"
        "from graftline.rules.induce import induce\n"
        "from graftline.sandbox.memory import MemorySandbox\n"
        "print(json.dumps([[ACTION.dump_python(step.action, mode='json') for step in induce(*pair, MemorySandbox())[0]]"
        " for pair in json.load(sys.stdin)]))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(pairs),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        )
        assert json.loads(done.stdout) == here
