"""CanItEdit as tasks with tests: files of Python, each to be edited by a detailed instruction and by a short one.

Cassano et al., "Can It Edit? Evaluating the Ability of Large Language Models to Follow Code Editing Instructions",
https://arxiv.org/abs/2312.12450. Its license forbids training, so every task has the tag `EVALUATION_ONLY`.

The benchmark appends the tests, a script of assertions, to the code, and runs both as one program. Here the script becomes the
body of one test in the names of the module of the code, so that an assertion that fails says of what. Code and tests then share
a process (`trusts: report`); see `sandbox.jail.spec`.
"""

import ast
import symtable
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.core.errors import DataError
from graftline.datasets.decontaminate import evaluation_files, evaluation_rows
from graftline.evals.cases import MOST_TEXT, Case
from graftline.rollouts.task import EVALUATION_ONLY, Task
from graftline.rollouts.task_tests import TaskTests
from graftline.sandbox.jail.spec import PytestSpec

Detail = Literal["descriptive", "lazy"]
"""Of an instruction: it says all that has to be done, or what somebody in a hurry would type."""

_MODULE, _TEST = "solution", "test_edit"


class _Problem(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    full_name: str = Field(min_length=1, max_length=200)
    before: str = Field(max_length=MOST_TEXT)
    after: str = Field(max_length=MOST_TEXT)
    tests: str = Field(max_length=MOST_TEXT)
    instruction_descriptive: str = Field(max_length=10_000)
    instruction_lazy: str = Field(max_length=10_000)


def read_problems(folder: Path, dataset: str, license: str, details: Sequence[Detail]) -> list[Case]:
    """Return the tasks of the files in `folder`, the raw ones of the dataset called `dataset`, in their order.

    Raises:
        DataError: a row cannot be read, or is none of the benchmark; the first fault is named.
    """
    cases: dict[str, Case] = {}
    for path in evaluation_files(folder):
        for number, row in evaluation_rows(path):
            for case in _cases_of(row, f"{path.name}:{number}", dataset, license, details):
                if case.id in cases:
                    raise DataError(f"{path}: row {number}: {case.id!r} was there before; remove one of the two")
                cases[case.id] = case
    return [*cases.values()]


def _cases_of(row: object, origin: str, dataset: str, license: str, details: Sequence[Detail]) -> Iterator[Case]:
    try:
        problem = _Problem.model_validate(row)
        tests = TaskTests(
            file=f"{_MODULE}.py",
            spec=PytestSpec(
                kind="pytest",
                files={f"{_TEST}.py": wrap_script(problem.tests)},
                expected=(f"{_TEST}.py::{_TEST}",),
                trusts="report",
            ),
        )
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise DataError(
            f"{origin}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}; a row of CanItEdit was expected"
        ) from None
    except (SyntaxError, ValueError, RecursionError) as error:
        raise DataError(f"{origin}: tests: cannot be read as Python ({error})") from None
    for detail in details:
        instruction = {"descriptive": problem.instruction_descriptive, "lazy": problem.instruction_lazy}[detail]
        task = Task(
            id=f"{dataset}:{problem.full_name}:{detail}",
            dataset=dataset,
            language="python",
            instruction=instruction,
            before=problem.before,
            target=problem.after,
            license=license,
            group=f"{dataset}:{problem.full_name}",
            origin=origin,
            tags=(EVALUATION_ONLY,),
            tests=tests,
        )
        yield Case(task=task, edit_class=detail)


def wrap_script(script: str) -> str:
    """Return a file for pytest with one test, whose body is `script` in the names of the module of the code.

        assert double(2) == 4

    becomes

        def test_edit():
            import solution
            globals().update(vars(solution))
            assert double(2) == 4

    SyntaxError or ValueError if it is no Python.
    """
    symbols = symtable.symtable(script, _MODULE, "exec").get_symbols()
    # what a script assigns is global, and may be read before: as local names of a function it could not
    assigned = sorted(
        symbol.get_name()
        for symbol in symbols
        if (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()) and not symbol.is_annotated()
    )
    head = f"import {_MODULE}\n" + (f"global {', '.join(assigned)}\n" if assigned else "")
    # its own name as well, by which tests look for the source of the code
    head += f"globals().update(vars({_MODULE}))\n"
    tree = ast.parse(f"def {_TEST}():\n    pass\n")
    [function] = tree.body
    assert isinstance(function, ast.FunctionDef)
    function.body = [*ast.parse(head).body, *ast.parse(script).body]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
