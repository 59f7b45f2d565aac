"""Plain values as YAML: how it looks, and that every text is read back as it was."""

from random import Random
from typing import Any

import pytest

from graftline.core.config import parse_yaml, to_yaml

TREE: dict[str, Any] = {
    "id": "get-to-fetch",
    "message": "Replace `$A.get($B)` by `$A.fetch($B)` in « é » 🎉",
    "note": "For example:\n-a.get(1)\n+a.fetch(1)",
    "rule": {"any": [{"pattern": "$A.get($B)"}, {"regex": "^no: \\w+$", "nthChild": 1}]},
    "fix": "",
    "metadata": {
        "general": True,
        "share": 0.5,
        "parent": None,
        "examples": [{"before": "a.get(1)\n", "after": "  a.fetch(1)\n\n"}],
        "stays": ["yes", "a\tb", "\x1b"],
        "empty": [[], {}],
    },
}
WRITTEN = """\
id: get-to-fetch
message: Replace `$A.get($B)` by `$A.fetch($B)` in « é » 🎉
note: |-
  For example:
  -a.get(1)
  +a.fetch(1)
rule:
  any:
    - pattern: $A.get($B)
    - regex: '^no: \\w+$'
      nthChild: 1
fix: ''
metadata:
  general: true
  share: 0.5
  parent: null
  examples:
    - before: |
        a.get(1)
      after: |2+
          a.fetch(1)

  stays:
    - 'yes'
    - "a\\tb"
    - "\\e"
  empty:
    - []
    - {}
"""
WORDS = [
    "y", "Yes", "NO", "on", "off", "True", "null", "~", "=", "<<", ".inf", "-.NaN", ".5", "-1", "+1", "0x1f", "0o17",
]  # fmt: skip
NUMBERS = ["0b1", "1_000", "1e3", "1:30", "2024-05-01", "017", "...", "---"]
MARKS = [
    "- a", "-", "? a", ": a", "a: b", "a #b", "#", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "[a", "{a", "}",
    ",",
]  # fmt: skip
BLANKS = [
    " ", " a", "a ", "\t", "\ta", "a\t", "a\tb", "\n", "\n\n", "\na", "a\n\n", " a\nb", "a \n b\t\n", "\ta\n\tb",
    "a\n ",
]  # fmt: skip
CHARACTERS = [
    "\r", "a\rb", "a\r\nb\r\n", "\x01", "\x1b", "\x7f", "\x85", "a\u2028b\n", "\ufeff", "\ufffe", "\ud800", "🎉",
]  # fmt: skip
LONG = ["a " * 5_000, "a" * 5_000, "a " * 500 + "\n" + "b" * 500, "'" * 300, '"\\' * 300, "x: 'y'\n---\n...\n# z\n"]
TEXTS = ["", *WORDS, *NUMBERS, *MARKS, *BLANKS, *CHARACTERS, *LONG]


def test_values_are_written_in_their_order_as_a_person_would() -> None:
    assert to_yaml(TREE) == WRITTEN


def test_what_is_written_once_is_written_twice_the_same() -> None:
    assert to_yaml(parse_yaml(WRITTEN, "a")) == WRITTEN


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_every_text_is_read_back_as_it_was(number: int) -> None:
    text = TEXTS[number]
    tree = {text: text, "list": [text, [text, text], {"a": text, "b": {text: [text]}}], "last": text}
    assert parse_yaml(to_yaml(tree), "a") == tree


@pytest.mark.parametrize("seed", range(5))
def test_texts_made_of_everything_are_read_back_as_they_were(seed: int) -> None:
    random = Random(seed)
    pieces = [text for text in TEXTS if len(text) < 10]
    texts = ["".join(random.choices(pieces, k=random.randint(2, 6))) for _ in range(100)]
    tree = {f"k{number}": [text, {"a": text}] for number, text in enumerate(texts)}
    assert parse_yaml(to_yaml(tree), "a") == tree
