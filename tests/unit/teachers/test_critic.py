"""The critic: what it finds, which line it names, which hints it gives, and what it keeps to itself."""

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.core.errors import SandboxError
from graftline.rollouts.teachers.critic import Criticism, Finding, criticize
from graftline.rollouts.teachers.hints import wider
from graftline.sandbox import Isolation, SandboxResult, Verdict
from graftline.sandbox.actions.memory import MemorySandbox

BEFORE = """\
class A:
    def f(self, x=1):
        log(x)
        return g(x, key=2)


def h():
    return g(1, key=2) == 'a'
"""
WANTED = BEFORE.replace("g(x, key=2)", "g(x, name=2)")


def on(pattern: str, rewrite: str = "") -> PatternAction:
    return PatternAction(pattern=pattern, rewrite=rewrite)


def criticism(action: PatternAction | RuleAction, target: str | None = WANTED) -> Criticism:
    return criticize(action, BEFORE, "python", MemorySandbox(), target)


def test_a_right_action_is_right() -> None:
    action = on("g(x, key=$A)", "g(x, name=$A)")
    assert criticism(action) == Criticism(Finding.RIGHT, "It makes the text that is asked for (1 match).")


def test_an_action_that_is_too_broad_is_told_the_line_that_must_stay() -> None:
    action = on("g($X, key=$A)", "g($X, name=$A)")
    feedback = "It also rewrites line 8, `return g(1, key=2) == 'a'`, which must stay as it is. 1 match was right."
    assert criticism(action) == Criticism(Finding.TOO_BROAD, feedback, 8)


def test_a_right_place_with_a_wrong_text_is_told_apart() -> None:
    feedback = (
        "On line 4, `return g(x, key=2)`, something has to change, but not `g(x, key=2)` into `g(x, nam=2)`."
        " The rewrite leaves `key` out: repeat in it what has to stay."
    )
    found = criticism(on("g(x, key=2)", "g(x, nam=2)"))
    assert found == Criticism(Finding.WRONG_TEXT, feedback, 4)


def test_what_is_missed_is_not_named() -> None:
    found = criticism(on("g(x, key=2)", "g(x, name=2)"), WANTED.replace("log(x)", "trace(x)"))
    feedback = (
        "All that it changes is wanted (1 match), but more has to change."
        " If places like it are meant, use `g($A, key=2)`: it also matches `g(1, key=2)` on line 8."
    )
    assert found == Criticism(Finding.INCOMPLETE, feedback)


def test_without_a_wanted_text_the_places_are_all_that_is_said() -> None:
    found = criticism(on("g($$$X)", "k($$$X)"), target=None)
    assert found == Criticism(Finding.APPLIED, "It changes 2 places, on lines 4 and 8.")


def test_an_action_that_writes_what_stands_there_is_told_so() -> None:
    feedback = "It matches 1 place, the first on line 3, but writes what stands there already"
    action = on("log($X)", "log($X)")
    more = {
        None: "",
        WANTED: ", and that is right as it is: other places have to change",
        BEFORE.replace("log(", "trace("): ", where something else has to stand",
    }
    for wanted, said in more.items():
        assert criticism(action, wanted) == Criticism(Finding.NO_CHANGE, f"{feedback}{said}.", 3)


def test_a_sign_at_the_end_of_one_side_alone_is_named() -> None:
    action = on("say($X);", "tell($X)")
    found = criticize(action, "class A { void f() { say(x); } }\n", "java", MemorySandbox())
    assert found.feedback == (
        "After it the text is no valid java: on line 1 it writes `tell(x)`. The pattern ends with `;`, and the rewrite does"
        " not."
    )


def test_a_text_that_no_longer_parses_is_broken() -> None:
    feedback = "After it the text is no valid python: on line 4 it writes `g((x, key=2)`."
    action = on("g(x, key=2)", "g((x, key=2)")
    assert [criticism(action, wanted) for wanted in (None, WANTED)] == [Criticism(Finding.BROKEN, feedback, 4)] * 2


def test_dots_that_are_written_are_said_to_be_no_metavariable() -> None:
    feedback = (
        "After it the text is no valid python: on line 4 it writes `g(...`."
        " `...` is written as it stands: use a metavariable of the pattern."
    )
    action = on("g(x, key=2)", "g(...")
    assert criticism(action) == Criticism(Finding.BROKEN, feedback, 4)


