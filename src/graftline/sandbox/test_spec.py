"""What counts as passed: tests by pytest, results of calls, or the output of a program."""

import ast
import json
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from graftline.config import Config
from graftline.errors import DataError
from graftline.paths import portable

_FILES, _TEXT, _CALLS = 200, 1 << 20, 1000
_DOTTED = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


class _Spec(Config):
    model_config = ConfigDict(strict=False)  # lists stand for tuples, in Python as in JSON


class PytestSpec(_Spec):
    """Tests that are laid beside the workspace's files once these are there, and take the place of those of their name."""

    kind: Literal["pytest"] = "pytest"
    files: dict[str, str] = Field(min_length=1, max_length=_FILES)
    """Text of every test file, and of what the tests read, by its path."""
    expected: tuple[str, ...] = Field(min_length=1)
    """Node ids of the tests that have to run and pass: `tests/test_a.py::test_first`."""

    @field_validator("files")
    @classmethod
    def _are_portable(cls, files: dict[str, str]) -> dict[str, str]:
        for name, text in files.items():
            if fault := _fault_of_name(name):
                raise ValueError(fault)
            if len(text) > _TEXT:
                raise ValueError(f"{name!r} has {len(text)} characters; at most {_TEXT} are taken")
        return files

    @model_validator(mode="after")
    def _are_of_the_files(self) -> Self:
        for node_id in self.expected:
            path, separator, test = node_id.partition("::")
            if path not in self.files or not separator or not test:
                raise ValueError(
                    f"expected: {node_id!r} is no test of {sorted(self.files)}; write 'file.py::test_name'"
                )
        return self


class Call(_Spec):
    """A call, and what it has to return or to raise."""

    function: str = Field(pattern=_DOTTED)
    """By its name in the module; with dots for what is inside of something."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = Field(default_factory=dict)
    expected: Any = None
    """As JSON: lists are lists, not tuples; integers are not floats."""
    expected_python: str | None = Field(default=None, max_length=100_000)
    """As a literal of Python instead, for what JSON does not have: `(1, {2})`."""
    raises: str | None = None
    """Name of the class of the exception that has to end the call instead."""

    @field_validator("expected_python")
    @classmethod
    def _is_literal(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                ast.literal_eval(text)
            except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
                raise ValueError(f"expected_python: no literal of Python ({error})") from None
        return text

    @property
    def wanted(self) -> Any:
        """What the call has to return."""
        return self.expected if self.expected_python is None else ast.literal_eval(self.expected_python)


class CallsSpec(_Spec):
    """Calls of what a module of the workspace defines; results are compared outside of the jail, by exact type."""

    kind: Literal["calls"] = "calls"
    module: str = Field(pattern=_DOTTED)
    calls: tuple[Call, ...] = Field(min_length=1, max_length=_CALLS)

    @model_validator(mode="after")
    def _are_plain(self) -> Self:
        try:
            json.dumps([[call.args, call.kwargs] for call in self.calls], allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"calls: arguments have to be what JSON can say ({error})") from None
        return self


class ProgramSpec(_Spec):
    """A program of the workspace, and what it has to print; its exit code alone would prove nothing."""

    kind: Literal["program"] = "program"
    program: Literal["python", "node", "java"] = "python"
    arguments: tuple[str, ...] = Field(min_length=1)
    """The file first."""
    stdin: str = Field(default="", max_length=_TEXT)
    files: dict[str, str] = Field(default_factory=dict, max_length=_FILES)
    """Files that take the place of others of their name."""
    expected_stdout: str = Field(max_length=_TEXT)
    expected_exit_code: int = Field(default=0, ge=0, le=255)

    @field_validator("files")
    @classmethod
    def _are_portable(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if fault := _fault_of_name(name):
                raise ValueError(fault)
        return files


TestSpec = Annotated[PytestSpec | CallsSpec | ProgramSpec, Field(discriminator="kind")]
"""What `run_tests` takes."""


def _fault_of_name(name: str) -> str:
    try:
        portable(name)
    except DataError as error:
        return str(error)
    return ""
