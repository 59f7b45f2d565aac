"""Composed edits: what they are made of, and that their actions make them."""

import random
from collections import Counter

import pytest

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonicalize
from graftline.datasets.edit import Edit
from graftline.datasets.language import is_clean
from graftline.datasets.synthetic.composed import compose
from graftline.datasets.synthetic.families import FAMILIES, HELD_OUT, has_held_out_form
from graftline.datasets.synthetic.family import fill_action
from graftline.datasets.synthetic.patterns import Pattern, pattern_of
from graftline.datasets.synthetic.rewrites import rewrites_of
from graftline.datasets.synthetic.short_texts import (
    Frame,
    Vocabulary,
    fill_pattern,
    frames_in,
    metavariables,
    parse_clean,
)
from graftline.rollouts.task import validate_tasks
from graftline.sandbox.actions.memory import MemorySandbox

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
        license="MIT", group="own", origin="own.py, line 1",
    )  # fmt: skip


def composed(language: Language, count: int = 40, seed: int = 0) -> list[Edit]:
    return list(compose([edit(language)], language, count, seed, MemorySandbox(), 170))


@pytest.mark.parametrize("language", TEXTS)
def test_the_action_of_every_composed_edit_makes_its_text_after(language: Language) -> None:
    results = composed(language)
    soundness = validate_tasks(results, MemorySandbox())
    assert len(results) >= 15
    # an edit whose text after counts as the text before is left out with the others that say nothing
    assert {*soundness.invalid} <= {"unedited_passes"}
    assert all(is_clean(item.post, language) and len(item.pre) <= 170 for item in results)


@pytest.mark.parametrize("language", TEXTS)
def test_composed_edits_are_the_same_every_time_and_others_with_another_seed(language: Language) -> None:
    assert composed(language, 12) == composed(language, 12)
    assert composed(language, 12) != composed(language, 12, seed=1)


def test_composed_edits_are_of_many_kinds_and_keep_what_is_known_of_their_text() -> None:
    results = composed("python")
    kinds = Counter(next(tag for tag in item.tags if tag.startswith("template:")) for item in results)
    assert len(kinds) >= 8
    assert {(item.license, item.group, item.dataset) for item in results} == {("MIT", "own", "synthetic_rules")}
    assert len({item.id for item in results}) == len(results)
    assert all(item.gold_action is not None and canonicalize(item.gold_action) == item.gold_action for item in results)


def shapes(kind: str) -> set[str]:
    """Return the patterns of the first node of a kind in the Python text, of many draws."""
    tree = parse_clean(edit("python").model_copy(update={"pre": NESTED}), "python")
    assert tree is not None
    node = next(node for node in tree.root.walk() if node.kind == kind)
    patterns = (pattern_of(tree, node, random.Random(seed)) for seed in range(300))
    return {shape.text for shape in patterns if shape is not None}


def test_what_is_inside_an_operand_is_free_where_the_operand_stays() -> None:
    assert {"len($A) == 0", "len($A) == $B", "$A == 0", "$A == $B"} <= shapes("comparison_operator")


def test_what_stands_twice_is_one_metavariable() -> None:
    results = shapes("conditional_expression")
    assert "$A[$B] if $B in $A else 0" in results
    assert not {pattern for pattern in results if pattern.startswith("$A[$B] if $C in")}


def test_arguments_go_one_at_a_time_with_what_is_in_their_brackets() -> None:
    shape, words = Pattern("run($A, [1, 2], debug=True)", ("$A",)), Vocabulary(["call"], ["name"], ["7"], ["argument"])
    results = {
        text
        for seed in range(20)
        for kind, text in rewrites_of(shape, "call", "python", words, random.Random(seed))
        if kind == "drop_argument"
    }
    assert results == {"run([1, 2], debug=True)", "run($A, debug=True)", "run($A, [1, 2])"}


@pytest.mark.parametrize(
    ("pattern", "free", "kind", "language", "rewrite"),
    [
        ("copy($A, $B)", ("$A", "$B"), "call", "python", ("swap_arguments", "copy($B, $A)")),
        ("new Pair($$$A)", ("$$$A",), "new_expression", "javascript", ("factory", "Pair.call($$$A)")),
    ],
)
def test_a_pattern_becomes(
    pattern: str, free: tuple[str, ...], kind: str, language: Language, rewrite: tuple[str, str]
) -> None:
    words = Vocabulary(["call"], ["name"], ["7"], ["argument"])
    assert rewrite in [*rewrites_of(Pattern(pattern, free), kind, language, words, random.Random(0))]


def test_some_rewrites_are_undone_and_their_patterns_hold_all_that_is_free() -> None:
    results = [item for item in composed("python", 200) if any("undo_" in tag for tag in item.tags)]
    assert results
    for item in results:
        assert isinstance(item.gold_action, PatternAction)
        assert metavariables(item.gold_action.pattern) == metavariables(item.gold_action.rewrite)


def test_texts_that_do_not_parse_are_left_out() -> None:
    broken = edit("python").model_copy(update={"pre": "first = (\n"})
    assert not list(compose([broken], "python", 5, 0, MemorySandbox(), 170))


def test_a_filling_has_as_many_places_as_are_asked_for_and_is_filled_from_other_code() -> None:
    words = Vocabulary(["call"], ["name"], ["7"], ["argument"])
    results = fill_pattern("load($A, $$$B)", False, "python", 3, words, random.Random(1))
    assert results is not None
    assert results.count("load(") == 3
    assert "$" not in results
    assert fill_pattern("load()", False, "python", 3, words, random.Random(1)) is None


