"""What an evaluation asks about: tasks, each with the class of its edit, changes of repositories, and files of pairs.

A file of pairs has one JSON object a line, plain or gzipped. A pair is an example of an edit, `unseen` another text that the
same action must get right:

    {"language": "python", "pre": "x = old(1)\\n", "post": "x = new(1)\\n", "instruction": "Rename `old` to `new`.",
     "unseen": {"pre": "y = old(a, b)\\n", "post": "y = new(a, b)\\n"}, "class": "rename"}

Only `language`, `pre` and `post` are required. Whoever wrote the file need not be trusted: its size is bounded, packed and
unpacked, and so is that of a line.
"""

import gzip
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from graftline.agent.places import Block, find_places
from graftline.agent.single_places import SinglePlace, list_single_places, task_of_place
from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.rollouts.repository_task import RepositoryTask
from graftline.rollouts.task import Task, invalid_reasons_by_tests
from graftline.rollouts.task_selection import template_of
from graftline.rollouts.task_tests import TaskTests
from graftline.sandbox.base import Sandbox
from graftline.sandbox.runner import language_of

MOST_BYTES = 64 << 20
"""Of a file, unpacked."""
MOST_LINE_BYTES = 1 << 20
MOST_TEXT = 100_000
"""Characters of a text."""
_BATCH = 16
"""Cases whose tests run in one call."""
_GZIP = b"\x1f\x8b"


REPOSITORIES, PLACES = "repositories", "places"
"""Classes of what is attempted of a change of a repository: all of it, or one place."""


class HeldOutExample(BaseModel):
    """Code that no solver is shown: an action that learned its example by heart fails here."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pre: str
    post: str


class Case(BaseModel):
    """A task as it is evaluated."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    task: Task
    edit_class: str = Field(min_length=1)
    """What metrics are grouped by beside the language: a template, a class of edits, or a dataset."""
    unseen: HeldOutExample | None = None
    repository: RepositoryTask | None = Field(default=None, exclude=True)
    """The change of a repository that is attempted; the task then has the lines that a model is shown of it."""
    place: SinglePlace | None = Field(default=None, exclude=True)
    """The place of it that is attempted alone; None for all of it."""

    @property
    def id(self) -> str:
        """That of the task."""
        return self.task.id

    @property
    def is_of_places(self) -> bool:
        """Whether places of a whole repository are counted, and not one text compared."""
        return self.repository is not None and self.place is None


def case_of(task: Task) -> Case:
    """Return a task of the pipeline: the class of a synthetic one is its template, that of any other its dataset."""
    is_synthetic = any(tag.startswith("template:") for tag in task.tags)
    return Case(task=task, edit_class=template_of(task) if is_synthetic else task.dataset)


def leave_out_invalid(
    cases: Sequence[Case], sandbox: Sandbox, advance: Callable[[int, int], None] = lambda done, total: None
) -> tuple[list[Case], dict[str, str]]:
    """Return the cases that are valid by their tests, and why the others are not, by id; cases without tests are.

    Raises:
        SandboxError: the sandbox has no jail, or it failed.
    """
    reasons: dict[str, str] = {}
    for start in range(0, len(cases), _BATCH):
        batch = cases[start : start + _BATCH]
        batch_reasons = invalid_reasons_by_tests([case.task for case in batch], sandbox)
        reasons |= {case.id: reason for case, reason in zip(batch, batch_reasons, strict=True) if reason}
        advance(start + len(batch), len(cases))
    return [case for case in cases if case.id not in reasons], reasons


def digest_of(cases: Sequence[Case]) -> str:
    """Return a digest that differs between any two lists of cases."""
    return digest([_describe(case) for case in cases])


def _describe(case: Case) -> dict[str, object]:
    # files of repositories are not stored with their cases
    own = {} if case.repository is None else {"repository": case.repository.digest}
    return {**case.model_dump(mode="json"), **own}


def case_of_repository(task: RepositoryTask) -> Case:
    """Return a change of a whole repository; models that write one rule are shown the place that its words lead to."""
    block = find_shown_block(task.instruction, task.texts)
    code = textwrap.dedent(block.text) if block else ""
    shown = task.ask_about(task.id, block.language if block else task.language, code, code)
    return Case(task=shown, edit_class=REPOSITORIES, repository=task)


