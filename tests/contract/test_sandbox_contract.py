"""What every sandbox answers, whichever implementation it is; and that two of them, and ast-grep itself, agree."""

import gzip
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generated_actions import directly, generated
from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, parse
from graftline.sandbox import (
    MemorySandboxConfig,
    ProcessSandboxConfig,
    Request,
    Sandbox,
    SandboxConfig,
    Verdict,
    WarmSandboxConfig,
    open_sandbox,
)
from graftline.sandbox.base import Match, SandboxResult

CONFIGS = {"warm": WarmSandboxConfig(workers=2), "process": ProcessSandboxConfig(), "memory": MemorySandboxConfig()}


@pytest.fixture(scope="module", params=sorted(CONFIGS))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = open_sandbox(CONFIGS[request.param])
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def all_of_them() -> Iterator[list[Sandbox]]:
    opened = [open_sandbox(config) for config in CONFIGS.values()]
    yield opened
    for one in opened:
        one.close()


def apply(sandbox: Sandbox, source: str, action: PatternAction | RuleAction, language: Language = "python") -> Any:
    [result] = sandbox.apply_many(source, language, [action])
    return result


def pattern(old: str, new: str, **more: Any) -> PatternAction:
    return PatternAction(pattern=old, rewrite=new, **more)


def rule(fix: str | dict[str, Any], /, **parts: Any) -> RuleAction:
    given = {name: parts.pop(name) for name in ("constraints", "transform", "utils") if name in parts}
    return RuleAction(rule=parts, fix=fix, **given)


def test_a_match_gives_the_new_text_and_where_it_was_made(sandbox: Sandbox) -> None:
    result = apply(sandbox, "x = f(1)\n", pattern("f($A)", "g($A)"))
    assert result == SandboxResult(Verdict.OK, "x = g(1)\n", sandbox.isolation, (Match(4, 8, "g(1)"),))


def test_no_match_gives_no_text(sandbox: Sandbox) -> None:
    result = apply(sandbox, "x = f(1)\n", pattern("h($A)", "g($A)"))
    assert result == SandboxResult(Verdict.NO_MATCH, None, sandbox.isolation)


