"""What counts as passed: tests by pytest, results of calls, or the output of a program."""

import ast
import json
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.sandbox.file_names import argument_path_of, folders_of
from graftline.sandbox.inside.case_program import is_plain
from graftline.sandbox.jail import fault_of_arguments

_FILES, _TEXT, _CALLS, _TESTS, _ARGUMENTS, _NAME = 200, 1 << 20, 1000, 10_000, 100, 2000
_DOTTED = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


def _check_files(files: dict[str, str]) -> dict[str, str]:
    try:
        folders_of(map(argument_path_of, files))
    except DataError as error:
        raise ValueError(str(error)) from None
    for name, text in files.items():
        if len(text) > _TEXT:
            raise ValueError(f"{name!r} has {len(text)} characters; at most {_TEXT} are taken")
    return files


Trust = Literal["values", "comparisons", "report"]


class PytestSpec(Config):
    """Tests that are laid beside the workspace's files once these are there, and take the place of those of their name."""

    kind: Literal["pytest"] = "pytest"
    files: Annotated[dict[str, str], AfterValidator(_check_files)] = Field(min_length=1, max_length=_FILES)
    """Text of every test file, and of what the tests read, by its path."""
    expected: tuple[str, ...] = Field(min_length=1, max_length=_TESTS, strict=False)
    """Node ids of the tests that have to run and pass: `tests/test_a.py::test_first`."""
    trusts: Trust = "values"
    """What of the code under test is believed. `values`: what its functions return and its objects hold; it has a process
    of its own, and no report can be forged. `comparisons`: also whether its objects are equal, in order, or hold a value.
    `report`: whatever it has pytest report, for they share a process."""

    @model_validator(mode="after")
    def _are_of_the_files(self) -> Self:
        for node_id in self.expected:
            if len(node_id) > _NAME:  # a constraint of the field would refuse half a surrogate pair
                raise ValueError(
                    f"expected: {node_id[:40]!r}… has {len(node_id)} characters; at most {_NAME} are taken"
                )
            path, separator, test = node_id.partition("::")
            if path not in self.files or not separator or not test:
                raise ValueError(
                    f"expected: {node_id!r} is no test of {sorted(self.files)}; write 'file.py::test_name'"
                )
        return self


class Call(Config):
    """A call, and what it has to return or to raise."""

    function: str = Field(pattern=_DOTTED)
    """By its name in the module; with dots for what is inside of something."""
    args: tuple[Any, ...] = Field(default=(), strict=False)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    expected: Any = None
    """As JSON: lists are lists, not tuples; integers are not floats."""
    expected_python: str | None = Field(default=None, max_length=100_000)
    """As a literal of Python instead, for what JSON does not have: `(1, {2})`."""
    raises: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the class of the exception that has to end the call instead."""

    @field_validator("expected_python")
    @classmethod
    def _is_literal(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                ast.literal_eval(text)
            except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
                raise ValueError(f"expected_python: no literal of Python ({error})") from None
        return text

    @model_validator(mode="after")
    def _expects_one_thing(self) -> Self:
        expectations = {"expected", "expected_python", "raises"} & self.model_fields_set
        if len(expectations) > 1:
            raise ValueError(f"says {' and '.join(sorted(expectations))}; one of them is enough")
        if not is_plain(self.target):
            raise ValueError("expected: an object that cannot be compared by its type and its parts")
        return self

    @property
    def target(self) -> Any:
        """What the call has to return."""
        return self.expected if self.expected_python is None else ast.literal_eval(self.expected_python)


class CallsSpec(Config):
    """Calls of what a module of the workspace defines; results are compared outside of the jail, by exact type."""

    kind: Literal["calls"] = "calls"
    module: str = Field(pattern=_DOTTED)
    calls: tuple[Call, ...] = Field(min_length=1, max_length=_CALLS, strict=False)

    @model_validator(mode="after")
    def _are_plain(self) -> Self:
        for number, call in enumerate(self.calls):
            arguments = [[*call.args], call.kwargs]
            try:
                is_json = json.loads(json.dumps(arguments, allow_nan=False)) == arguments
            except (TypeError, ValueError, RecursionError):
                is_json = False
            if not is_json:
                raise ValueError(f"calls: arguments have to be what JSON can say (those of call {number} are not)")
        return self


class ProgramSpec(Config):
    """A program of the workspace, and what it has to print; its exit code alone would prove nothing."""

    kind: Literal["program"] = "program"
    program: Literal["python", "node", "java"] = "python"
    arguments: tuple[str, ...] = Field(min_length=1, max_length=_ARGUMENTS, strict=False)
    """The file first."""
    stdin: str = Field(default="", max_length=_TEXT)
    files: Annotated[dict[str, str], AfterValidator(_check_files)] = Field(default_factory=dict, max_length=_FILES)
    """Files that take the place of others of their name."""
    expected_stdout: str = Field(max_length=_TEXT)
    expected_exit_code: int = Field(default=0, ge=0, le=255)

    @field_validator("arguments")
    @classmethod
    def _can_be_passed(cls, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if fault := fault_of_arguments(arguments):
            raise ValueError(fault)
        return arguments


TestSpec = Annotated[PytestSpec | CallsSpec | ProgramSpec, Field(discriminator="kind")]
"""What `run_tests` takes."""
