"""Rule files: what is written is read back, and taken by ast-grep itself."""

import json
import subprocess
from pathlib import Path

import pytest

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import executable
from graftline.codemod.canonical import canonicalize, key_of, list_required_words
from graftline.codemod.learn import ast_grep_project, check_examples
from graftline.codemod.rule_file import Example, FileRule, assign_ids, format_rules, read_rules, slug
from graftline.core.errors import DataError
from graftline.sandbox.actions.memory import MemorySandbox

SUM = FileRule(
    PatternAction(pattern="sum([$A for $B in $C])", rewrite="sum($A for $B in $C)"),
    "python",
    examples=(Example(before="x = sum([a for a in b])\n", after="x = sum(a for a in b)\n", source="m.py"),),
    stays=("sum(rows)\n",),
    facts={"general": True, "support": {"commits": 2}},
)
AWKWARD = FileRule(
    RuleAction(
        rule={"pattern": "$A", "kind": "function_definition", "has": {"field": "name", "regex": "^no: \\w+$"}},
        fix={"template": "$A\n\n  # é\t\x1b\n", "expandEnd": {"regex": ","}},
        transform={"N": {"replace": {"source": "$A", "replace": "a", "by": "---"}}},
    ),
    "python",
    examples=(Example(before="\r\n x\n---\n", after=" "),),
)


def scan(folder: Path, rules: str, source: str) -> subprocess.CompletedProcess[str]:
    (folder / "rules.yml").write_text(rules, "utf-8")
    (folder / "m.py").write_text(source, "utf-8")
    command = [str(executable()), "scan", "--rule", "rules.yml", "--update-all", "m.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_what_is_written_is_read_back_as_the_same_rules() -> None:
    rules = read_rules(format_rules([SUM, AWKWARD, SUM], ["a heading"]), "rules.yml")
    assert [rule_of(rule.action) for rule in rules] == [rule_of(rule.action) for rule in (SUM, AWKWARD, SUM)]
    assert [rule.examples for rule in rules] == [SUM.examples, AWKWARD.examples, SUM.examples]
    assert (rules[0].stays, rules[0].facts) == (SUM.stays, SUM.facts)
    assert [rule.id for rule in rules] == ["sum-for-in", rules[1].id, "sum-for-in-2"]


def test_what_is_read_is_written_as_the_same_text() -> None:
    text = format_rules([SUM, AWKWARD])
    assert format_rules(read_rules(text, "rules.yml")) == text


def test_ast_grep_takes_what_is_written_and_makes_the_change(tmp_path: Path) -> None:
    done = scan(tmp_path, format_rules([SUM, AWKWARD], ["by hand"]), "x = sum([a for a in b])\n")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "m.py").read_text("utf-8") == "x = sum(a for a in b)\n"