def repository_of(case: Case) -> RepositoryTask:
    """Return the change of a repository that is attempted; ValueError where it is a text of its own."""
    if case.repository is None:
        raise ValueError(f"{case.id}: is no change of a repository")
    return case.repository


def find_shown_block(instruction: str, texts: Mapping[str, str]) -> Block | None:
    """Return the lines that models which write one rule are shown: those that the instruction is likeliest to be about."""
    languages = {path: language for path in texts if (language := language_of(path))}
    return next(iter(find_places(instruction, texts, languages).blocks), None)


def cases_of_places(task: RepositoryTask) -> list[Case]:
    """Return single places of a change, in an order that depends on the change alone."""
    return [
        Case(task=task_of_place(task, place), edit_class=PLACES, repository=task, place=place)
        for place in list_single_places(task.change)
    ]


class _Text(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    pre: str = Field(max_length=MOST_TEXT)
    post: str = Field(max_length=MOST_TEXT)


class _Pair(_Text):
    id: str = Field(default="", max_length=200)
    language: Language
    instruction: str = Field(default="", max_length=10_000)
    unseen: _Text | None = None
    tests: TaskTests | None = None
    edit_class: str = Field(default="", max_length=100, alias="class")


def read_pairs(path: Path) -> list[Case]:
    """Return the pairs of a file, in its order; those without an id are called by file and line.

    Raises:
        DataError: it cannot be read, is too large, or a line is no pair, or says nothing; the first fault is named.
    """
    cases: dict[str, Case] = {}
    for number, line in _lines(path):
        if not line.strip():
            continue
        case = _read_case(path, number, line)
        if case.id in cases:
            raise DataError(f"{path}: line {number}: id {case.id!r} was there before; give every pair one of its own")
        cases[case.id] = case
    if not cases:
        raise DataError(f"{path}: holds no pair; a line is an object with language, pre and post")
    return [*cases.values()]


def _read_case(path: Path, number: int, line: bytes) -> Case:
    try:
        pair = _Pair.model_validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, fault["loc"]))
        message = fault["msg"][0].lower() + fault["msg"][1:]
        raise DataError(f"{path}: line {number}: {f'{key}: ' if key else ''}{message}") from None
    for key, text in (("", pair), ("unseen.", pair.unseen)):
        if text is not None and (reason := _why_ungradable(text, pair.language)):
            raise DataError(f"{path}: line {number}: {key}{reason}")
    name = path.name.partition(".")[0]
    task = Task(
        id=pair.id or f"{name}:{number}",
        dataset=name,
        language=pair.language,
        instruction=pair.instruction,
        instruction_source="human" if pair.instruction else "none",
        before=pair.pre,
        target=pair.post,
        license="",
        group="",
        origin=f"{path.name}:{number}",
        tests=pair.tests,
    )
    held_out = pair.unseen and HeldOutExample(pre=pair.unseen.pre, post=pair.unseen.post)
    return Case(task=task, edit_class=pair.edit_class or name, unseen=held_out)


def _why_ungradable(text: _Text, language: Language) -> str:
    """Return why nothing can be graded by a pair of texts; empty where it can."""
    try:
        if compare_texts(text.pre, text.post, language).is_verified:
            return f"pre and post are the same {language}, so there is nothing to do; write what has to come out"
    except DataError as error:
        return f"pre or post cannot be read as {language} ({error}); mend them, or name another language"
    return ""


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1."""
    size = number = 0
    try:
        with path.open("rb") as packed:
            is_packed = packed.read(len(_GZIP)) == _GZIP
            packed.seek(0)
            with gzip.GzipFile(fileobj=packed) if is_packed else nullcontext(packed) as stream:
                while line := stream.readline(MOST_LINE_BYTES + 1):
                    size, number = size + len(line), number + 1
                    if len(line) > MOST_LINE_BYTES:
                        raise DataError(
                            f"{path}: line {number}: has more than {MOST_LINE_BYTES} bytes; leave such a pair out"
                        )
                    if size > MOST_BYTES:
                        raise DataError(f"{path}: has more than {MOST_BYTES} bytes, unpacked; divide it")
                    yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path}: is a damaged gzip file ({error}); pack it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); a file of pairs was expected") from None
