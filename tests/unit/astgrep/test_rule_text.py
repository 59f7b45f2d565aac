"""Rule files: which become actions, which are refused and why, and that ast-grep reads them as we do."""

import json
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from graftline.astgrep.action import MAX_RULE, RuleAction
from graftline.astgrep.binding import executable
from graftline.astgrep.rule_text import rule_action
from graftline.core.errors import DataError

BASE = "rule:\n  pattern: f($A)\nfix: g($A)\n"
ACTION = RuleAction(rule={"pattern": "f($A)"}, fix="g($A)")


def replace(rule: str, folder: Path, source: str = "foo\n") -> list[str | None] | None:
    """Return what ast-grep replaces in `source` by a rule file; None where it refuses the file."""
    (folder / "rule.yml").write_text(rule, "utf-8", newline="")
    (folder / "sgconfig.yml").write_text("ruleDirs: []\n")
    done = subprocess.run(
        [executable(), "scan", "--config", "sgconfig.yml", "--rule", "rule.yml", "--stdin", "--json=stream"],
        input=source.encode(),
        capture_output=True,
        cwd=folder,
        timeout=60,
    )
    if done.returncode not in (0, 1):
        return None
    return [json.loads(line).get("replacement") for line in done.stdout.decode().split("\n") if line]


def test_a_rule_file_becomes_an_action_and_names_its_language() -> None:
    text = """
id: no-foo  # and so on
language: Python
severity: warning
message: do not foo
note: |
  at all
url: https://example.com
metadata: {since: 2020-01-01, weight: 1.50, tags: [~, yes]}
labels: {A: {style: primary}}
rule:
  any:
    - pattern: foo($A)
    - kind: call
      has: {field: function, regex: ^foo, stopBy: end}
      nthChild: {position: 2, reverse: true}
constraints:
  A: {regex: "^[a-z]"}
transform:
  B: {substring: {source: $A, startChar: 1, endChar: -1}}
  C: replace($A, replace=x, by=y)
utils:
  is-call: {kind: call}
fix:
  template: |-
    bar(
      $B)
  expandEnd: {regex: ','}
"""
    assert rule_action(text) == (
        RuleAction(
            rule={
                "any": [
                    {"pattern": "foo($A)"},
                    {
                        "kind": "call",
                        "has": {"field": "function", "regex": "^foo", "stopBy": "end"},
                        "nthChild": {"position": 2, "reverse": True},
                    },
                ]
            },
            constraints={"A": {"regex": "^[a-z]"}},
            transform={
                "B": {"substring": {"source": "$A", "startChar": 1, "endChar": -1}},
                "C": "replace($A, replace=x, by=y)",
            },
            utils={"is-call": {"kind": "call"}},
            fix={"template": "bar(\n  $B)", "expandEnd": {"regex": ","}},
        ),
        "python",
    )


@pytest.mark.parametrize(
    ("line", "language"),
    [
        ("", None),
        ("language: python", "python"),
        ("language: PY", "python"),
        ("language: js", "javascript"),
        ("language: Jsx", "javascript"),
        ("language: JavaScript", "javascript"),
        ("language: 'ts'", "typescript"),
        ("language: Tsx", "tsx"),
        ("language: Java", "java"),
    ],
)
def test_a_language_has_the_names_that_ast_grep_knows(line: str, language: str | None) -> None:
    assert rule_action(BASE + line) == (ACTION, language)


@pytest.mark.parametrize(
    "more",
    [
        "constraints: ~",
        "utils:",
        "id: ~",
        "severity: hint",
        "severity: 'error'",
        "metadata: {rule: {files: [a]}}",
        "# severity: off",
        "...",
    ],
)
def test_what_means_nothing_for_a_rewrite_is_left_out(more: str) -> None:
    assert rule_action(BASE + more) == (ACTION, None)


