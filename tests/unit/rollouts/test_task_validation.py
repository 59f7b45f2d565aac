"""Edits made checkable: a task is sound when its gold passes and the unedited text fails."""

from typing import Any

import pytest

from graftline.astgrep.action import PatternAction
from graftline.datasets.edit import Edit
from graftline.rollouts.task import Task, TaskValidation, invalid_reason, task_of, validate_tasks
from graftline.sandbox.actions.memory import MemorySandbox

RENAME = PatternAction(pattern="old($A)", rewrite="new($A)")


def edit(**changes: Any) -> Edit:
    values = {
        "instruction": "Call new instead of old.",
        "pre": "x = old(1)\n",
        "post": "x = new(1)\n",
        "language": "python",
        "tags": ("license:MIT",),
        "id": "demo:1",
        "dataset": "demo",
        "license": "MIT",
        "group": "pypi:demo",
        "origin": "demo.py",
    }
    return Edit(**{**values, **changes})


def test_an_edit_becomes_a_task_that_wants_the_text_after() -> None:
    assert task_of(edit(gold_action=RENAME)) == Task(
        id="demo:1",
        dataset="demo",
        language="python",
        instruction="Call new instead of old.",
        before="x = old(1)\n",
        target="x = new(1)\n",
        gold_action=RENAME,
        license="MIT",
        group="pypi:demo",
        origin="demo.py",
        tags=("license:MIT",),
    )


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="a real edit, whose gold is its text after"),
        pytest.param({"gold_action": RENAME}, id="an action that makes it"),
        pytest.param({"gold_action": RENAME, "post": "x = new(1)\n\n"}, id="an action that makes it but for blanks"),
        pytest.param({"gold_action": RENAME, "post": "x = new( 1 )\n"}, id="an action that makes the same tree"),
        pytest.param({"post": "x = old(1)  # seen\n"}, id="a comment counts as a change"),
        pytest.param({"pre": "if a:\n    b()\n    c()\n", "post": "if a:\n    b()\nc()\n"}, id="so does indentation"),
    ],
)
def test_a_task_is_sound_whose_gold_passes_and_unedited_text_fails(changes: dict[str, Any]) -> None:
    assert invalid_reason(task_of(edit(**changes)), MemorySandbox()) == ""


DEEP = "x = " + "(" * 400 + "1" + ")" * 400 + "\n"


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        ("gold_no_match", {"gold_action": PatternAction(pattern="other($A)", rewrite="new($A)")}),
        ("gold_action_error", {"gold_action": PatternAction(pattern="old($A)", rewrite="new", selector="no_kind")}),
        ("gold_fails", {"gold_action": PatternAction(pattern="old($A)", rewrite="newer($A)")}),
        pytest.param("unedited_passes", {"post": "x = old(1) \n"}, id="unedited_passes by blanks"),
        # a semicolon is a separator, in JavaScript an optional one
        pytest.param(
            "unedited_passes",
            {"language": "javascript", "pre": "f(1)", "post": "f(1);"},
            id="unedited_passes by separators",
        ),
        pytest.param("ungradable", {"post": DEEP}, id="ungradable wanted text"),
        pytest.param("ungradable", {"pre": DEEP}, id="ungradable text before"),
        # the sandbox is asked first, and refuses the text
        ("gold_action_error", {"pre": DEEP, "gold_action": RENAME}),
    ],
)
def test_an_invalid_task_says_why(reason: str, changes: dict[str, Any]) -> None:
    assert invalid_reason(task_of(edit(**changes)), MemorySandbox()) == reason


def test_sound_tasks_are_kept_in_order_and_the_others_counted() -> None:
    none = PatternAction(pattern="other($A)", rewrite="new($A)")
    edits = [
        edit(id="c"),
        edit(id="x", gold_action=none),
        edit(id="a", gold_action=RENAME),
        edit(id="y", post="x = old(1) \n"),
        edit(id="z", gold_action=none),
    ]
    assert validate_tasks(iter(edits), MemorySandbox()) == TaskValidation(
        [task_of(edits[0]), task_of(edits[2])], {"gold_no_match": 2, "unedited_passes": 1}
    )


def test_a_file_knows_the_target_as_wanted_and_both_names_are_read() -> None:
    task = task_of(edit(gold_action=RENAME))
    tree = task.model_dump(mode="json")
    assert Task.model_validate(tree) == task
    target = tree.pop("wanted")
    assert Task.model_validate({**tree, "target": target}) == task
