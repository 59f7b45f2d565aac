"""Code that a rule matches and does not name stays, unless the edits shown lose such code."""

import pytest

from graftline.astgrep.action import PatternAction
from graftline.codemod.migration.generalize import generalize
from graftline.codemod.migration.lost_parts import LostParts
from graftline.codemod.migration.units import Demonstration
from graftline.sandbox.actions import MemorySandbox
from graftline.sandbox.base import Match

_FAULT = "a part of it that the rule does not name would be lost; change it by hand"


def _follow(path, edits, other):
    shown = [Demonstration(f"{number}{path}", *edit) for number, edit in enumerate(edits)]
    texts = {f"n{path}": other, **{edit.path: edit.after for edit in shown}}
    proposal = generalize(shown, texts, MemorySandbox(), lambda _: True)
    return proposal.texts, [line for line in proposal.undone if "would be lost" in line]


@pytest.mark.parametrize(
    ("path", "edit", "other", "target", "held"),
    [
        ("m.py", ("assert not x\n", "check(x)\n"), "assert not a.b, 'why'\nassert not a.c\n",
         "assert not a.b, 'why'\ncheck(a.c)\n", 1),
        ("m.py", ("assert is_a(x, y)\n", "check(x)\n"), "assert is_a(a.b, y), a.c\nassert is_a(a.d, y)\n",
         "assert is_a(a.b, y), a.c\ncheck(a.d)\n", 1),
        ("m.js", ("if (a) { f() }\n", "when(a, () => { f() })\n"),
         "if (b) { g(1) }\nif (c) { g(2) } else { h() }\nif (d) { g(3) }\n",
         "when(b, () => { g(1) })\nif (c) { g(2) } else { h() }\nwhen(d, () => { g(3) })\n", 2),
    ],
)  # fmt: skip
def test_what_a_rule_does_not_name_is_not_lost(path, edit, other, target, held):
    assert _follow(path, [edit], other) == ({f"n{path}": target}, [f"n{path}:{held}: {_FAULT}"])


def test_a_name_that_is_matched_twice_and_written_once_is_not_lost():
    edit = ("x = get(a, a)\n", "x = get(a)\n")
    assert _follow("m.py", [edit], "y = get(b.c, b.c)\n") == ({"nm.py": "y = get(b.c)\n"}, [])


def test_of_matches_that_start_at_one_place_the_outermost_is_the_one_that_is_written():
    text, rule = "c.get(d).get(e)\n", PatternAction(pattern="$A.get($B)", rewrite="$A")
    assert not LostParts(text, rule, "python").has_any(Match(0, len(text) - 1, "c.get(d)"))


def test_what_is_lost_in_the_edits_shown_may_be_lost_elsewhere():
    edits = [("assert not x\n", "check(x)\n"), ("assert not y, 'y'\n", "check(y)\n")]
    assert _follow("m.py", edits, "assert not a.b, 'why'\n") == ({"nm.py": "check(a.b)\n"}, [])
