"""Problems of CanItEdit as tasks: by both instructions, judged by their tests, and never trained on."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graftline.core.config import load_yaml
from graftline.core.errors import DataError
from graftline.datasets.catalog import Catalog
from graftline.evals.canitedit import read_problems, wrap_script
from graftline.evals.cases import Case, leave_out_invalid
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.exports.chats import dpo_rows, rl_rows, sft_rows, srl_rows
from graftline.rollouts.teachers.induction import InductionTeacher
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox import JailConfig, MemorySandboxConfig, Sandbox, open_sandbox
from graftline.training.examples import read_objects
from graftline.training.rows import rows_of_tasks
from tests.training_root import CHECKOUT

LICENSE = "LicenseRef-BSD-3-Clause-ML-Restriction"
SCRIPT = "### START TESTS ###\nif True:  # pragma: no cover\n    total = double(2)\n    assert total == 4\n"


def problem(name: str = "1_double", tests: str = SCRIPT, **changes: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "full_name": name,
        "before": "def double(n):\n    return n\n",
        "after": "def double(n):\n    return 2 * n\n",
        "tests": tests,
        "instruction_descriptive": "Let `double` return twice its argument.",
        "instruction_lazy": "fix double",
        "taxonomy": {"change_kind": "corrective"},
        **changes,
    }


def cases_of(folder: Path, *rows: dict[str, Any]) -> list[Case]:
    (folder / "data").mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([*rows]), folder / "data/test.parquet")
    return read_problems(folder, "canitedit", LICENSE, ("descriptive", "lazy"))


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with closing(open_sandbox(MemorySandboxConfig(), JailConfig(required_level="confined"))) as opened:
        yield opened


def test_a_problem_is_a_task_by_each_instruction(tmp_path: Path) -> None:
    descriptive, lazy = cases_of(tmp_path, problem())
    assert [(case.id, case.edit_class, case.task.instruction) for case in (descriptive, lazy)] == [
        ("canitedit:1_double:descriptive", "descriptive", "Let `double` return twice its argument."),
        ("canitedit:1_double:lazy", "lazy", "fix double"),
    ]
    assert (lazy.task.license, lazy.task.instruction_source) == (LICENSE, "human")


def test_the_script_of_tests_becomes_one_test_in_the_names_of_the_code() -> None:
    assert wrap_script(SCRIPT) == (
        "def test_edit():\n    import solution\n    global total\n    globals().update(vars(solution))\n"
        "    if True:\n        total = double(2)\n        assert total == 4\n"
    )


def test_a_problem_whose_tests_are_of_no_use_here_is_left_out_with_the_reason(tmp_path: Path, sandbox: Sandbox) -> None:
    cases = cases_of(
        tmp_path,
        problem(),
        problem("2_absent", "import a_module_that_is_absent\nassert double(2) == 4\n"),
        problem("3_useless", "assert double(0) == 0\n"),
        # what a script assigns it may read before, and it finds the source of the code by its own name
        problem(
            "4_names",
            "import inspect, sys\nassert double(2) == 4\ndouble = inspect.getsource(sys.modules[__name__])\nassert 'def test' not in double\n",
        ),
    )
    valid, reasons = leave_out_invalid(cases, sandbox)
    assert [case.id for case in valid] == [
        f"canitedit:{name}:{detail}" for name in ("1_double", "4_names") for detail in ("descriptive", "lazy")
    ]
    assert {name.split(":")[1]: reason for name, reason in reasons.items()} == {
        "2_absent": "gold_fails_tests: test_edit.py::test_edit: ModuleNotFoundError: No module named 'a_module_that_is_absent'",
        "3_useless": "unedited_passes_tests",
    }


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([problem(), problem()], "row 2: 'canitedit:1_double:descriptive' was there before"),
        ([problem(tests="assert (")], "test.parquet:1: tests: cannot be read as Python"),
        ([{"before": "x"}], "test.parquet:1: full_name: Field required; a row of CanItEdit was expected"),
    ],
)
def test_the_first_fault_is_named(tmp_path: Path, rows: list[dict[str, Any]], fault: str) -> None:
    with pytest.raises(DataError, match=fault.replace("(", r"\(")):
        cases_of(tmp_path, *rows)


def test_nothing_is_trained_on_it(tmp_path: Path, sandbox: Sandbox) -> None:
    task = cases_of(tmp_path, problem())[0].task
    trajectory = collect(task, InductionTeacher(sandbox), sandbox, RolloutConfig())
    prompt = load_prompt(CHECKOUT / "configs", "large")
    assert trajectory.is_verified
    for rows in (sft_rows, dpo_rows, rl_rows, srl_rows):
        verified = [trajectory, trajectory.model_copy(update={"steps": trajectory.steps * 2})]
        with pytest.raises(DataError, match="canitedit:1_double:descriptive: is of an evaluation"):
            list(rows(verified, prompt))
    for recipe in ("sl_basic", "rl_grpo"):
        with pytest.raises(DataError, match="is of an evaluation, and nothing may be trained on it"):
            list(rows_of_tasks(recipe, [task], prompt))
    (tmp_path / "train.jsonl").write_text(task.model_dump_json() + "\n", "utf-8")
    with pytest.raises(DataError, match=r"train\.jsonl, line 1: is of an evaluation"):
        read_objects(tmp_path / "train.jsonl")
    catalog = load_yaml(CHECKOUT / "configs" / "datasets.yaml", Catalog)
    assert "canitedit" not in catalog.using(tuple(catalog.datasets), "all").sources
    assert catalog.datasets["canitedit"].license not in catalog.cleaning.licenses
