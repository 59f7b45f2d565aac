"""The tests that a task may carry: what they are, and what they say of a text.

Tests run in the jail of the sandbox, and a text that takes too much time, memory or output fails them. Where they cannot be
run, nothing is known about the text.

Edits between releases have none. Of 500 functions in 23 releases on PyPI, no test of the source archive names 224, and 178 are named
by tests that need too many files, parameters, fixtures of a `conftest.py`, or packages of another version; tests of the other 98 tell
the two sides apart for four.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_serializer, model_validator

from graftline.core.errors import DataError
from graftline.sandbox.base import Sandbox, TestRequest, Verdict
from graftline.sandbox.file_names import argument_path_of
from graftline.sandbox.jail.judge import TestResult
from graftline.sandbox.jail.spec import CallsSpec, TestSpec

_UNDECIDED = {Verdict.WALL_TIMEOUT: "tests_wall_timeout", Verdict.RUNNER_ERROR: "tests_runner_error"}
_NOT_JUDGED, _REFUSED = "tests_not_judged", "tests_refused"
CAUSES_OF_MACHINE = tuple(_UNDECIDED.values())
CAUSES_OF_SILENCE = (*CAUSES_OF_MACHINE, _NOT_JUDGED, _REFUSED)
"""Why tests say nothing of a text: a busy machine, a jail that failed, code that cannot be seen from outside, no interpreter."""
_MOST_FAILURES, _MOST_ERROR = 20, 300
"""Of the tests that fail, so many are told, each with so many characters of its error."""


class TaskTests(BaseModel):
    """Tests that tell whether a text is right, however it is written."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    file: str = Field(max_length=200)
    """Path by which the tests find the text: `solution.py`."""
    spec: TestSpec
    """Files, the kind of runner, and what has to pass."""

    @field_serializer("spec")
    def _as_it_was_written(self, spec: TestSpec) -> dict[str, Any]:
        # of a call, what is expected is told from nothing being said of it
        return {"kind": spec.kind, **spec.model_dump(mode="json", exclude_unset=True)}

    @model_validator(mode="after")
    def _has_a_place_for_the_text(self) -> Self:
        files = () if isinstance(self.spec, CallsSpec) else self.spec.files
        try:
            argument_path_of(self.file)
        except DataError as error:
            raise ValueError(f"file: {error}") from None
        if PurePosixPath(self.file) in map(PurePosixPath, files):
            raise ValueError(f"file: {self.file!r} is among the files of the tests, which would take its place")
        return self


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """What tests say of one text."""

    __test__ = False  # pytest collects by name

    passes: bool | None
    """None where they could not be run, or cannot tell."""
    cause: str = ""
    """Why they say nothing."""
    failures: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By the ids of tests that fail, how."""


def run_tests(questions: Sequence[tuple[TaskTests, str]], sandbox: Sandbox) -> list[TestVerdict]:
    """Return what tests say of a text, for each pair of the two; as many at a time as the sandbox has jails.

    Raises:
        SandboxError: the sandbox has no jail, or it failed.
    """
    if not questions:
        return []  # a sandbox without a jail will do
    requests = [
        TestRequest({tests.file: text.encode("utf-8", "surrogatepass")}, tests.spec) for tests, text in questions
    ]
    try:
        return [verdict_of(result) for result in sandbox.run_tests(requests)]
    except DataError:  # no interpreter, or files that no jail takes; of several, nobody says which
        if len(questions) == 1:
            return [TestVerdict(None, _REFUSED)]
        return [verdict for question in questions for verdict in run_tests([question], sandbox)]


def name_failures(failures: Mapping[str, str]) -> str:
    """Return a sentence with the ids of the tests that fail; not how, for that tells what they expect."""
    return f"These tests fail: {', '.join(failures)}." if failures else ""


def verdict_of(result: TestResult) -> TestVerdict:
    """Return what a run of tests says of the text that was tested."""
    if result.passed is None:
        return TestVerdict(None, _UNDECIDED.get(result.verdict, _NOT_JUDGED))
    failures = {
        test.name: (test.error or result.error or test.outcome)[:_MOST_ERROR]
        for test in result.tests
        if test.outcome != "passed"
    }
    return TestVerdict(result.passed, failures=dict([*failures.items()][:_MOST_FAILURES]))