def test_a_byte_order_mark_and_windows_line_ends_change_nothing() -> None:
    assert rule_action("\ufeff---\r\n" + BASE.replace("\n", "\r\n")) == (ACTION, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a mapping"),
        ("# nothing\n", "is not a mapping"),
        ("[]", "is not a mapping"),
        ("rule", "is not a mapping"),
        ("fix: x", "has no 'rule'"),
        ("rule: {kind: call}", "has no 'fix'"),
        ("rule: {kind: call}\nfix: ~", "has no 'fix'"),
        ("rule: ~\nfix: x", "has no 'rule'"),
        ("rule: [x]\nfix: x", "rule: Input should be a valid dictionary"),
        ("rule: x\nfix: x", "rule: Input should be a valid dictionary"),
        (BASE + "utils: [x]", "utils: Input should be a valid dictionary"),
        (BASE + "files: ['*.py']", "'files' has no place in an action"),
        (BASE + "ignores: []", "'ignores' has no place in an action"),
        (BASE + "rewriters: []", "'rewriters' has no place in an action"),
        (BASE + "pattern: x", "unknown key 'pattern'; known here: language, rule, fix"),
        (BASE + "severity: off", "turns the rule off"),
        (BASE + "severity: 'off'", "turns the rule off"),
        (BASE + "severity: Off", "expected one of hint, info, warning, error"),
        (BASE + "severity: [off]", "expected one of hint, info, warning, error"),
        (BASE + "language: kotlin", "expected one of python, javascript, typescript, tsx, java, py"),
        (BASE + "language: ~", "expected one of python"),
        (BASE + "language: [python]", "expected one of python"),
        ("rule: {kind: call}\nfix: [x]", "'fix' is a list"),
        ("rule: {kind: call}\nfix: [{template: x}, {template: y}]", "'fix' is a list"),
        ("rule: {kind: call}\nfix: {expandEnd: {regex: ','}}", "'fix' has no 'template'"),
        ("rule: {kind: call}\nfix: {template: {}}", "'fix' has no 'template'"),
        ("rule: {kind: call}\nfix: {template: x, expand: {}}", "'fix' has an unknown key 'expand'"),
        ("rule: {kind: call}\nfix: 5", "'5' is not read as a text; put it in quotes"),
        ("rule: {kind: call, has: }\nfix: x", "line 1: 'has': has no value"),
        ("rule: {nthChild: 1.0}\nfix: x", "'1.0' is not read as a text"),
        ("rule: {nthChild: 010}\nfix: x", "'010' is not read as a text"),
        ("rule: {nthChild: {reverse: True}}\nfix: x", "'True' is not read as a text"),
        (BASE + "---\n", "found another document"),
        (BASE + "---\n" + BASE, "found another document"),
        (BASE + "fix: h($A)", 'duplicate key "fix"'),
        (BASE + "metadata: {a: 1, a: 1}", 'duplicate key "a"'),
        ("rule: &r {kind: call}\nfix: x", "anchor or alias"),
        ("a: &a [1]\nb: [*a, *a]", "anchor or alias"),
        ("rule: {<<: {kind: call}}\nfix: x", "merges another mapping"),
        (BASE + "<<: {utils: {}}", "merges another mapping"),
        ("rule: {pattern: !!str x}\nfix: x", "uses a YAML tag"),
        ("rule: {pattern: !x y}\nfix: x", "uses a YAML tag"),
        ("rule: !!bool x\nfix: x", "uses a YAML tag"),
        ("rule: !!float\nfix: x", "uses a YAML tag"),
        ("rule: {[{a: b}]: x}\nfix: x", "not valid YAML"),
        ("rule: !!set {a}\nfix: x", "uses a YAML tag"),
        (BASE + "metadata: !!python/object:os.system {}", "uses a YAML tag"),
        ("rule: {1: x}\nfix: x", "has a key that is no text"),
        ("rule: {~: x}\nfix: x", "has a key that is no text"),
        ("rule: {[a]: x}\nfix: x", "has a key that is no text"),
        ("rule: {pattern: a: b}\nfix: x", "not valid YAML"),
        ("rule: {pattern: x", "not valid YAML"),
        ("\tx: y", "not valid YAML"),
        ("rule: {pattern: =}\nfix: x", "not valid YAML"),
        ("%YAML 1.1\n---\n" + BASE, "another version of YAML than 1.2"),
        ('rule: {pattern: "\\ud83d\\ude00"}\nfix: x', "half of a surrogate pair"),
        ('rule: {"\\ud83d": x}\nfix: x', "half of a surrogate pair"),
        ("rule: {" + "k" * 1000 + ": {1: x}}\nfix: x", "has a key that is no text"),
        ("rule: {pattern: x}\nfix: \ud800", "not valid YAML"),
        ("rule: {pattern: x}\nfix: \0", "not valid YAML"),
        ("rule: {pattern: x}\nfix: a\u2028b", "write it as an escape"),
        ("rule: {pattern: x}\nfix: a\x85b", "write it as an escape"),
        ("rule: " + "{a: " * 100 + "}" * 100, "nested deeper than 64 levels"),
        ("rule: " + "[" * 60_000, "nested deeper than 64 levels"),
        ("x" * (MAX_RULE + 1), f"at most {MAX_RULE} are read"),
        # each takes two characters as JSON
        ("rule: {pattern: '" + "\\" * 40_000 + "'}\nfix: x", f"at most {MAX_RULE} are accepted"),
    ],
)
def test_what_is_no_plain_rule_with_one_fix_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DataError) as caught:
        rule_action(text, "a.yml")
    assert str(caught.value).startswith("a.yml: ")
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 600