REWRITES: dict[str, tuple[str, PatternAction | RuleAction, str]] = {
    "to the same text": ("f(1)\n", pattern("f($A)", "f($A)"), "f(1)\n"),
    "of left nested matches the outermost": ("a.b().c().b()\n", pattern("$A.b()", "$A.d()"), "a.b().c().d()\n"),
    "of neighbors that touch both": ("f(1)f(2)\n", rule("x", kind="argument_list"), "fxfx\n"),
    "carriage returns stay": (
        "x = f(1)\r\ny = f(\r\n    2)\r\n",
        pattern("f($A)", "g($A)"),
        "x = g(1)\r\ny = g(2)\r\n",
    ),
    "a list variable keeps its separators": (
        "f(1,  2 ,3)\nf()\n",
        pattern("f($$$A)", "g(0, $$$A)"),
        "g(0, 1,  2 ,3)\ng(0, )\n",
    ),
    "several lines take the indentation of the match": (
        "def outer():\n    if x:\n        f(1)\n",
        pattern("f($A)", "if $A:\n    g($A)\nelse:\n    h()"),
        "def outer():\n    if x:\n        if 1:\n            g(1)\n        else:\n            h()\n",
    ),
    "a captured block is moved to where its variable stands": (
        "def outer():\n    with a:\n        b(\n            1,\n        )\n",
        pattern("with a:\n    $A", "$A"),
        "def outer():\n    b(\n        1,\n    )\n",
    ),
    "a selector rewrites the node inside its context": (
        "g(timeout=1, x=timeout)\n",
        pattern("f(timeout=$A)", "timeout_s=$A", selector="keyword_argument"),
        "g(timeout_s=1, x=timeout)\n",
    ),
    "a rule may relate nodes, constrain and transform them": (
        "print('%s')\ndef f():\n    print(x)\n    print('%s and %s')\n",
        rule(
            "log($B)",
            pattern="print($A)",
            inside={"kind": "function_definition", "stopBy": "end"},
            constraints={"A": {"kind": "string"}},
            transform={"B": {"replace": {"source": "$A", "replace": "%s", "by": "{}"}}},
        ),
        "print('%s')\ndef f():\n    print(x)\n    log('{} and {}')\n",
    ),
    "a rule may use its own utilities": (
        "f(1, a)\n",
        rule("x", matches="number", utils={"number": {"kind": "integer"}}),
        "f(x, a)\n",
    ),
    "a fix may be an object with a template": ("f(1)\n", rule({"template": "g($A)"}, pattern="f($A)"), "g(1)\n"),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_match_is_rewritten(sandbox: Sandbox, name: str) -> None:
    source, action, after = REWRITES[name]
    result = apply(sandbox, source, action)
    assert (result.verdict, result.after) == (Verdict.OK, after)


LANGUAGES: list[tuple[Language, str, str]] = [
    ("python", "x = f(1)\n", "x = g(1)\n"),
    ("javascript", "const x = f(1);\n", "const x = g(1);\n"),
    ("typescript", "const x: A = f(1);\n", "const x: A = g(1);\n"),
    ("tsx", "const x = <a b={f(1)} />;\n", "const x = <a b={g(1)} />;\n"),
    ("java", "class A { int x = f(1); }\n", "class A { int x = g(1); }\n"),
]


@pytest.mark.parametrize(("language", "source", "after"), LANGUAGES)
def test_every_language_is_spoken(sandbox: Sandbox, language: Language, source: str, after: str) -> None:
    assert apply(sandbox, source, pattern("f($A)", "g($A)"), language).after == after


def test_a_dollar_before_a_digit_or_a_small_letter_is_text(sandbox: Sandbox) -> None:
    source, action = "s.replace(/(a)/, b);\n", pattern("s.replace($A, b)", "s.replace($A, '$1 $a $')")
    assert apply(sandbox, source, action, "javascript").after == "s.replace(/(a)/, '$1 $a $');\n"


INVALID = {
    "a variable that the pattern does not bind": pattern("f($A)", "g($B)"),
    "a selector that is no kind": pattern("f($A)", "g($A)", selector="no_such_kind"),
    "a pattern of blanks": pattern("  ", "x"),
    "a pattern of two nodes": pattern("f($A)\ng($A)", "x"),
    "a rule without a matcher": rule("x"),
    "an unknown key of a rule": rule("x", kind="call", no_such_key="x"),
    "an unknown kind": rule("x", kind="no_such_kind"),
    "a regular expression with a look-ahead": rule("x", kind="call", regex="(?=f)"),
    "an undefined utility": rule("x", matches="no_such_utility"),
    "a template that is no text": rule({"template": 5}, kind="call"),
    "an undefined list variable": rule("$$$B", pattern="f($A)"),
    "an undefined variable of a fix that captures nothing": rule("$_A", pattern="f($_A)"),
    "an undefined variable of a transformation": rule(
        "$B", pattern="f($A)", transform={"B": {"substring": {"source": "$C"}}}
    ),
    "transformations in a circle": rule(
        "$B",
        pattern="f($A)",
        transform={"B": {"substring": {"source": "$C"}}, "C": {"substring": {"source": "$B"}}},
    ),
    "a transformation that is none": rule("$B", pattern="f($A)", transform={"B": {"shout": "$A"}}),
    "a fix that expands to what is no rule": rule({"template": "", "expandEnd": {"no_such_key": ","}}, pattern="f($A)"),
    "a rule for nodes of any kind": rule("", regex="f"),
    "constraints that are no rules": rule("", pattern="f($A)", constraints={"A": "b"}),
    "a fix without a template": rule({}, kind="call"),
    "a transformation of a variable that captures nothing": rule(
        "$B", pattern="f($_A)", transform={"B": {"substring": {"source": "$_A"}}}
    ),
}


@pytest.mark.parametrize("action", INVALID.values(), ids=INVALID)
def test_an_action_that_ast_grep_refuses_is_a_result_with_its_reason(
    sandbox: Sandbox, action: PatternAction | RuleAction
) -> None:
    result = apply(sandbox, "x = f(1)\n", action)
    assert (result.verdict, result.after, result.matches) == (Verdict.ACTION_ERROR, None, ())
    assert result.error


def test_results_stand_in_the_order_of_the_actions(sandbox: Sandbox) -> None:
    actions = [pattern(f"f{number}($A)", f"g{number}($A)") for number in range(12)]
    source = "".join(f"f{number}(1)\n" for number in range(12))
    results = sandbox.apply_many(source, "python", actions)
    expected = [source.replace(f"f{number}(", f"g{number}(") for number in range(12)]
    assert [result.after for result in results] == expected


def test_one_invalid_action_is_the_only_one_blamed(sandbox: Sandbox) -> None:
    actions = [pattern("f($A)", f"g{number}($A)") for number in range(7)]
    actions[4] = pattern("f($A)", "g4($B)")
    results = sandbox.apply_many("f(1)\n", "python", actions)
    good = [(Verdict.OK, f"g{number}(1)\n") for number in range(7)]
    assert [(result.verdict, result.after) for result in results] == [
        *good[:4],
        (Verdict.ACTION_ERROR, None),
        *good[5:],
    ]


def test_every_action_invalid_blames_every_one(sandbox: Sandbox) -> None:
    results = sandbox.apply_many("f(1)\n", "python", [pattern("f($A)", "$B"), pattern("f($A)", "$C")])
    assert [result.verdict for result in results] == [Verdict.ACTION_ERROR, Verdict.ACTION_ERROR]


def test_no_actions_give_no_results(sandbox: Sandbox) -> None:
    assert sandbox.apply_many("f(1)\n", "python", []) == []


def test_an_empty_source_matches_nothing(sandbox: Sandbox) -> None:
    assert apply(sandbox, "", pattern("f($A)", "g($A)")).verdict is Verdict.NO_MATCH


def test_of_nested_matches_the_outermost_wins(sandbox: Sandbox) -> None:
    result = apply(sandbox, "f(f(f(1)))\nf(2)\n", pattern("f($A)", "g($A)"))
    # f(f(f(1))) is 10 characters, the newline the eleventh
    assert result.matches == (Match(0, 10, "g(f(f(1)))"), Match(11, 15, "g(2)"))
    assert result.after == "g(f(f(1)))\ng(2)\n"


def test_offsets_count_characters_not_bytes(sandbox: Sandbox) -> None:
    source = "é = '日本', f(ü)\n𠮷 = f(𠮿)\n"
    result = apply(sandbox, source, pattern("f($A)", "größe($A)"))
    assert result.after == "é = '日本', größe(ü)\n𠮷 = größe(𠮿)\n"
    assert [source[match.start : match.end] for match in result.matches] == ["f(ü)", "f(𠮿)"]


@pytest.mark.parametrize("separator", ["\u0085", "\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x1e", "\x7f"])
def test_characters_that_some_read_as_line_ends_are_plain_text(sandbox: Sandbox, separator: str) -> None:
    result = apply(sandbox, f"x = f('a{separator}b')\n", pattern("f($A)", f"g('{separator}', $A)"))
    assert (result.verdict, result.after) == (Verdict.OK, f"x = g('{separator}', 'a{separator}b')\n")


def test_an_indentation_more_than_512_bytes_away_counts_as_none(sandbox: Sandbox) -> None:
    # newline, 4 blanks, "x = '" and "' + " are 14 bytes; with 498 more the newline is the first of 512
    near, far = ("if x:\n    x = '" + "a" * length + "' + f(1)\n" for length in (498, 499))
    assert apply(sandbox, near, pattern("f($A)", "(a +\nb)")).after == near.replace("f(1)", "(a +\n    b)")
    assert apply(sandbox, far, pattern("f($A)", "(a +\nb)")).after == far.replace("f(1)", "(a +\nb)")


def test_a_large_source_and_a_large_action_travel_whole(sandbox: Sandbox) -> None:
    source, rewrite = "x = 'é'\n" * 20_000 + "f(1)\n", "\N{GRINNING FACE}" * 16_384
    # a line of 8 characters
    expected = (Match(160_000, 160_004, rewrite),)
    assert apply(sandbox, source, pattern("f($A)", rewrite)).matches == expected


def test_strictness_is_respected(sandbox: Sandbox) -> None:
    source = "f(1, )\n"
    assert apply(sandbox, source, pattern("f($A)", "g($A)", strictness="cst")).verdict is Verdict.NO_MATCH
    assert apply(sandbox, source, pattern("f($A)", "g($A)", strictness="smart")).after == "g(1)\n"


def test_a_source_with_a_lone_surrogate_is_a_result(sandbox: Sandbox) -> None:
    result = apply(sandbox, "x = '\ud800'\n", pattern("f($A)", "g($A)"))
    assert (result.verdict, result.error) == (Verdict.ACTION_ERROR, apply(sandbox, "\udfff", pattern("a", "b")).error)


def test_the_same_question_has_the_same_answer(sandbox: Sandbox) -> None:
    actions = [pattern("f($$$A)", "g($$$A)"), pattern("$A + $B", "$B + $A"), pattern("f($A)", "$B")]
    source = "x = f(1 + 2, f(3))\n"
    assert sandbox.apply_many(source, "python", actions) == sandbox.apply_many(source, "python", actions)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_closing_twice_does_nothing_the_second_time(config: SandboxConfig) -> None:
    opened = open_sandbox(config)
    assert apply(opened, "f(1)\n", pattern("f($A)", "g($A)")).after == "g(1)\n"
    opened.close()
    opened.close()


# ---- generated actions


def test_on_generated_actions_the_sandboxes_and_ast_grep_itself_agree(
    checkout: Path, all_of_them: list[Sandbox]
) -> None:
    chance = random.Random(20)
    with gzip.open(checkout / "data" / "samples" / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if len(row["pre"]) < 1500]
    outcomes: Counter[Verdict] = Counter()
    requests = []
    for row in chance.sample(rows, 20):
        source, language = row["pre"], row["language"]
        if chance.random() < 0.2:
            source = source.replace("\n", "\r\n")
        tree = parse(source, language)
        actions = [action for _ in range(5) if (action := generated(tree, chance)) is not None]
        requests.append(Request(source, language, tuple(actions)))
    answers = [[result for results in box.apply_each(requests) for result in results] for box in all_of_them]
    asked = [(request, action) for request in requests for action in request.actions]
    for (request, action), *results in zip(asked, *answers, strict=True):
        outcomes[results[0].verdict] += 1
        assert len({(result.verdict, result.after, result.matches) for result in results}) == 1, action
        assert directly(request.source, request.language, action) == results[0].after, action
    assert set(outcomes) == {Verdict.OK, Verdict.NO_MATCH, Verdict.ACTION_ERROR}
    assert outcomes[Verdict.OK] > 35


def test_requests_are_answered_in_their_order(sandbox: Sandbox) -> None:
    requests = [
        Request(f"f({number})\n", "python", tuple(pattern("f($A)", f"g{way}($A)") for way in range(number % 4)))
        for number in range(45)
    ]
    expected = [[f"g{way}({number})\n" for way in range(number % 4)] for number in range(45)]
    assert [[result.after for result in results] for results in sandbox.apply_each(requests)] == expected
    assert sandbox.apply_each([]) == []


def test_the_rule_form_and_the_pattern_form_mean_the_same(sandbox: Sandbox) -> None:
    source = "x = f(1, f(2))\n"
    as_pattern, as_rule = pattern("f($$$A)", "g($$$A)"), rule("g($$$A)", pattern="f($$$A)")
    assert apply(sandbox, source, as_pattern) == apply(sandbox, source, as_rule)
