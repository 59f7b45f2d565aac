"""The reader of `release_pairs`."""

from collections.abc import Mapping
from typing import Any

from graftline.datasets.edit import Edit
from graftline.datasets.sources.release_pairs import edit_of


def test_a_row_becomes_an_edit_with_a_derived_instruction(pair: Mapping[str, Any]) -> None:
    assert edit_of(pair) == Edit(
        instruction="Change `first` as demo did from 1.0 to 2.0.",
        pre="def first(x):\n    return old(x)\n",
        post="def first(x):\n    return new(x)\n",
        language="python",
        tags=("release_pairs", "licence:MIT", "instruction:derived"),
        id="release_pairs:1",
        dataset="release_pairs",
        licence="MIT",
        group="pypi:demo",
        origin="pypi:demo 1.0->2.0 demo.py",
        gold_action=None,
    )


def test_rows_of_one_package_are_one_group_and_of_another_registry_another(pair: Mapping[str, Any]) -> None:
    rows = [pair, {**pair, "old": "2.0", "new": "3.0", "path": "b.py"}, {**pair, "registry": "npm"}]
    assert [edit.group for edit in map(edit_of, rows) if isinstance(edit, Edit)] == [
        "pypi:demo",
        "pypi:demo",
        "npm:demo",
    ]


def test_the_dots_before_a_name_are_not_in_the_instruction(pair: Mapping[str, Any]) -> None:
    [edit] = [edit_of({**pair, "qual": "..Outer.first"})]
    assert isinstance(edit, Edit)
    assert edit.instruction == "Change `Outer.first` as demo did from 1.0 to 2.0."


def test_a_field_that_is_not_known_is_no_fault(pair: Mapping[str, Any]) -> None:
    assert edit_of({**pair, "stars": 5}) == edit_of(pair)
