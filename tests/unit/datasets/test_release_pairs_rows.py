"""The reader of `release_pairs`."""

from collections.abc import Mapping
from typing import Any

from graftline.datasets.edit import Edit
from tests.unit.datasets.fixtures import drop, outcome


def test_a_row_becomes_an_edit_without_an_instruction(pair: Mapping[str, Any]) -> None:
    assert outcome("release_pairs", pair) == Edit(
        instruction="",
        pre="def first(x):\n    return old(x)\n",
        post="def first(x):\n    return new(x)\n",
        language="python",
        tags=("release_pairs", "license:MIT"),
        instruction_source="none",
        answerable=False,
        answerable_by="no_instruction",
        id="release_pairs:1",
        dataset="release_pairs",
        license="MIT",
        group="pypi:demo",
        origin="pypi:demo 1.0->2.0 demo.py",
        gold_action=None,
    )


def test_rows_of_one_package_are_one_group_and_of_another_registry_another(pair: Mapping[str, Any]) -> None:
    rows = [pair, {**pair, "old": "2.0", "new": "3.0", "path": "b.py"}, {**pair, "registry": "npm"}]
    edits = [outcome("release_pairs", row) for row in rows]
    assert [edit.group for edit in edits if isinstance(edit, Edit)] == ["pypi:demo", "pypi:demo", "npm:demo"]


def test_a_field_that_is_not_known_is_no_fault(pair: Mapping[str, Any]) -> None:
    assert outcome("release_pairs", {**pair, "stars": 5}) == outcome("release_pairs", pair)


def test_a_row_that_cannot_become_an_edit_is_dropped_with_its_reason(pair: Mapping[str, Any]) -> None:
    cases = [
        ({"id": "release:"}, "bad_field: id: 'release:' has nothing after its colon"),
        ({"pkg": 5}, "bad_field: pkg: Input should be a valid string"),
        ({"language": "go"}, "unknown_language: language 'go'; known: python, javascript, typescript, tsx, java"),
        ({"pre": " \n"}, "empty_pre: pre is empty: nothing can be rewritten"),
        ({"post": ""}, "empty_post: post is empty: the function was removed, not rewritten"),
    ]
    assert [drop("release_pairs", {**pair, **change}) for change, _ in cases] == [reason for _, reason in cases]