SCALARS = """
yes no on off y 1e3 1E3 .5e3 0x10 0X10 0o17 0b11 010 1_000 +1 -1 1. 0.5 12:30 2020-01-01 2001-12-14t21:59:43.10-05:00
~ null Null nULL true TRUE tRUE .inf -.INF .Inf .iNF .NaN .nAN NaN inf $A a#b f($A) x==1 -x !x << a,b ? - = & * @ ` % | > [] {}
"""


@pytest.mark.parametrize("text", SCALARS.split())
@pytest.mark.parametrize("written", ["{}", "'{}'", '"{}"', "|-\n    {}", ">-\n    {}"])
def test_ast_grep_reads_a_text_as_we_do_or_we_refuse_it(tmp_path: Path, text: str, written: str) -> None:
    rule = f"language: javascript\nrule:\n  pattern: {written.format(text)}\nfix: {written.format('found')}\n"
    try:
        action, _ = rule_action(rule)
    except DataError:
        return
    plain = json.dumps({"language": "javascript", **action.model_dump()})
    assert replace(rule, tmp_path, text + "\n") == replace(plain, tmp_path, text + "\n")
    # what is written is the text that was read, where it has no variables
    if "$" not in text and isinstance(action.rule["pattern"], str):
        rule = f"language: javascript\nrule:\n  pattern: foo\nfix: {written.format(text)}\n"
        assert replace(rule, tmp_path) == [action.rule["pattern"]]


@pytest.mark.parametrize("text", ["yes", "on", "off", "2020-01-01", "12:30", "NaN"])
def test_a_word_of_an_older_yaml_is_a_text(text: str) -> None:
    assert rule_action(f"rule: {{pattern: {text}}}\nfix: x") == (RuleAction(rule={"pattern": text}, fix="x"), None)


@pytest.mark.parametrize(
    "text", ["1e3", "0x10", "0X10", "010", ".5e3", "~", "null", "true", ".inf", "1_000", "nULL", "tRUE"]
)
def test_what_may_be_no_text_to_one_of_the_readers_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        rule_action(f"rule: {{pattern: {text}}}\nfix: x")


PIECES = [" ", "\n", "\t", "a", "B_1", "(", ")", ":", "#", "-", "'", '"', "\\", "{", "}", "[", "]", "|", ">", "&", "*"]
PIECES += ["!", "%", "@", "`", ",", "?", "~", "=", "<<", "é", "漢", "😀", "\x85", "\u2028", "\ufeff", "\ufffe", "\0"]
PIECES += ["\x1b", "\x7f", "\xa0", "\r", "\r\n", "0", "1e3", "0x1", ".5", "yes", "null", "true", "---", "...", "\u200b"]


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_rule_file_is_refused_or_read_and_never_more(seed: int) -> None:
    source = random.Random(seed)
    good = "id: a\nlanguage: JS\nrule:\n  any:\n    - pattern: |\n        f(\n          $A)\n    - kind: b\n" + (
        "transform: {A: {substring: {source: $B, startChar: 1}}}\nfix: {template: a, expandEnd: {regex: ','}}\n"
    )
    damage = [*PIECES, "&a ", "*a ", "!!bool x", "!!float ", "!!omap ", "<<: ", "? ", "- ", ": ", "\n  ", "1" * 5000]
    for _ in range(150):
        text = good
        for _ in range(source.randrange(1, 4)):
            at = source.randrange(len(text))
            text = text[:at] + source.choice(damage) + text[at + source.choice([0, 1, 9]) :]
        # any other error fails
        with suppress(DataError):
            assert isinstance(rule_action(text)[0], RuleAction)