def test_ast_grep_reads_every_text_as_it_was(tmp_path: Path) -> None:
    texts = (
        "\ta\n\tb\n",
        "  a\n b",
        "\n\na\n\n",
        "a \n",
        "\r\n",
        "\x1b",
        "\x85\u2028\ufeff",
        "yes",
        "1e3",
        "- a",
        "🎉: #",
    )
    rules = [FileRule(PatternAction(pattern="x", rewrite=text), "python", facts={"texts": [text]}) for text in texts]
    (tmp_path / "rules.yml").write_text(format_rules(rules), "utf-8")
    (tmp_path / "m.py").write_text("x\n", "utf-8")
    command = [str(executable()), "scan", "--rule", "rules.yml", "--json", "--include-metadata", "m.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    found = {one["ruleId"]: one for one in json.loads(done.stdout)}
    read = [found[rule.id] for rule in assign_ids(rules)]
    assert [(one["replacement"], one["metadata"]["texts"]) for one in read] == [(text, [text]) for text in texts]


def test_ast_grep_tests_the_examples_that_are_exported(tmp_path: Path) -> None:
    for name, text in ast_grep_project([SUM, SUM]).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    command = [str(executable()), "test", "--skip-snapshot-tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "2 passed; 0 failed" in done.stdout) == (0, True), done.stdout


def test_examples_are_tried() -> None:
    wrong = Example(before="sum([a for a in b])\n", after="max(a for a in b)\n")
    rule = FileRule(SUM.action, "python", "r", (*SUM.examples, wrong), ("sum(rows)\n", "sum([a for a in b])\n"))
    outcomes = list(check_examples(rule, MemorySandbox()))
    assert [(one.kind, one.number, one.passed) for one in outcomes] == [
        ("example", 1, True),
        ("example", 2, False),
        ("stays", 1, True),
        ("stays", 2, False),
    ]
    assert outcomes[1].detail == "ok: line 1 is 'sum(a for a in b)', expected 'max(a for a in b)'"


@pytest.mark.parametrize(
    ("pattern", "rewrite", "name"),
    [
        ("assertEquals($A, $B)", "assertEqual($A, $B)", "assertequals-to-assertequal"),
        ("foo($A, debug=True)", "foo($A)", "drop-debug-true"),
        ("foo($A)", "", "remove-foo"),
        ("foo($A)", "foo($A, debug)", "foo-with-debug"),
        ("$A == $B", "$B == $A", "rule"),
    ],
)
def test_a_rule_is_named_after_the_words_it_changes(pattern: str, rewrite: str, name: str) -> None:
    assert slug(PatternAction(pattern=pattern, rewrite=rewrite)) == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "r.yml: holds no rule; expected ast-grep rules with `rule` and `fix`"),
        ("---\n# nothing\n---\n", "r.yml: holds no rule; expected ast-grep rules with `rule` and `fix`"),
        ("rule: {pattern: a}\nfix: b\n", "r.yml: names no 'language'; add one, such as `language: python`"),
        ("language: python\nrule: {pattern: a}\n", "r.yml: has no 'fix'; an action needs a rule and its fix"),
        (
            "language: python\nrule: {pattern: a}\nfix: b\nmetadata: {examples: [{before: a}]}\n",
            "r.yml: 'metadata' has examples of another form; expected `examples` with `before` and `after`,"
            " and `stays` with texts",
        ),
        (
            "language: python\nrule: {pattern: a}\nfix: b\n---\nlanguage: python\nfix: b\n",
            "r.yml: rule 2: has no 'rule'; an action needs a rule and its fix",
        ),
        ("a: &b 1\n", "r.yml: uses a YAML anchor or alias (&name, *name); write the value out"),
    ],
)
def test_what_is_no_rule_file_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_rules(text, "r.yml")
    assert str(caught.value) == said


def test_actions_are_the_same_but_for_names_and_order() -> None:
    one = PatternAction(pattern="f($X, $$$REST)", rewrite="g($$$REST, $X)")
    other = PatternAction(pattern="f($A, $$$B)", rewrite="g($$$B, $A)")
    assert key_of(one) == key_of(other)
    assert canonicalize(one) == other


def test_constraints_and_transforms_are_renamed_with_their_variables() -> None:
    action = RuleAction(
        rule={"pattern": "f($NAME)"},
        fix="g($NEW)",
        constraints={"NAME": {"regex": "^NAME$"}},
        transform={"NEW": {"replace": {"source": "$NAME", "replace": "a", "by": "b"}}},
    )
    assert rule_of(canonicalize(action)) == {
        "rule": {"pattern": "f($A)"},
        "fix": "g($B)",
        "constraints": {"A": {"regex": "^NAME$"}},
        "transform": {"B": {"replace": {"by": "b", "replace": "a", "source": "$A"}}},
    }


def test_words_that_are_needed_are_those_of_the_pattern() -> None:
    assert list_required_words(PatternAction(pattern="foo.bar($A, $_, 1)", rewrite="x"), "python") == {
        "foo",
        "bar",
        "1",
    }
    by_name = RuleAction(rule={"kind": "function_definition", "has": {"field": "name", "regex": "^foo$"}}, fix="")
    assert list_required_words(by_name, "python") == {"foo"}