def test_braces_round_a_block_of_python_are_said_to_be_none() -> None:
    found = criticism(on("log($X)", "if ($X) { log($X) }"))
    assert found.feedback == (
        "After it the text is no valid python: on line 3 it writes `if (x) { log(x) }`. Python has no braces round"
        " blocks: end the first line with a colon, and indent the next by four blanks."
    )


def test_a_name_that_became_another_is_not_said_to_be_missing() -> None:
    before = "self.assertEquals(a)\n"
    action = on("self.assertEquals($A)", "assertEqual($A)")
    found = criticize(action, before, "python", MemorySandbox(), "self.assertEqual(a)\n")
    assert found.feedback.endswith(" The rewrite leaves `self` out: repeat in it what has to stay.")


def test_what_is_wanted_is_right_though_it_does_not_parse() -> None:
    action = on("log(x)", "log((x)")
    assert criticism(action, BEFORE.replace("log(x)", "log((x)")).finding == Finding.RIGHT


HINTS = {
    "a word that is not there": (on("lod($X)"), "`lod` is not in the text. Did you mean `log`, on line 3?"),
    "too few arguments": (
        on("g($X)"),
        "Use `g($$$X)`: it matches `g(x, key=2)` on line 4 ($A stands for one node, $$$A for any number).",
    ),
    "the same variable twice": (
        on("$A == $A"),
        "Use `$A_0 == $A_1`: it matches `g(1, key=2) == 'a'` on line 8"
        " (a metavariable that stands twice needs the same code twice).",
    ),
    "other arguments": (
        on("g(a, $B, c)"),
        "Use `g($$$ARGS)`: it matches `g(x, key=2)` on line 4 (the arguments are others).",
    ),
    "dots for any number of nodes": (
        on("g(...) == 'a'"),
        "Use `g($$$ARGS) == 'a'`: it matches `g(1, key=2) == 'a'` on line 8"
        " (`...` stands for itself, $$$ARGS for any number of nodes).",
    ),
    "other quotes": (
        on('g(1, key=2) == "a"'),
        "Use `g(1, key=2) == 'a'`: it matches `g(1, key=2) == 'a'` on line 8 (the quotes are others).",
    ),
    "a piece read as something else": (
        on("key=$V"),
        "The nearest code is `key=2` on line 4, of kind `keyword_argument`. The pattern is read as `assignment`."
        " To match that, use the pattern `f(key=$V)` with the selector `keyword_argument`.",
    ),
    "a kind that the text has not": (
        RuleAction(rule={"kind": "lambda"}, fix=""),
        "No node of the text is of kind `lambda`; the commonest are `identifier`, `integer`, `block`, `call`,"
        " `argument_list` and `function_definition`.",
    ),
    "a condition that is too near": (
        RuleAction(rule={"pattern": "g($$$X)", "inside": {"kind": "class_definition"}}, fix=""),
        "`pattern` alone would match `g(x, key=2)` on line 4; `inside` rules it out."
        " `inside` and `has` look one level far unless `stopBy: end` is given.",
    ),
}


@pytest.mark.parametrize("name", HINTS)
def test_an_empty_match_is_explained(name: str) -> None:
    action, hint = HINTS[name]
    assert criticism(action) == Criticism(Finding.NO_MATCH, f"Nothing in the text matches. {hint}")


WIDER: dict[str, tuple[str, Language, list[str]]] = {
    "arguments of a call": ("f(x, 1)", "python", ["f($A, 1)", "f(x, $A)", "f($A, $B)", "f($$$ARGS)"]),
    "what is free stays free": ("f($A, $$$B, g(1))", "javascript", ["f($A, $$$B, $C)", "f($$$ARGS)"]),
    "any number is free already": ("f($$$A)", "python", []),
    "operands": ("x == None", "python", ["$A == None", "x == $A", "$A == $B"]),
    "a constructor": ("new Buffer(s)", "java", ["new Buffer($A)", "new Buffer($$$ARGS)"]),
    "several statements": ("a; b", "javascript", []),
    "no code": ("\ud800", "python", []),
    "nothing": ("", "python", []),
}


