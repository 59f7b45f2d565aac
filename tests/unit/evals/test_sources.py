"""Which tasks an evaluation is of: what fits a source, in which order, and what a source may not ask for."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from graftline.core.errors import DataError
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.datasets.synthetic.families import is_held_out
from graftline.evals.sources import PairsSource, SplitSource, TaskSource, load_cases, source_artifacts
from graftline.rollouts.task import Task
from graftline.sandbox.actions.memory import MemorySandbox
from tests.eval_cases import case
from tests.repository_tasks import repository_task

SOURCE: TypeAdapter[Any] = TypeAdapter(TaskSource)


def task(number: int, **more: Any) -> Task:
    return case(number).task.model_copy(update={"dataset": f"d{number % 2}", **more})


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    synthetic = [task(number, tags=("synthetic", "template:swap")) for number in range(40, 44)]
    real = [task(number) for number in range(12)]
    folder = paths.partition("tasks", "python", "test")
    folder.mkdir(parents=True)
    write_lines(folder / "tasks.jsonl", [*real, *synthetic, task(50, before="x = old(1)\n" * 20)])
    return paths


def ids(paths: Paths, source: TaskSource) -> list[str]:
    return [one.id for one in load_cases(source, paths, lambda language, split: (), MemorySandbox, Counter())]


def test_of_a_split_classes_take_turns_and_it_is_the_same_every_time(paths: Paths) -> None:
    source = SplitSource(most=6)
    found = load_cases(source, paths, lambda language, split: (), MemorySandbox, Counter())

    assert Counter(one.edit_class for one in found) == {"d0": 2, "d1": 2, "swap": 2}
    assert [one.id for one in found] == ids(paths, source) == ids(paths, SplitSource(most=7))[:6]
    # not in the order of the file
    assert [one.id for one in found] != sorted(one.id for one in found)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [({}, 17), ({"of": "synthetic"}, 4), ({"of": "real"}, 13), ({"of": "real", "most_characters": 60}, 12)],
)
def test_what_does_not_fit_is_left_out(paths: Paths, wanted: dict[str, Any], count: int) -> None:
    assert len(ids(paths, SplitSource(**wanted))) == count


@pytest.mark.parametrize(("unit", "suffix"), [("repositories", ""), ("places", "#")])
def test_of_changes_of_repositories_languages_take_turns(paths: Paths, unit: str, suffix: str) -> None:
    languages = {f"acme/shop@{number}": "java" if number == 5 else "python" for number in range(6)}
    changes = [repository_task(id=id, language=language) for id, language in languages.items()]
    write_lines(paths.root / "changes.jsonl", changes)
    source = SOURCE.validate_python({"kind": "repositories", "path": "changes.jsonl", "unit": unit, "most": 2})
    names = [name.partition("#") for name in ids(paths, source)]
    assert {languages[name] for name, _, _ in names} == {"java", "python"}
    assert [mark for _, mark, _ in names] == [suffix] * 2


def test_of_places_told_takes_those_whose_words_are_said(paths: Paths) -> None:
    said = {"told": "Call get in place of fetch.", "vague": "Make it better.", "half": "Do not fetch."}
    untried = {"answerable": None, "answerable_by": None}
    changes = [repository_task(id=id, instruction=words, **untried) for id, words in said.items()]
    write_lines(paths.root / "changes.jsonl", changes)
    wanted = {"kind": "repositories", "path": "changes.jsonl", "unit": "places", "instructions": "told"}
    found = ids(paths, SOURCE.validate_python(wanted))
    assert {name.partition("#")[0] for name in found} == {"told"}
    with pytest.raises(ValidationError, match="told is of places; say unit: places"):
        SOURCE.validate_python({**wanted, "unit": "repositories"})


def test_where_nothing_fits_it_is_an_error(paths: Paths) -> None:
    # no attempt is stored, so that none is known to be solved by one action
    with pytest.raises(DataError, match="tasks: nothing fits"):
        ids(paths, SplitSource(in_one_step=True))


def test_artifacts_that_tasks_are_of_are_named(paths: Paths) -> None:
    folder = paths.attempts("python", "test", "induction")
    source = SplitSource(in_one_step=True)

    assert source_artifacts(source, paths, lambda language, split: [folder]) == {
        "tasks.python.test": paths.partition("tasks", "python", "test"),
        "teacher_trajectories.python.test.induction": folder,
    }
    assert source_artifacts(PairsSource(path="pairs.jsonl"), paths, lambda language, split: [folder]) == {}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"kind": "families", "templates": ("nothing",)}, "templates: 'nothing' is unknown"),
        ({"kind": "families", "split": "train"}, "split: held-out families have no instances in train"),
        ({"kind": "pairs", "path": "../x"}, "must stay inside"),
        ({"kind": "split", "most_characters": 3}, "most_characters"),
    ],
)
def test_a_source_that_cannot_be_meant_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        SOURCE.validate_python(asked)


def test_held_out_templates_and_trained_ones_share_none() -> None:
    held_out = SOURCE.validate_python({"kind": "families"}).chosen
    trained = SOURCE.validate_python({"kind": "families", "of": "trained"}).chosen

    assert held_out
    assert not {*held_out} & {*trained}
    assert all(map(is_held_out, held_out))
    assert {*held_out, *trained} == {*SOURCE.validate_python({"kind": "families", "of": "all"}).chosen}