@pytest.mark.parametrize("sites", [2, 3])
def test_places_of_a_metavariable_of_any_number_have_different_numbers(sites: int) -> None:
    words = Vocabulary(["call"], ["name"], ["7"], ["argument"])
    for seed in range(30):
        text = fill_pattern("load($$$A)", False, "python", sites, words, random.Random(seed)) or ""
        counts = [len(line[5:-1].split(", ")) if line != "load()" else 0 for line in text.splitlines()]
        assert len({*counts}) == len(counts) == sites


def test_two_places_stand_in_one_statement_or_in_statements_of_their_own() -> None:
    words = Vocabulary(["call"], ["name"], ["7"], ["argument"], [Frame("done = ", ""), Frame("keep(", ", 1)")])
    results = [fill_pattern("len($A) == 0", False, "python", 2, words, random.Random(seed)) or "" for seed in range(60)]
    assert all(text.count("== 0") == 2 for text in results)
    assert {len(text.splitlines()) for text in results} == {1, 2}
    assert {(text.count("done = "), text.count("keep(")) for text in results} >= {(2, 0), (0, 2), (1, 1)}


def test_short_statements_that_say_where_they_end_stand_on_one_line_at_times() -> None:
    words = Vocabulary(["call"], ["name"], ["7"], ["argument"], [Frame("keep(", ");")])
    results = [fill_pattern("$A.size() == 0", False, "java", 2, words, random.Random(seed)) or "" for seed in range(60)]
    assert {text.count("\n") for text in results if text.count("keep(") == 2} == {1, 2}


@pytest.mark.parametrize(
    ("language", "text", "results"),
    [
        (
            "python",
            "def total(items):\n    if items:\n        self.sum = add(items[0], key=1)\n    return items\n",
            {"self.sum = {e}", "self.sum = add({e}, key=1)", "return {e}", "if items:\n    self.sum = {e}"}
            | {"if {e}:\n    self.sum = add(items[0], key=1)", "if items:\n    self.sum = add({e}, key=1)"},
        ),
        (
            "javascript",
            "if (first) { keep(a, b); }\nconst x = make();\nreturn last;\n",
            {"if ({e}) { keep(a, b); }", "keep({e}, b);", "keep(a, {e});", "{e};", "const x = {e};", "return {e};"}
            | {"if (first) { {e}; }", "if (first) { keep({e}, b); }", "if (first) { keep(a, {e}); }"},
        ),
        ("java", "int size = list.size();\nreturn map.get(key);\n", {"int size = {e};", "return {e};", "return map.get({e});"}),
    ],
)  # fmt: skip
def test_a_frame_is_a_short_statement_of_the_code_without_an_expression(
    language: Language, text: str, results: set[str]
) -> None:
    tree = parse_clean(edit(language).model_copy(update={"pre": text}), language)
    assert tree is not None
    assert {frame.around("{e}") for frame in frames_in(tree)} == results


@pytest.mark.parametrize("language", TEXTS)
def test_no_composed_edit_has_the_form_of_a_family_that_is_held_out(language: Language) -> None:
    results = [item.gold_action for item in composed(language, 300)]
    assert results
    assert not [action for action in results if action is not None and has_held_out_form(action, language)]


@pytest.mark.parametrize(
    ("pattern", "rewrite", "language", "is_held_out"),
    [
        ("log.warn($$$A)", "log.warning($$$A)", "python", True),
        ("log.warn($A, $B)", "log.warning($A, $B)", "python", True),
        ("log.warn()", "log.warning()", "python", True),
        ("log.warn($A, $B)", "log.warning($B, $A)", "python", False),
        ("log.warn($$$A)", "logger.warning($$$A)", "python", False),
        ("$A.load($B)", "$A.read($B)", "java", True),
        ("$A.load($B)", "await $A.load($B)", "javascript", True),
        ("await $A.load($B)", "$A.load($B)", "javascript", True),
        ("load($B)", "await load($B)", "javascript", False),
        ("let $A = $B;", "var $A = $B;", "javascript", True),
        ("let $A = $B;", "const $A = $B;", "javascript", False),
        ("$A + $B", "$A - $B", "python", True),
        ("len($A) == 0", "not $A", "python", True),
        ("len($A) == 0", "not $A", "javascript", False),  # which does not have it
        ("$A.put($B, $C)", "$A.put($B, { when: $C })", "javascript", True),
    ],
)
def test_an_action_has_a_held_out_form_where_only_names_differ(
    pattern: str, rewrite: str, language: Language, is_held_out: bool
) -> None:
    assert has_held_out_form(PatternAction(pattern=pattern, rewrite=rewrite), language) == is_held_out


def test_every_pattern_of_a_held_out_family_has_a_held_out_form() -> None:
    slots = {"name": "first", "new": "second", "owner": "third", "key": "fourth", "other": "fifth", "value": "sixth"}
    for family in FAMILIES:
        for form in family.forms:
            for action in (fill_action(item, slots) for item in (*form.there, *form.back)):
                is_whole = len(form.there) == 1
                if is_whole and isinstance(action, PatternAction) and family.id in HELD_OUT:
                    assert has_held_out_form(action, form.languages[0]), action
