"""Which places belong to an edit, and which of several rules is taken for it."""

import pytest

from graftline.codemod.migration.option import Option
from graftline.codemod.migration.places import Place, cut
from graftline.codemod.migration.selection import Choice, select
from graftline.codemod.migration.traits import find_module, traits_of
from graftline.sandbox.base import Match


def test_places_of_the_same_edit_are_one():
    text = "x = self.env.doc\n"
    matches = [Match(4, 12, "self.env.current"), Match(4, 16, "self.env.current.doc"), Match(13, 16, "current.doc")]
    assert {cut("m.py", text, match) for match in matches} == {Place("m.py", 12, 12, ".current")}
    assert cut("m.py", "f(a, b)", Match(1, 7, "(b)")) == Place("m.py", 2, 5, "")
    assert cut("m.py", "aa b", Match(0, 2, "a")) == Place("m.py", 0, 1, "")


@pytest.mark.parametrize(
    ("text", "module"),
    [
        ("    from a.b import (\n    x,\n    Conf,\n)\n", "b"),
        ("import x, { y, Conf } from './a/b.js'\n", "b"),
        ("import static a.b.C.Conf;\n", "C"),
        # what is never closed is not looked for to the end of the file, once for each import
        ("\n" * 30_000 + "from a import (\n" * 15_000 + "import {a\n" * 5_000 + "aConf", ""),
    ],
)
def test_the_module_of_a_name_is_that_of_its_import(text, module):
    assert find_module(text, "Conf", 0) == module


@pytest.mark.parametrize(("count", "is_sure"), [(20, True), (2_000, False)])
def test_what_changes_many_places_needs_more_belief(count, is_sure):
    places = [Place(f"{number}.py", 0, 1, "b") for number in range(count)]
    option = Option((), "name", "any", frozenset())
    choices = [Choice((option,), frozenset(places)), Choice((option,), frozenset())]
    traits = {place: traits_of(place.path, "a", 0, 1) for place in places}
    assert select(choices, [0.4, 0.6], traits, [], None, 0).is_sure == is_sure


def test_an_imported_name_that_is_refused_stays_in_all_of_its_file():
    text = "from a import b\n\nb(1)\nc(b)\n"
    places = [Place(f"{n}.py", start, start + 1, "d") for n in range(9) for start in (14, 17, 24)]
    choices = [Choice((Option((), "name", "any", frozenset()),), frozenset(places))]
    traits = {place: traits_of(place.path, text, place.start, place.end) for place in places}
    selection = select(
        choices, [1.0], traits, [], None, 0, memory={places[0]: False, **dict.fromkeys(places[9:], True)}
    )
    assert selection.is_sure
    assert {place for place in selection.refused if place.path == "0.py"} == {*places[:3]}


def test_answers_of_earlier_steps_count():
    places = [Place(f"{number}.py", 0, 1, "b") for number in range(9)]
    choices = [Choice((Option((), "name", "any", frozenset()),), frozenset(places))]
    traits = {place: traits_of(place.path, "a", 0, 1) for place in places}
    memory = {places[0]: False, places[1]: False}
    assert not select(choices, [1.0], traits, [], None, 0, memory=memory).is_sure
    assert select(choices, [1.0], traits, [], None, 0).is_sure
