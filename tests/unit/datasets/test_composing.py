"""Composed edits: what they are made of, and that their actions make them."""

import random
from collections import Counter

import pytest

from graftline.actions.action import PatternAction
from graftline.actions.astgrep import Language
from graftline.datasets.edit import Edit
from graftline.datasets.syntax import is_clean
from graftline.datasets.synthetic.composed import compose
from graftline.datasets.synthetic.fillings import filling, metavariables
from graftline.datasets.synthetic.holes import Shape, shape_of
from graftline.datasets.synthetic.rewritings import rewrites_of
from graftline.datasets.synthetic.words import Words, read_tree
from graftline.rules.canonical import canonical
from graftline.sandbox.memory import MemorySandbox
from graftline.tasks.task import sound_tasks

TEXTS: dict[Language, str] = {
    "python": (
        "first = load(1, key=name)\nif first == last:\n    store.send(first)\nreturn total(first, [2], other.size)\n"
    ),
    "javascript": "const first = load(1, name);\nif (first === last) { store.send(first); }\nvalues[0] = first || last;\n",
    "java": "int first = load(1, name);\nif (first == last) { store.send(first); }\nvalue = first + other.size();\n",
}
NESTED = "if len(items) == 0:\n    first = table[key] if key in table else 0\n"


def edit(language: Language) -> Edit:
    return Edit(
        instruction="-", pre=TEXTS[language], post="-", language=language, id=f"own:{language}", dataset="own",
        licence="MIT", group="own", origin="own.py, line 1",
    )  # fmt: skip


def composed(language: Language, count: int = 40, seed: int = 0) -> list[Edit]:
    return list(compose([edit(language)], language, count, seed, MemorySandbox()))


@pytest.mark.parametrize("language", TEXTS)
def test_the_action_of_every_composed_edit_makes_its_text_after(language: Language) -> None:
    found = composed(language)
    soundness = sound_tasks(found, MemorySandbox())
    assert len(found) >= 15
    # an edit whose text after counts as the text before is left out with the others that say nothing
    assert {*soundness.unsound} <= {"unedited_passes"}
    assert all(is_clean(one.post, language) and len(one.pre) <= 170 for one in found)


@pytest.mark.parametrize("language", TEXTS)
def test_composed_edits_are_the_same_every_time_and_others_with_another_seed(language: Language) -> None:
    assert composed(language, 12) == composed(language, 12)
    assert composed(language, 12) != composed(language, 12, seed=1)


def test_composed_edits_are_of_many_kinds_and_keep_what_is_known_of_their_text() -> None:
    found = composed("python")
    kinds = Counter(next(tag for tag in one.tags if tag.startswith("template:")) for one in found)
    assert len(kinds) >= 8
    assert {(one.licence, one.group, one.dataset) for one in found} == {("MIT", "own", "synthetic_rules")}
    assert len({one.id for one in found}) == len(found)
    assert all(one.gold_action is not None and canonical(one.gold_action) == one.gold_action for one in found)


def shapes(kind: str) -> set[str]:
    """Return the patterns of the first node of a kind in the Python text, of many draws."""
    tree = read_tree(edit("python").model_copy(update={"pre": NESTED}), "python")
    assert tree is not None
    node = next(node for node in tree.root.walk() if node.kind == kind)
    drawn = (shape_of(tree, node, random.Random(seed)) for seed in range(300))
    return {shape.pattern for shape in drawn if shape is not None}


def test_what_is_inside_an_operand_is_free_where_the_operand_stays() -> None:
    assert {"len($A) == 0", "len($A) == $B", "$A == 0", "$A == $B"} <= shapes("comparison_operator")


def test_what_stands_twice_is_one_metavariable() -> None:
    found = shapes("conditional_expression")
    assert "$A[$B] if $B in $A else 0" in found
    assert not {pattern for pattern in found if pattern.startswith("$A[$B] if $C in")}


def test_arguments_go_one_at_a_time_with_what_is_in_their_brackets() -> None:
    shape, words = Shape("run($A, [1, 2], debug=True)", ("$A",)), Words(["call"], ["name"], ["7"], ["argument"])
    found = {
        text
        for seed in range(20)
        for kind, text in rewrites_of(shape, "call", "python", words, random.Random(seed))
        if kind == "drop_argument"
    }
    assert found == {"run([1, 2], debug=True)", "run($A, debug=True)", "run($A, [1, 2])"}


def test_two_arguments_change_places() -> None:
    shape, words = Shape("copy($A, $B)", ("$A", "$B")), Words(["call"], ["name"], ["7"], ["argument"])
    rewrites = [*rewrites_of(shape, "call", "python", words, random.Random(0))]
    assert [text for kind, text in rewrites if kind == "swap_arguments"] == ["copy($B, $A)"]


def test_some_rewrites_are_undone_and_their_patterns_hold_all_that_is_free() -> None:
    found = [one for one in composed("python", 200) if any("undo_" in tag for tag in one.tags)]
    assert found
    for one in found:
        assert isinstance(one.gold_action, PatternAction)
        assert metavariables(one.gold_action.pattern) == metavariables(one.gold_action.rewrite)


def test_what_is_made_becomes_what_a_method_of_its_class_returns() -> None:
    shape, words = Shape("new Pair($$$A)", ("$$$A",)), Words(["of"], ["name"], ["7"], ["argument"])
    rewrites = [*rewrites_of(shape, "new_expression", "javascript", words, random.Random(0))]
    assert ("factory", "Pair.of($$$A)") in rewrites


def test_texts_that_do_not_parse_are_left_out() -> None:
    broken = edit("python").model_copy(update={"pre": "first = (\n"})
    assert not list(compose([broken], "python", 5, 0, MemorySandbox()))


def test_a_filling_has_as_many_places_as_are_asked_for_and_is_filled_from_other_code() -> None:
    words = Words(["call"], ["name"], ["7"], ["argument"])
    found = filling("load($A, $$$B)", False, "python", 3, words, random.Random(1))
    assert found is not None
    assert found.count("load(") == 3
    assert "$" not in found
    assert filling("load()", False, "python", 3, words, random.Random(1)) is None


def test_two_places_stand_on_one_line_or_on_lines_of_their_own() -> None:
    words = Words(["call"], ["name"], ["7"], ["argument"])
    found = [filling("len($A) == 0", False, "python", 2, words, random.Random(seed)) or "" for seed in range(60)]
    assert all(text.count("== 0") == 2 for text in found)
    assert {" or " in text for text in found} == {True, False}