@pytest.mark.parametrize("name", WIDER)
def test_parts_of_a_pattern_are_left_free(name: str) -> None:
    pattern, language, patterns = WIDER[name]
    assert wider(pattern, language) == patterns


REFUSED = {
    "several statements": (
        on("log($X)\nreturn $Y"),
        "Please check the pattern source `log($X) return $Y`. A pattern has to be one node. These are 2: use one of them"
        " alone, `log($X)`, of which every match is rewritten.",
    ),
    "several nodes": (
        on("g(x, key=2)) x"),
        "A pattern has to be one node. The nearest one is `g(x, key=2)` on line 4, of kind `call`. Match all of it, or one"
        " part at a time.",
    ),
    "a metavariable in small letters": (
        on("$self.log($X)"),
        "`$self` is no metavariable: their names have capital letters, digits and `_` alone.",
    ),
    "no node": (on(" "), "A pattern cannot be empty: write the code that is to be matched."),
    "an unknown kind": (
        RuleAction(rule={"kind": "function_def"}, fix=""),
        "No node of the text is of kind `function_def`; kinds like it are `function_definition`.",
    ),
    "an unbound variable": (on("log($X)", "log($Y)"), "`fix` uses $Y, but the pattern has $X."),
    "small letters in a metavariable": (
        on("log($X)", "log($Xs, $NewX)"),
        "`$Xs` is no metavariable: their names have capital letters, digits and `_` alone.",
    ),
    "a metavariable alone": (
        on("$A", "f($A)"),
        "A metavariable alone matches anything: write the code that stands round it, too.",
    ),
    "half a piece of code": (
        on("return g(x, key=2) =="),
        "The pattern is no whole piece of code: write an expression or a statement.",
    ),
    "any node at all": (
        RuleAction(rule={"regex": "x"}, fix=""),
        "Add `pattern` or `kind`, so that it is known which nodes are meant.",
    ),
    "a bad regular expression": (
        RuleAction(rule={"kind": "call", "regex": "("}, fix=""),
        "A `regex` is one of Rust: escape `( ) [ ] { } . * + ? | ^ $` and `\\`, and use no look-around.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_action_is_explained(name: str) -> None:
    action, hint = REFUSED[name]
    found = criticism(action)
    assert (found.finding, found.line) == (Finding.INVALID, None)
    assert found.feedback.startswith("ast-grep refuses it: ")
    assert found.feedback.endswith(hint)


def test_a_piece_of_a_method_chain_is_led_to_the_whole() -> None:
    action = on(".option('--no-x', $$$REST)")
    found = criticize(action, "cmd.option('--no-x', 1, 2);\n", "typescript", MemorySandbox())
    hint = "The nearest one is `cmd.option('--no-x', 1, 2)` on line 1, of kind `call_expression`. Match all of it,"
    assert hint in found.feedback


class OneVerdictSandbox:
    """A sandbox in which everything ends alike."""

    isolation = Isolation("none", "one verdict")

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict

    def apply_many(self, source: str, language: str, actions: list[PatternAction]) -> list[SandboxResult]:
        return [SandboxResult(self._verdict, None, self.isolation) for _ in actions]

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("verdict", [Verdict.WALL_TIMEOUT, Verdict.RUNNER_ERROR, Verdict.NEEDS_CLI])
def test_a_sandbox_that_cannot_answer_is_no_criticism(verdict: Verdict) -> None:
    with pytest.raises(SandboxError):
        criticize(on("x", "y"), BEFORE, "python", OneVerdictSandbox(verdict), WANTED)


@pytest.mark.parametrize(
    "verdict", [Verdict.CPU_TIMEOUT, Verdict.OUT_OF_MEMORY, Verdict.OUTPUT_FLOOD, Verdict.CRASH, Verdict.VIOLATION]
)
def test_an_action_that_was_stopped_is_told_so(verdict: Verdict) -> None:
    found = criticize(on("x", "y"), BEFORE, "python", OneVerdictSandbox(verdict), WANTED)
    what = verdict.replace("_", " ")
    assert found == Criticism(Finding.FAILED, f"It was stopped ({what}): make it match less, or write less.")
