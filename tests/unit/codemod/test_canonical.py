"""Similarity of actions: what does not count, and what does."""

import random
import re
from difflib import SequenceMatcher
from typing import Any

import pytest

from graftline.astgrep.action import ACTION, PatternAction, RuleAction
from graftline.codemod.canonical import MAX_COMPARED_CHARACTERS, canonical_text, similarity

SWAP = PatternAction(pattern="f($A, $B, $$$REST)", rewrite="f($B, $A, $$$REST)")
LONG = RuleAction(
    rule={
        "pattern": "call($OBJECT, $$$ARGUMENTS)",
        "inside": {"kind": "class_definition", "has": {"pattern": "class $NAME: $$$BODY", "regex": "^class $NAME"}},
        "not": {"has": {"any": [{"pattern": "$OBJECT.close()"}, {"kind": "string"}]}},
    },
    fix={"template": "$SHORT.call($$$ARGUMENTS, $LOUD)", "expandEnd": {"pattern": ",$$$_TAIL"}},
    constraints={"OBJECT": {"regex": "^self$"}, "NAME": {"regex": "^[A-Z]"}},
    transform={
        "SHORT": {"substring": {"source": "$OBJECT", "endChar": -1}},
        "MIDDLE": {"convert": {"source": "$NAME", "toCase": "snakeCase"}},
        "LOUD": {"convert": {"source": "$MIDDLE", "toCase": "upperCase"}},
        "UNUSED": {"convert": {"source": "$NAME", "toCase": "upperCase"}},
    },
)
NAMES = ("A", "B", "REST", "OBJECT", "ARGUMENTS", "NAME", "BODY", "SHORT", "MIDDLE", "LOUD", "UNUSED")


def renamed(value: Any, names: dict[str, str], key: str = "") -> Any:
    """Return `value` with other names of metavariables, but in regular expressions, where they are none."""
    if isinstance(value, dict):
        is_keyed = key in ("constraints", "transform")
        return {names[k] if is_keyed else k: renamed(inner, names, k) for k, inner in value.items()}
    if isinstance(value, list):
        return [renamed(item, names, key) for item in value]
    if isinstance(value, str) and key != "regex":
        return re.sub(r"\$([A-Z]+)", lambda found: f"${names[found[1]]}", value)
    return value


@pytest.mark.parametrize("action", [SWAP, LONG], ids=["pattern", "rule"])
def test_names_of_metavariables_do_not_count(action: PatternAction | RuleAction) -> None:
    rng = random.Random(7)
    given = ACTION.dump_python(action, mode="json")
    for _ in range(200):
        names = dict(zip(NAMES, rng.sample([f"{name}X" for name in NAMES], len(NAMES)), strict=True))
        other = ACTION.validate_python(renamed(given, names))
        assert (canonical_text(other), similarity(other, [action])) == (canonical_text(action), 1.0)


def test_metavariables_that_are_two_stay_two() -> None:
    same = PatternAction(pattern="f($A, $A)", rewrite="g($A)")
    other = PatternAction(pattern="f($A, $B)", rewrite="g($A)")
    assert canonical_text(same) != canonical_text(other)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (PatternAction(pattern="f($X,  $Y)", rewrite="$Y"), '{"pattern": "f($A, $B)", "rewrite": "$B"}'),
        (PatternAction(pattern="f(\n  $X\n)", rewrite=" $X "), '{"pattern": "f( $A )", "rewrite": "$A"}'),
        # what captures nothing has no name
        (PatternAction(pattern="f($_, $_B, $$$)", rewrite="g()"), '{"pattern": "f($_, $_B, $$$)", "rewrite": "g()"}'),
        (
            RuleAction(rule={"regex": "^a  $B", "kind": "x"}, fix="b"),
            '{"fix": "b", "rule": {"kind": "x", "regex": "^a  $B"}}',
        ),
    ],
)
def test_a_canonical_form_has_sorted_keys_numbered_variables_and_single_blanks(
    action: PatternAction | RuleAction, expected: str
) -> None:
    assert canonical_text(action) == expected


def test_the_order_of_keys_does_not_count() -> None:
    one = RuleAction(rule={"kind": "call", "pattern": "f($A)"}, fix="g($A)")
    other = RuleAction(rule={"pattern": "f($B)", "kind": "call"}, fix="g($B)")
    assert similarity(one, [other]) == 1.0


def test_similarity_is_twice_what_matches_over_what_there_is() -> None:
    # {"pattern": "f()", "rewrite": "g()"}: 36 characters, of which one differs
    found = similarity(PatternAction(pattern="f()", rewrite="g()"), [PatternAction(pattern="f()", rewrite="h()")])
    assert found == round(2 * 35 / 72, 6)


def test_the_nearest_of_several_counts() -> None:
    far, near = PatternAction(pattern="other($A).thing", rewrite="$A"), SWAP.model_copy(update={"rewrite": "f($B, $A)"})
    assert similarity(SWAP, [far, near]) == similarity(SWAP, [near])


def test_common_characters_of_long_actions_count() -> None:
    long = PatternAction(pattern="f(" + "$A, b, " * 40 + "c)", rewrite="$A")
    other = PatternAction(pattern="f(" + "b, $A, " * 40 + "c)", rewrite="$A")
    left_out = SequenceMatcher(None, canonical_text(long), canonical_text(other)).ratio()
    assert (similarity(long, [other]) or 0.0) > left_out


def test_nothing_is_known_without_a_gold_and_of_what_is_too_long() -> None:
    long = PatternAction(pattern="f()" * MAX_COMPARED_CHARACTERS, rewrite="")
    assert (similarity(SWAP, []), similarity(SWAP, [long]), similarity(long, [long])) == (None, None, 1.0)
